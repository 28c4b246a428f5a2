"""The table of `benchmarks.models.copy_task`."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_time

PUBLISHED = {
    "Cross attention": ("100 %", "100.0 %"),
    "Tree cross attention": ("6.3 %", "100.0 %"),
    "Perceiver IO": ("6.3 %", "15.2 %"),
    "Random": ("", "8.3 %"),
}
"""Tokens read and right answers at a length of 256: table 1 of Feng et al. 2024."""
PUBLISHED_LENGTH = 256


def copy_task(data: Record) -> list[Table]:
    """A row for each run, and the published ones."""
    rows = [_row(name, own) for name, own in data["runs"].items()]
    if any(own["length"] == PUBLISHED_LENGTH for own in data["runs"].values()):
        rows += [
            [f"{name}, as published", str(PUBLISHED_LENGTH), "", "", read, right, "", ""]
            for name, (read, right) in PUBLISHED.items()
        ]
    header = ["copy task", "tokens", "parameters", "training steps", "read", "right"]
    n = next(iter(data["runs"].values()))["scores"]["n_sequences"]
    note = (
        f"Right answers are of {n:,} sequences in PyTorch; times are medians of the bundle over "
        f"{data['n_streamed']} sequences: a refresh after the first half, and a query of the "
        "whole second half. `read` counts what a query attends to, in percent of the context."
    )
    for name, own in data["runs"].items():
        if "not_exported" in own:
            note += f"\n\n{name} was not exported: {own['not_exported']}"
    return [Table([*header, "refresh", "query"], rows, note)]


def _row(name: str, own: dict[str, Any]) -> list[str]:
    scores, times = own["scores"], own.get("times", {})
    return [
        name,
        str(own["length"]),
        f"{own['n_parameters']:,}",
        f"{own['training']['steps_done']:,}",
        f"{100 * scores['share_read']:.1f} %" if "share_read" in scores else "",
        f"{100 * scores['accuracy']:.2f} %",
        *(format_time(times[call]["median_s"]) if times else "" for call in ("refresh", "query")),
    ]
