"""Methods over a network of peers."""
