"""Surround a loop of `edgefold run`: its options, messages, alarms and what watches it."""
