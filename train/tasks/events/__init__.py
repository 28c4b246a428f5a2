"""Define the tasks of event streams: from files, and from simulated Hawkes processes."""
