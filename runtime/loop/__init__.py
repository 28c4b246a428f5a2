"""The loop that predicts each row and then learns it."""
