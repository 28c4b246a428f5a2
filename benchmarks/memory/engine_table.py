"""The tables of what it costs to build engines ahead of time."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table, megabytes
from edgefold.cli.text.numbers import format_time


def engine_build(data: Record) -> list[Table]:
    """The record as tables: bundles by command, graphs by builder."""
    subjects = data["subjects"]
    names = [f"{subject['preset']}, {subject['precision']}" for subject in subjects]
    rows = []
    for name, subject in zip(names, subjects, strict=True):
        built, cached = (subject["commands"][which] for which in ("built", "cached"))
        rows.append(
            [
                name,
                megabytes(subject["bundle_bytes"]),
                megabytes(sum(graph["n_bytes"] for graph in subject["graphs"].values())),
                format_time(built["whole_s"]),
                megabytes(built["resident_peak_bytes"]),
                format_time(cached["whole_s"]),
            ]
        )
    header = [
        "preset",
        "bundle",
        "engines",
        "edgefold engine",
        "its resident peak",
        "all in the cache",
    ]
    note = (
        "TensorRT-RTX, which needs no GPU to build; one compute capability, "
        f"{data['compute_capability']}. An engine holds its kernels as source beside the weights "
        "that its graph reads. TensorRT on a board times kernels while it builds: not measured."
    )
    of_graphs = [
        [
            graph,
            *(
                f"{format_time(subject['graphs'][graph]['median_s'])}, "
                f"{megabytes(subject['graphs'][graph]['n_bytes'])}"
                for subject in subjects
            ),
        ]
        for graph in subjects[0]["graphs"]
    ]
    below = f"Parse and build of one graph, median of {_repeats(subjects)}; then the engine's size."
    return [Table(header, rows, note), Table(["graph", *names], of_graphs, below)]


def _repeats(subjects: list[Any]) -> int:
    return int(next(iter(subjects[0]["graphs"].values()))["n"])
