"""Tell a person, while a loop lives, that all rows are refused, and when that ends.

Reports of single rows end after the first ones, so that a log does not fill up. An alarm comes
seldom enough to be said each time: at 20, 200, 2,000, ... rows refused one after the other. Rows
are counted for each sensor by itself.
"""

from __future__ import annotations

FIRST = 20
FACTOR = 10


def refused_alarm(n_in_a_row: int, line: int, reason: str, whose: str = "") -> str:
    """Return the alarm of a refused row, or nothing.

    Args:
        n_in_a_row: With this row.
        line: Its number.
        reason: Why it was refused.
        whose: " of stream NAME", where the row's sensor has a name.
    """
    if not is_alarm(n_in_a_row):
        return ""
    return (
        f"WARNING: the last {n_in_a_row:,} rows{whose} were all refused, and nothing is learned of "
        f"them. The last one, line {line}: {reason}. Look at the input: its clock, its pace and "
        "its columns. Once its rows fit again they are learned again"
    )


def end_of_alarm(n_refused: int, line: int, whose: str = "") -> str:
    """Return the end of an alarm at a row that was learned, or nothing if there was no alarm."""
    if n_refused < FIRST:
        return ""
    return f"rows{whose} are learned again from line {line} on, after {n_refused:,} refused"


def is_alarm(n_in_a_row: int) -> bool:
    """Whether a count is 20, 200, 2,000 and so on."""
    n = n_in_a_row
    while n > FIRST and n % FACTOR == 0:
        n //= FACTOR
    return n == FIRST
