"""A table as text, and numbers as its cells show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.record import Record
from edgefold.cli.text.numbers import format_time

KERNELS = {"rbf": "RBF", "matern52": "Matern 5/2"}


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, and words below them; `of_words` if the cells are words and not numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    of_words: bool = False

    def markdown(self) -> str:
        """An aligned table: first column to the left, and numbers in the others to the right."""
        if self.of_words:
            head, *body = (f"| {' | '.join(row)} |" for row in (self.header, *self.rows))
            return "\n".join([head, f"| {' | '.join(['---'] * len(self.header))} |", *body])
        cells = [self.header, *self.rows]
        widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(self.header))]

        def line(row: Sequence[str]) -> str:
            padded = [row[0].ljust(widths[0])]
            padded += [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
            return f"| {' | '.join(padded)} |"

        rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
        lines = [line(self.header), f"| {' | '.join(rule)} |", *map(line, self.rows)]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")


# Cells as text ------------------------------------------------------------------------------------


def describe(record: Record) -> str:
    """Return in a line what a record ran on."""
    c = record["conditions"]
    versions = ", ".join(f"{name} {version}" for name, version in c["versions"].items())
    before, after = c["load_average"][0], c["load_average_after"][0]
    smoke = " A smoke run, not a measurement." if record["quick"] else ""
    return (
        f"{c['cpu_model']}, {c['architecture']}, {c['n_cores']} cores, {c['threads']} used; load "
        f"{before:.1f} at the start and {after:.1f} at the end; {versions}; "
        f"{c['date'][:10]}.{smoke}{_verdict(record)}"
    )


def _verdict(record: Record) -> str:
    """Return whether something disturbed it; records from before verdicts have none."""
    if "validity" not in record:
        return ""
    found = record["validity"]
    reasons = "; ".join(found["reasons"] or found["untold"])
    return f" Validity: {found['verdict']}{f' ({reasons})' if reasons else ''}."


def megabytes(value: float) -> str:
    """Bytes as MB."""
    return f"{value / 1e6:,.1f} MB"


def ranged(times: Record) -> str:
    """Median, and p10 to p90."""
    low, high = format_time(times["p10_s"]), format_time(times["p90_s"])
    return f"{format_time(times['median_s'])} ({low} to {high})"


def error(value: float | None) -> str:
    """A relative error; empty where there is none."""
    return "" if value is None else f"{value:.1e}"
