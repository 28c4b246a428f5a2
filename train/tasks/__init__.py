"""Where training and evaluation data come from."""
