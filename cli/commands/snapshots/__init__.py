"""Carry out commands on snapshots of streams: merge."""
