"""Measure latency, memory and energy of a running stream."""
