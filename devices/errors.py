"""What a meter says when it cannot measure; imports nothing, so any command may catch it."""

from __future__ import annotations


class MeterError(Exception):
    """A sensor or counter that is absent, unreadable or asked for more than it can resolve."""
