"""Examine this machine: what is installed, what is missing, and how to install it."""
