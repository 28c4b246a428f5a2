"""Measure power and energy: sensors, their sampling, and figures with errors."""
