"""Answers of `edgefold budget` and its sweep over boards."""
