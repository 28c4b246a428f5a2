"""Count the memory and the work that graphs need, before they run."""
