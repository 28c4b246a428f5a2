"""Write in words what was mended in the file of a series."""

from __future__ import annotations

from edgefold.runtime.series.series_file import SeriesReport


def mended(report: SeriesReport) -> str:
    """Return one line that says what was mended in a file; empty if nothing was."""
    parts = []
    if report.n_gaps:
        parts.append(
            f"{_count(report.n_gaps, 'gap')}, {_count(report.n_missing, 'row')} missing: bridged, "
            "never learned or scored"
        )
    if report.n_pauses:
        parts.append(f"{_count(report.n_pauses, 'long pause')}: history starts over")
    if report.n_empty:
        parts.append(f"{_count(report.n_empty, 'row')} without a value")
    if report.n_repeats:
        parts.append(f"{_count(report.n_repeats, 'row')} dropped that came twice")
    if report.n_duplicates:
        parts.append(f"{_count(report.n_duplicates, 'row')} dropped of times with two values")
    if report.n_skipped:
        parts.append(f"{_count(report.n_skipped, 'bad row')} skipped")
    return "; ".join(parts)


def passed_over(n: int) -> str:
    """Return words that say that n rows were left out for coming at a wrong pace; "" for n = 0."""
    return f"{_count(n, 'row')} passed over at another pace: never learned or scored" if n else ""


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
