"""Find the columns of times and of values, and the number format, of a table by its first lines."""
