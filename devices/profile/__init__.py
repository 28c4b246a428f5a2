"""Latency, memory and energy of a running stream."""
