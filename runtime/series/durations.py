"""Write a length of time in words that people use."""

from __future__ import annotations

from edgefold.runtime.rows.csv_fields import Clock

UNITS = (
    (1e-3, "millisecond"),
    (1.0, "second"),
    (60.0, "minute"),
    (3600.0, "hour"),
    (86400.0, "day"),
    (2 * 365.2425 * 86400, "year"),  # up to two years people count days
)
YEAR_S = 365.2425 * 86400


def duration(seconds: float) -> str:
    """Write a length of time of at least 0 s in words with three digits: 1 hour, 1.5 days."""
    # A unit is taken from a little below 1 on, so that 59.99 seconds are not "60 seconds".
    size, name = next((u for u in reversed(UNITS) if seconds >= 0.9995 * u[0]), UNITS[0])
    amount = seconds / (YEAR_S if name == "year" else size)
    digits = f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
    return f"{digits} {name}{'' if digits == '1' else 's'}"


def elapsed(amount: float, clock: Clock) -> str:
    """Write a length of time: seconds in words if `clock` is "date", else a plain number."""
    return duration(amount) if clock == "date" else f"{amount:g} in units of its times"
