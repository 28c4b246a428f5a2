"""Board profiles and meters; knows nothing of models."""
