"""Describe this machine and how fast it runs now."""
