"""Encoders of ordered streams: windows, continual attention and continual Nystrom."""
