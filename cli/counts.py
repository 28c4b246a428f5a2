"""Counts on a command line."""

from __future__ import annotations

import argparse

MOST = 10**12
"""More of anything than a command lives to see."""


def positive(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    number = int(text)
    if not 1 <= number <= MOST:
        raise argparse.ArgumentTypeError(f"{text[:20]} is not between 1 and {MOST:,}")
    return number
