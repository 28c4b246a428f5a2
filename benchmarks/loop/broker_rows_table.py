"""The table of `benchmarks.loop.broker_rows`: rows through a broker, memory and latency."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def broker_rows(data: Record) -> list[Table]:
    """Rows a second with memory, and the latency from publish to result."""
    fast, slow = data["fast"], data["slow"]
    rows = Table(
        ["rows", "rows a second", "processor time of a row", "resident", "growth"],
        [
            [
                *(f"{fast['n_rows']:,}", f"{fast['rows_per_s']:,.0f}"),
                f"{fast['processor_us_per_row']:.0f} µs",
                f"{fast['resident_bytes'] / 1e6:.1f} MB",
                f"{fast['growth_bytes'] / 1024:+.0f} KiB",
            ]
        ],
        f"{fast['backend']}; --window {data['window']}. Growth is from the second to the last "
        "tenth of the rows.",
    )
    times = Table(
        ["rows a second", "rows", "median", "p99", "slowest"],
        [
            [
                *(f"{slow['rate']}", f"{slow['n']:,}"),
                *(f"{1e3 * slow[name]:.1f} ms" for name in ("p50_s", "p99_s", "max_s")),
            ]
        ],
        "From the call that publishes a row to the arrival of its forecast at a listener.",
    )
    return [rows, times]
