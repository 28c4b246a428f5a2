"""Serve sensors with the general model: find clock and season, forecast, and give alarms."""
