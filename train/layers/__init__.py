"""Layers that several models share, each next to its form for devices."""
