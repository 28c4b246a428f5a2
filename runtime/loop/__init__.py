"""The loop that predicts each row and then updates the model with it."""
