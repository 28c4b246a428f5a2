"""The table of `benchmarks.usage.sql_aggregate`: rows a second in SQL, and memory."""

from __future__ import annotations

import statistics

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_time


def sql_aggregate(data: Record) -> list[Table]:
    """Each aggregate in one process and in several: time, rows a second, memory."""
    rows = []
    for name, of_workers in data["queries"].items():
        for runs in of_workers.values():
            time_s = statistics.median(run["time_s"] for run in runs)
            processes = sorted({run["n_processes"] for run in runs})
            peak_bytes = max(run["peak_bytes"] for run in runs)
            rows.append(
                [
                    *(name, " or ".join(map(str, processes)), format_time(time_s)),
                    f"{data['n_rows'] / time_s / 1e6:.2f} million",
                    f"{peak_bytes / 1e6:.1f} MB",
                ]
            )
    note = (
        f"{data['n_rows']:,} rows in {data['table_bytes'] / 1e6:.0f} MB, {data['n_sites']:,} "
        f"sites, PostgreSQL {data['postgres'].split()[0]}, work_mem {data['work_mem']}. The median "
        f"of {data['n_turns']} times, and the largest memory, above that before the query, of all "
        f"processes together. A state takes {data['state_bytes']:,} bytes (SSPACE)."
    )
    return [Table(["aggregate", "processes", "time", "rows a second", "memory"], rows, note)]
