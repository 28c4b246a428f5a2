"""Write figures, gates and ratios as tables, as CSV, and in Prometheus' text format.

The text format is that of `prometheus.io/docs/instrumenting/exposition_formats`, for the textfile
collector of node_exporter: names end in their base unit, a file is replaced as a whole.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

from edgefold.cli.records.comparison import Ratio
from edgefold.cli.records.figures import (
    BYTES,
    JOULES,
    SECONDS,
    YEARS,
    Record,
    RecordFigure,
    figures_of,
)
from edgefold.cli.records.gates import PASSED, Outcome
from edgefold.cli.text.numbers import format_bytes, format_energy, format_time

QUANTILES = {"p50": "0.5", "p90": "0.9", "p99": "0.99", "p999": "0.999"}


def show(figure: RecordFigure) -> str:
    """Write the value of a figure with its unit; a value that was not measured is a dash."""
    if figure.value is None:
        return "-"
    if figure.unit == SECONDS:
        return format_time(figure.value)
    if figure.unit == BYTES:
        return format_bytes(figure.value)
    if figure.unit == YEARS:
        return f"{figure.value:,.3g} years"
    return format_energy(figure.value) if figure.unit == JOULES else f"{figure.value * 100:.3g} %"


def gate_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """Return a line for each gate: its verdict, the condition, and the measured value."""
    lines = []
    for outcome in outcomes:
        figure = outcome.figure
        measured = "" if figure.value is None else f"measured {show(figure)}"
        if outcome.ratio is not None and outcome.ratio.ratio is not None:
            measured += f", {outcome.ratio.ratio:.3f} times the baseline"
            if not figure.exact:
                measured += f" ({_ends(outcome.ratio)})"
        elif (figure.low, figure.high) != (None, None):
            measured += f" ({interval(figure)})"
        parts = [part for part in (measured, outcome.reason) if part]
        lines.append(f"  {outcome.verdict:<8}{outcome.gate:<36}{'; '.join(parts)}")
    return lines


def interval(figure: RecordFigure) -> str:
    """Write both ends of a figure's interval; `?` is an end that is not known."""
    ends = (
        "?" if end is None else show(RecordFigure(figure.name, figure.unit, end))
        for end in (figure.low, figure.high)
    )
    return " to ".join(ends)


def describe_record(record: Record) -> str:
    """Return a line on a record: its bundle, and a profile's date and load or a budget's board."""
    if "conditions" not in record:
        return f"budget of {record['bundle']} on {record['board']}"
    conditions = record["conditions"]
    load, date = conditions["load_average"][0], conditions["date"].replace("T", " ")
    return f"{record['bundle']['path']}, {date[:16]} UTC, load {load:.2f}"


def ratio_table(ratios: Iterable[Ratio], letter: str) -> list[str]:
    """Return a table of ratios; its columns name the base A and the other record `letter`."""
    lines = [f"  {'':<22}{'A':>10}{letter:>11}{f'{letter}/A':>9}   95 % interval"]
    for ratio in ratios:
        row = f"  {ratio.name:<22}{show(ratio.base):>10} {show(ratio.other):>10}"
        if ratio.ratio is None:
            lines.append(f"{row}{'-':>9}   {ratio.reason}")
            continue
        row += f"{ratio.ratio:>9.3f}   "
        if ratio.base.exact:
            lines.append(f"{row}no interval")
            continue
        lines.append(f"{row}{_ends(ratio):<18}{_verdict(ratio)}".rstrip())
    return lines


def _ends(ratio: Ratio) -> str:
    return " to ".join("?" if e is None else f"{e:.3f}" for e in (ratio.low, ratio.high))


def _verdict(ratio: Ratio) -> str:
    if ratio.low is not None and ratio.low > 1:
        return "more"
    return "less" if ratio.high is not None and ratio.high < 1 else ""


# CSV ----------------------------------------------------------------------------------------------


def profile_csv(record: Record) -> str:
    """Return a profile's figures as CSV, a row each, in SI units; empty cells were not measured."""
    rows = ([f.name, f.unit, f.value, f.low, f.high, f.reason] for f in figures_of(record).values())
    return _csv(["figure", "unit", "value", "low", "high", "reason"], rows)


def compare_csv(base: str, others: Mapping[str, Iterable[Ratio]]) -> str:
    """Return ratios as CSV, a row each; `others` has the ratios of each file to the file `base`."""
    head = ["figure", "unit", "base", "base_value", "record", "value", "ratio", "low", "high"]
    rows = (
        [r.name, r.base.unit, base, r.base.value, file, r.other.value, r.ratio, r.low, r.high]
        for file, ratios in others.items()
        for r in ratios
    )
    return _csv(head, rows)


def _csv(head: list[str], rows: Iterable[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


# Prometheus ---------------------------------------------------------------------------------------


def profile_prometheus(record: Record, outcomes: Iterable[Outcome] = ()) -> str:
    """Return a profile's figures in Prometheus' text format, without those not measured."""
    figures, conditions = figures_of(record), record["conditions"]
    bundle = {"bundle": PurePath(record["bundle"]["path"]).name}
    page = _Page()
    for step in record["latency"]:
        labels = {**bundle, "step": step["name"]}
        name = "edgefold_step_latency_seconds"
        page.head(name, "summary", "Time of one call of a step.")
        for what, quantile in QUANTILES.items():
            if step[f"{what}_s"] is not None:
                page.line(name, {**labels, "quantile": quantile}, step[f"{what}_s"])
        page.line(f"{name}_sum", labels, step["mean_s"] * step["n"])
        page.line(f"{name}_count", labels, step["n"])
    for figure in figures.values():
        shown = figure.shown
        if shown and shown.metric and figure.value is not None:
            labels = {**bundle, "step": figure.step} if figure.step else bundle
            page.gauge(shown.metric, shown.help, labels, figure.value)
    for outcome in outcomes:
        labels = {**bundle, "gate": outcome.gate}
        help_text = "1 where a gate passed, 0 where it failed or could not be judged."
        page.gauge("edgefold_gate_passed", help_text, labels, float(outcome.verdict == PASSED))
    help_text = "When the profile was made."
    when = datetime.fromisoformat(conditions["date"]).timestamp()
    page.gauge("edgefold_profile_timestamp_seconds", help_text, bundle, when)
    backend = conditions["backend"]
    info = {
        **bundle,
        "hash": record["bundle"]["hash"],
        "precision": record["bundle"]["precision"],
        "backend": f"{backend['name']} {backend['version']}",
        "version": conditions["edgefold"],
        "validity": (record.get("validity") or {"verdict": "unknown"})["verdict"],
    }
    page.gauge("edgefold_profile_info", "What was measured, as labels; always 1.", info, 1)
    return page.text()


def compare_prometheus(base: str, others: Mapping[str, Iterable[Ratio]]) -> str:
    """Return each file's ratios to the file `base`, with intervals, in Prometheus' text format."""
    page = _Page()
    for file, ratios in others.items():
        for ratio in ratios:
            labels = {"base": base, "record": file, "figure": ratio.name}
            for end, help_text, value in (
                ("", "A figure over that of the base.", ratio.ratio),
                ("_low", "Lower end of its 95 % interval.", ratio.low),
                ("_high", "Upper end of its 95 % interval.", ratio.high),
            ):
                if value is not None:
                    page.gauge(f"edgefold_compare{end}_ratio", help_text, labels, value)
    return page.text()


class _Page:
    """Collects metrics by name: a metric's head comes once, and all its lines follow it."""

    def __init__(self) -> None:
        self._metrics: dict[str, list[str]] = {}
        self._current: list[str] = []

    def head(self, name: str, kind: str, help_text: str) -> None:
        start = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
        self._current = self._metrics.setdefault(name, start)

    def line(self, name: str, labels: Mapping[str, str], value: float) -> None:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        self._current.append(f"{name}{{{inside}}} {value!r}")

    def gauge(self, name: str, help_text: str, labels: Mapping[str, str], value: float) -> None:
        self.head(name, "gauge", help_text)
        self.line(name, labels, value)

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._metrics.values() for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
