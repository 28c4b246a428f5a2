"""Tasks of sequences that filters classify."""
