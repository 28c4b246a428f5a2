"""Rows of text files as points of a model."""
