"""The tables of `benchmarks.fleets.forecast_lake`."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table


def forecast_lake(data: Record) -> list[Table]:
    """Rows a second and memory of each way, and the time of a row."""
    n = data["n_sensors"] * data["n_rows"]
    rows = [
        _row("one process", n, data["processes_1"]),
        _row("two processes", n, data["processes_2"]),
        _row(f"two processes, {data['killed']['n_killed']} kills", n, data["killed"]),
    ]
    equal = {
        "two processes": data["same_on_two"],
        "a stop": data["same_after_a_stop"],
        "kills": data["same_after_kills"],
    }
    others = [name for name, same in equal.items() if not same]
    note = (
        f"{data['n_sensors']:,} sensors with {data['n_rows']:,} rows each, {n:,} rows in "
        f"{data['n_bytes'] / 1e6:,.0f} MB of Parquet; the results take "
        f"{data['result_bytes'] / 1e6:,.0f} MB. The results after {', '.join(equal)} are "
        + ("the same byte by byte." if not others else f"not all the same: {', '.join(others)}.")
        + f" Of {data['n_alone']} sensors, {data['n_same_alone']} have the forecasts of "
        f"`Sensors.step` to the bit. To count the sensors took {data['census_s']:.1f} s. A command "
        f"that was killed with {data['n_shards_kept']} of {data['n_shards']} shards done took "
        f"{data['resumed']['wall_s']:,.0f} s for the rest. Memory is the highest peak of a process "
        "that forecasts (VmHWM); the one that leads took "
        f"{_mb(data['processes_2']['parent_bytes'])}."
    )
    language = "compiled C" if data["in_c"] else "Python's rules"
    times = [
        ["`Sensors.step`, row by row", f"{data['step_us']:.1f} µs"],
        ["`Sensors.step_rows`, as in `run` and in a lake", f"{data['rows_us']:.1f} µs"],
    ]
    header = ["forecasts of a lake", "time", "rows a second", "memory of a process"]
    return [
        Table(header, rows, note),
        Table([f"a row of one sensor, {language}", "processor time"], times),
    ]


def _row(name: str, n: int, seen: dict[str, Any]) -> list[str]:
    wall_s = seen["wall_s"]
    return [name, f"{wall_s:,.1f} s", f"{n / wall_s:,.0f}", _mb(seen["worker_bytes"])]


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.0f} MB"
