"""Read the rows of text files and pipes (CSV, JSON lines) as numbers for a model."""
