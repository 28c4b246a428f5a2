"""Memory meters, of a process and beside it."""
