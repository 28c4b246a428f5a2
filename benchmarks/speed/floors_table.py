"""The table of `benchmarks.speed.floors`."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_time


def floor_s(times: Record) -> float:
    """Return the seconds that a graph's operations and one call take at least."""
    found: float = times["nodes_s"] + times["call_s"]
    return found


def floors(data: Record) -> list[Table]:
    """A row for each graph."""
    rows = []
    for name, steps in data["models"].items():
        for step, times in steps.items():
            floor = floor_s(times)
            rows.append(
                [
                    f"{name}, {step}",
                    str(times["n_nodes"]),
                    format_time(times["graph_s"]),
                    format_time(floor),
                    f"{times['graph_s'] / floor:.2f}",
                    format_time(times["nodes_s"] / max(1, times["n_nodes"])),
                    ", ".join(
                        f"{op} {s / times['nodes_s']:.0%}" for op, s in times["most"].items()
                    ),
                ]
            )
    header = ["graph", "nodes", "one call", "floor", "ratio", "a node", "most of it"]
    note = (
        f"Preset {data['preset']}, room for {data['n_points']} points, processor time of one "
        "thread. Floor: each node alone with its own shapes, its operands in cache, and a call of "
        "onnxruntime. Where a node takes more than some microseconds, memory and arithmetic "
        "decide, and not the number of nodes."
    )
    return [Table(header, rows, note)]
