"""Run a model on rows without end: predict each row, then update the model with it."""
