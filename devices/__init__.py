"""Board profiles and meters, which know nothing of models."""
