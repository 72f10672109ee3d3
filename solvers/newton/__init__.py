"""Second-order methods."""
