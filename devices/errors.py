"""What devices/ says when it cannot tell; imports nothing, so that any command may catch it."""

from __future__ import annotations


class MeterError(Exception):
    """A sensor or counter that is absent, unreadable or asked for more than it can resolve."""


class BoardError(Exception):
    """A board that is unknown, or whose profile is not as profiles are written."""
