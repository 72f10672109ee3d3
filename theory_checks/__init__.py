"""Claims about rates, and the harness that tests them."""
