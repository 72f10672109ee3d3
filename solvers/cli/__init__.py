"""The command ``optikit-solve``: a method on a data file."""
