"""Predict whether a bundle fits a board, before deployment."""
