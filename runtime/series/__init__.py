"""One-step-ahead prediction of a time series: its features, its baselines and its scores."""
