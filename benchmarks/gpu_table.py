"""The table of a bundle's steps on a GPU."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, ranged
from edgefold.cli.text.numbers import format_time


def gpu_latency(data: Record) -> list[Table]:
    """A column for each backend that opened."""
    names = list(data["times"])
    rows = [
        [step, *(ranged(data["times"][name][step]) for name in names)]
        for step in data["times"][names[0]]
    ]
    for key, what in (("cold_open_s", "open, empty cache"), ("cached_open_s", "open again")):
        rows.append([what, *(format_time(data["opened"][name][key]) for name in names)])
    devices = {name: data["opened"][name]["report"] for name in names}
    note = "; ".join(f"{name}: {of['version']} on {of['device']}" for name, of in devices.items())
    for name, reason in data["refused"].items():
        note += f"; {name} did not open: {reason.split('. ')[0]}"
    return [Table(["step", *names], rows, f"Medians, p10 to p90 in brackets. {note}.")]
