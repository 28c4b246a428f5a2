"""The tables of `benchmarks.fleets.condition_tables`."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table


def condition_tables(data: Record) -> list[Table]:
    """Rows a second and memory of each way, and what kills cost."""
    n, part = data["n_rows"], data["n_part"]
    whole = [
        ["reading only", f"{n:,}", f"{data['reading_s']:,.1f} s", _rate(n, data["reading_s"]), "-"],
        _row("one process", n, data["processes_1"]),
        _row("two processes", n, data["processes_2"]),
    ]
    calm, killed, dask = data["calm"], data["killed"], data["dask"]
    parts = [
        _row("two processes", part, calm),
        _row(f"two processes, {killed['n_killed']} kills", part * killed["n_runs"], killed),
        _row("two workers of dask", part, dask),
    ]
    equal = {
        "two processes": data["same_on_two"],
        "kills": data["same_after_kills"],
        "dask": data["same_on_dask"],
    }
    others = [name for name, same in equal.items() if not same]
    note = (
        f"{data['n_bytes'] / 1e9:,.2f} GB of Parquet. The states of {', '.join(equal)} are "
        + ("the same to the bit." if not others else f"not all the same: {', '.join(others)}.")
        + " The smaller table has 200 units. Memory is the highest peak of a process that learns "
        f"(VmHWM); the process that leads them took {_mb(data['processes_2']['parent_bytes'])}."
    )
    header = ["conditioning", "rows", "time", "rows a second", "memory of a process"]
    return [Table(header, [*whole, *parts], note)]


def _row(name: str, n: int, seen: dict[str, Any]) -> list[str]:
    wall_s = seen["wall_s"]
    return [name, f"{n:,}", f"{wall_s:,.1f} s", _rate(n, wall_s), _mb(seen["worker_bytes"])]


def _rate(n: int, wall_s: float) -> str:
    return f"{n / wall_s:,.0f}"


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.0f} MB"
