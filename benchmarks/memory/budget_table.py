"""The tables of `benchmarks.memory.budget`: predictions beside measurements."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_time

DETAILED = "paper, untrained"
SPANS = ("graphs in their range", "measured beside at least", "at most beside measured")


def budget(data: Record) -> list[Table]:
    """Activations, and the time of each graph."""
    return [_activations(data), *_times(data)]


def _activations(data: Record) -> Table:
    rows = []
    for subject in data["subjects"]:
        graphs = subject["activations"]
        worst = max(g["predicted_bytes"] for g in graphs.values())
        most = max(g["measured_bytes"] for g in graphs.values())
        ratios = [g["predicted_bytes"] / g["measured_bytes"] for g in graphs.values()]
        rows.append(
            [
                subject["name"],
                subject["precision"],
                f"{worst / 1e3:,.0f} kB",
                f"{most / 1e3:,.0f} kB",
                f"{worst / most:.2f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
            ]
        )
    header = ["bundle", "precision", "predicted", "counted", "ratio", "graph by graph"]
    note = (
        "Activations of the graph that needs most. Counted: the rise of live heap memory during "
        "one run, every allocation intercepted, onnxruntime's arena off; less what a run takes "
        "with the arena on, its bookkeeping. Packed weights are made at open and are not in it."
    )
    return Table(header, rows, note)


def _times(data: Record) -> list[Table]:
    detailed = next((s for s in data["subjects"] if s["name"] == DETAILED), data["subjects"][0])
    rows = [
        [
            name,
            format_time(graph["low_s"]),
            format_time(graph["measured_s"]),
            format_time(graph["high_s"]),
        ]
        for name, graph in detailed["times"].items()
    ]
    rate = data["ceilings"]["flops_per_s"] / 1e9
    note = (
        f"{detailed['name']}, {detailed['precision']}: the range that `edgefold budget` gives for "
        f"this machine's rates, {rate:.0f} GFLOP/s and "
        f"{data['ceilings']['memory_bytes_per_s'] / 1e9:.0f} GB/s of memory, measured in the same "
        "run, one thread. Measured: the tenth percentile of the graph alone, as other work on the "
        "machine only adds. Compared with no other machine: no board was measured."
    )
    first = Table(["graph", "at least", "measured", "at most"], rows, note)
    return [first, Table(["bundle", "precision", *SPANS], [_spans(s) for s in data["subjects"]])]


def _spans(subject: Record) -> list[str]:
    graphs = subject["times"].values()
    inside = sum(g["low_s"] <= g["measured_s"] <= g["high_s"] for g in graphs)
    spans = []
    for above, below in (("measured_s", "low_s"), ("high_s", "measured_s")):
        ratios = [graph[above] / graph[below] for graph in graphs]
        spans.append(f"{min(ratios):.1f} to {max(ratios):.1f} x")
    return [subject["name"], subject["precision"], f"{inside} of {len(graphs)}", *spans]
