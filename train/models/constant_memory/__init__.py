"""Hold CMANP and CMANP-AND, whose state is the running attention of their blocks."""
