"""Declare and read options that several commands share."""
