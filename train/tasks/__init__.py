"""Tasks: the sources of training and evaluation data."""
