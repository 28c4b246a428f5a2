"""A table as text, and numbers as its cells show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.record import Record


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, and words below them."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """An aligned table: first column to the left, the others to the right."""
        cells = [self.header, *self.rows]
        widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(self.header))]

        def line(row: Sequence[str]) -> str:
            padded = [row[0].ljust(widths[0])]
            padded += [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
            return f"| {' | '.join(padded)} |"

        rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
        lines = [line(self.header), f"| {' | '.join(rule)} |", *map(line, self.rows)]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")


# Numbers as text ----------------------------------------------------------------------------------


def seconds(value: float) -> str:
    """A time with three digits and the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= 0.9995 * size:  # 999.6 µs is 1 ms, not 1e+03 µs
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def megabytes(value: float) -> str:
    """Bytes as MB."""
    return f"{value / 1e6:,.1f} MB"


def ranged(times: Record) -> str:
    """Median, and p10 to p90."""
    low, high = seconds(times["p10_s"]), seconds(times["p90_s"])
    return f"{seconds(times['median_s'])} ({low} to {high})"


def error(value: float | None) -> str:
    """A relative error; empty where there is none."""
    return "" if value is None else f"{value:.1e}"
