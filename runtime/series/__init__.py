"""Predict the next value of a time series: compute its features, its baselines and its scores."""
