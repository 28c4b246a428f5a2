"""Define the tasks of sequences whose tokens a model classifies as they come."""
