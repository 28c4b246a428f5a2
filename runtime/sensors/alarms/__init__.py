"""Alarms of a sensor at a stated rate of false ones."""
