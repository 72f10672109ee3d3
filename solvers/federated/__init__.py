"""Client-server methods without a server process."""
