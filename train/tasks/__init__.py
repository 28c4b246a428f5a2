"""Define the tasks: each draws the data on which models are trained and evaluated."""
