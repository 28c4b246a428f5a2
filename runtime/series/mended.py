"""Say in words what was mended in the file of a series."""

from __future__ import annotations

from edgefold.runtime.rows.series_file import SeriesReport


def mended(report: SeriesReport) -> str:
    """Return what was bridged or left out, with counts; empty for a clean file."""
    counts = {
        "missing rows, bridged": report.n_missing,
        "longer pauses": report.n_pauses,
        "lines without a value": report.n_empty,
        "repeated rows, dropped": report.n_repeats,
        "rows of a time that came twice, dropped": report.n_duplicates,
        "lines that could not be used, skipped": report.n_skipped,
    }
    return "; ".join(f"{what}: {n:,}" for what, n in counts.items() if n)
