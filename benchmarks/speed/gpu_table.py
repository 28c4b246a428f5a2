"""The tables of a bundle's steps on a GPU."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, ranged
from edgefold.cli.text.numbers import format_time


def gpu_latency(data: Record) -> list[Table]:
    """A table for each way to wait, with a column for each backend that opened."""
    return [_waiting(wait, found) for wait, found in data.items()]


def _waiting(wait: str, data: Record) -> Table:
    names = list(data["times"])
    rows = [
        [step, *(ranged(data["times"][name][step]) for name in names)]
        for step in data["times"][names[0]]
    ]
    for key, what in (("cold_open_s", "open, empty cache"), ("cached_open_s", "open again")):
        times = [data["opened"][name][key] for name in names]
        rows.append([what, *("" if time is None else format_time(time) for time in times)])
    devices = {name: data["opened"][name]["report"] for name in names}
    note = "; ".join(f"{name}: {of['version']} on {of['device']}" for name, of in devices.items())
    for name, of in devices.items():
        note += f"; {name} waits: {of['waits']}" if "waits" in of else ""
    for name, reason in data["refused"].items():
        note += f"; {name} did not open: {reason.split('. ')[0]}"
    return Table([f"step, wait {wait}", *names], rows, f"Medians, p10 to p90 in brackets. {note}.")
