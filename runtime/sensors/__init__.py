"""Streams of a single sensor as rows of the general model: clock, season, alarms."""
