"""Condition a model on tables: one state for each group of rows."""
