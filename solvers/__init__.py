"""Methods, one file each, grouped by family."""
