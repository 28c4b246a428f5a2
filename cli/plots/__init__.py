"""Draw records as pictures."""
