"""Decide which rows of a sensor are alarms, at a stated rate of false alarms."""
