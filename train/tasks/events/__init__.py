"""Tasks of event streams: files, simulated Hawkes processes, scores and pictures."""
