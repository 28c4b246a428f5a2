"""The table of `benchmarks.usage.examples`."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, ranged


def examples(data: Record) -> list[Table]:
    """Size, times and difference of each example."""
    rows = []
    for name, own in data.items():
        times = [own["times"].get(n) for n in ("graph alone", "Stream.update", "Stream.query")]
        row = [name, *(size(own["plan"][part]) for part in ("weights", "state"))]
        row += [ranged(measured) if measured else "" for measured in times]
        rows.append([*row, f"{own['to_float32']:.0e}"])
    n_steps = max(own["n_steps"] for own in data.values())
    note = (
        "Medians of blocks, p10 to p90 in brackets, one thread. Update alone: the graph without "
        "what `Stream` does in Python; keyword_spotter has a step in its place. State: two buffers "
        "of each tensor, one of a ring. Difference: the largest of a prediction from PyTorch's in "
        f"float32, scaled units, along {n_steps:,} points."
    )
    header = ["", "weights", "state", "update alone", "Stream.update", "Stream.query, 1 target"]
    return [Table([*header, "difference"], rows, note)]


def size(n_bytes: int) -> str:
    """Bytes as bytes or kB."""
    return f"{n_bytes / 1e3:,.1f} kB" if n_bytes >= 1000 else f"{n_bytes} B"
