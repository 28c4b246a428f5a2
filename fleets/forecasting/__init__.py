"""Forecast the sensors of a lake, each from its own rows, on processes that may die."""
