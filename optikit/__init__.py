"""optikit: what every method is made of (arrays, losses, objectives, networks, the driver)."""
