"""Show how far units of work are, on a line of the terminal or now and then in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from edgefold.cli.terminal import StatusLine, say
from edgefold.runtime.series.durations import duration

if TYPE_CHECKING:
    from edgefold.fleets.work.unit import WorkNews

LOGGED_S = 30.0
"""Seconds between two lines in a file."""


class WorkProgress:
    """Shows a line on stderr; if that is a file, writes one there now and then."""

    def __init__(self) -> None:
        self._line = StatusLine(0.0)
        self._start_s = self._logged_s = time.monotonic()

    def hear(self, news: WorkNews) -> None:
        """Show rows done, rows in a second, and the time that is left."""
        is_logged = not self._line.is_live and time.monotonic() - self._logged_s >= LOGGED_S
        if not (self._line.is_due or is_logged):
            return
        lasted_s = max(time.monotonic() - self._start_s, 1e-3)
        rate = (news.n_rows - news.n_rows_before) / lasted_s
        parts = [f"{news.n_rows:,} of {news.n_rows_all:,} rows"]
        if news.n_rows_all:
            parts.append(f"{news.n_rows / news.n_rows_all:.0%}")
        if rate:
            parts.append(f"{rate:,.0f} rows/s")
            left = news.n_rows_all - news.n_rows
            parts.append(
                f"{duration(left / rate)} left" if left else f"{news.n_left} units are joined"
            )
        if news.n_deaths:
            parts.append(f"{news.n_deaths} processes died and were replaced")
        text = "   ".join(parts)
        self._line.show(text)
        if is_logged:
            self._logged_s = time.monotonic()
            say(text)

    def clear(self) -> None:
        """Remove the line from the terminal."""
        self._line.clear()
