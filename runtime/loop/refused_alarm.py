"""Write an alarm while a loop runs and all its rows are refused, and a message when that ends.

Reports of single rows stop after the first ones, so that a log does not fill up. An alarm is rare
enough to be written each time: at 20, 200, 2,000, ... rows that were refused one after the other.
Rows are counted for each sensor separately.
"""

from __future__ import annotations

FIRST = 20
FACTOR = 10


def refused_alarm(n_in_a_row: int, place: str, reason: str, whose: str = "") -> str:
    """Return the text of an alarm after a refused row, or "" if no alarm is due.

    Args:
        n_in_a_row: Number of rows that were refused one after the other, this one included.
        place: The row's place in the input, such as "line 7".
        reason: The reason why the row was refused.
        whose: " of stream NAME" where the row's sensor has a name, else "".
    """
    if not is_alarm(n_in_a_row):
        return ""
    return (
        f"WARNING: the last {n_in_a_row:,} rows{whose} were all refused, and nothing is learned of "
        f"them. The last one, {place}: {reason}. Look at the input: its clock, its pace and "
        "its columns. Once its rows fit again they are learned again"
    )


def end_of_alarm(n_refused: int, place: str, whose: str = "") -> str:
    """Return the message that an alarm ended with a row that was learned, or "" without an alarm.

    Args:
        n_refused: Number of rows that were refused directly before this row.
        place: The row's place in the input, such as "line 7".
        whose: " of stream NAME" where the row's sensor has a name, else "".
    """
    if n_refused < FIRST:
        return ""
    return f"rows{whose} are learned again from {place} on, after {n_refused:,} refused"


def is_alarm(n_in_a_row: int) -> bool:
    """Return whether an alarm is due at this number of refused rows: 20, 200, 2,000 and so on."""
    n = n_in_a_row
    while n > FIRST and n % FACTOR == 0:
        n //= FACTOR
    return n == FIRST
