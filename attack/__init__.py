"""Fuzzers of bundles, snapshots, rows, kills, torn files, exceptions and environments.

`make test-attack` runs them all; docs/attacks.md says what they try and what they demand.
"""
