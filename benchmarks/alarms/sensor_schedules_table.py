"""The table of `benchmarks.alarms.sensor_schedules`: recurring events, and missing ones."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def sensor_schedules(data: Record) -> list[Table]:
    """Jumps that are alarmed, missing ones that are, and other alarms."""
    header = ["schedule", "plants", "jumps", "alarmed", "missing", "found", "other alarms"]
    rows = []
    for kind, told in data["kinds"].items():
        found = "" if told["found"] is None else f"{100 * told['found']:.1f} %"
        others = ", ".join(f"{event} {n}" for event, n in told["others"].items())
        rows.append(
            [
                *(kind, f"{told['n_plants']}", f"{told['n_jumps']:,}"),
                *(f"{100 * told['alarmed']:.1f} %", f"{told['n_absent']}", found),
                f"{told['beside_rate']:.1f} times the stated ones: {others}",
            ]
        )
    text = (
        f"At a stated rate of {data['rate']:g}, {data['n_days']} days of quarter hours; jumps "
        f"count once {data['n_times']} of their kind have come."
    )
    return [Table(header, rows, text)]
