"""Whether a bundle fits a board, before deployment."""
