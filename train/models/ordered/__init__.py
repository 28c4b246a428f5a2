"""Hold encoders of ordered streams: windows, continual attention and continual Nystrom."""
