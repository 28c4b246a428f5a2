"""The tables of `benchmarks.sensors.sensor_cost`: times of a row, memory, sizes."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def sensor_cost(data: Record) -> list[Table]:
    """Times by backend and length of the stream; sizes."""
    rows = [
        [
            *(row["backend"], f"{row['n_rows']:,}", f"{1e6 * row['median_s']:.1f} µs"),
            *(f"{1e6 * row['p90_s']:.1f} µs", f"{row['ratio']:.3f}"),
        ]
        for row in data["times"]
    ]
    memory = data["memory"]
    sizes = [
        ["state of a sensor", f"{data['state_bytes'] / 1e3:.1f} kB"],
        ["weights", f"{data['weight_bytes'] / 1e3:.1f} kB"],
        ["clock, season and alarms of a row, in Python", f"{data['around_us']:.1f} µs"],
        [
            f"needed memory at {memory[-1]['n_rows']:,} rows",
            f"{memory[-1]['needed_bytes'] / 1e6:.1f} MB",
        ],
        [f"`edgefold budget` for {data['board']}", data["fits"]],
    ]
    return [
        Table(["backend", "rows before", "a row", "90 %", "beside 100 rows"], rows),
        Table(["", ""], sizes),
    ]
