"""Find the clock, the columns and the number format of a table by its first lines."""
