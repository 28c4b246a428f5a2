"""Judge whether a profile fails, by `--fail-if` and by `--baseline` with its tolerance.

    --fail-if 'update.p99 > 2ms'   ──> Gate ─┐
    --fail-if 'needed > 60MB'      ──> Gate ─┼─> Outcome: passed, FAILED or UNSURE
    --baseline before.json         ──> Ratio ┘

Gates are read and their names checked before anything is measured. A gate over a figure that was
not measured, or that was measured while the machine was disturbed, is UNSURE: it does not pass.
"""

from __future__ import annotations

import argparse
import math
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import UNITS as SIZES
from edgefold.cli.records.comparison import Ratio
from edgefold.cli.records.figures import (
    BYTES,
    DISTURBED,
    JOULES,
    OF_A_BUDGET,
    OF_A_STEP,
    OF_THE_PROCESS,
    PREDICTED,
    SECONDS,
    SHARE,
    YEARS,
    Record,
    RecordFigure,
    disturbance,
    figures_of,
    unit_of,
)
from edgefold.runtime.record_fields import one_of, unit

PASSED, FAILED, UNSURE = "passed", "FAILED", "UNSURE"
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
UNITS: dict[str, dict[str, float]] = {
    SECONDS: {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9},
    BYTES: {name: float(factor) for name, factor in SIZES.items()},
    JOULES: {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "µJ": 1e-6},
    SHARE: {"%": 0.01},
    YEARS: {"": 1.0, "years": 1.0},
}
NAMES = (
    f"STEP.{{{','.join(OF_A_STEP)}}} with STEP one of update, update_bare, condition, refresh, "
    f"query, query_wide, row (of a filter: step, step_bare); {', '.join(OF_THE_PROCESS)}; of "
    f"a budget STEP.{{{','.join(PREDICTED)}}}, {', '.join(OF_A_BUDGET)}"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """Describes a condition on one figure, `name comparison bound`; a profile fails if it is true.

    Attributes:
        text: The gate as the user wrote it.
        name: Name of the figure, such as update.p99.
        comparison: One of >, >=, < and <=.
        bound: Number that the figure is compared with, in the unit of the figure.
    """

    text: str
    name: str
    comparison: str
    bound: float


@dataclass(frozen=True)
class GateRecord:
    """Records the verdict on one gate, or on one figure that is compared with the baseline."""

    gate: Annotated[str, "What was asked."]
    figure: Annotated[str, "Name of the figure, such as update.p99."]
    unit: Annotated[str, one_of(*UNITS), "Unit of the value."]
    value: Annotated[
        float | None, "What was measured; null if nothing was.", unit("as `unit` says")
    ]
    verdict: Annotated[str, one_of(PASSED, FAILED, UNSURE), "What became of it."]
    reason: Annotated[str, "Why it is UNSURE; empty otherwise."]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds the verdict on one gate, or on one figure that is compared with the baseline.

    Attributes:
        gate: The condition, in words.
        figure: The figure as it was measured.
        verdict: PASSED, FAILED or UNSURE.
        reason: Reason why the verdict is UNSURE; empty otherwise.
        ratio: Ratio of the figure to the baseline's; None for a gate.
    """

    gate: str
    figure: RecordFigure
    verdict: str
    reason: str = ""
    ratio: Ratio | None = None

    def record(self) -> GateRecord:
        """Return the outcome as an entry of the profile's record."""
        figure = self.figure
        return GateRecord(
            self.gate, figure.name, figure.unit, figure.value, self.verdict, self.reason
        )


def parse_gate(text: str) -> Gate:
    """Read a gate such as 'update.p99 > 2ms', for argparse.

    Raises:
        argparse.ArgumentTypeError: The text is not a gate, or its name or unit does not exist.
    """
    match = re.fullmatch(r"\s*([\w.]+)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(\S*)\s*", text)
    if not match:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME > NUMBER UNIT, such as 'update.p99 > 2ms' or 'needed > 60MB'"
        )
    name, comparison, number, unit = match.groups()
    kind = unit_of(name)
    if kind is None:
        raise argparse.ArgumentTypeError(f"{name!r} is not a figure; there are {NAMES}")
    units = UNITS[kind]
    if unit not in units and (unit or float(number)):  # 0 needs no unit
        raise argparse.ArgumentTypeError(
            f"{text!r}: {name} takes one of {', '.join(filter(None, units))}"
        )
    bound = float(number) * units.get(unit, 1.0)
    if not math.isfinite(bound):
        raise argparse.ArgumentTypeError(f"{text!r}: {number} is too large")
    return Gate(text, name, comparison, bound)


def judge_gates(gates: Iterable[Gate], record: Record) -> list[Outcome]:
    """Return the outcome of each gate for the record of a profile."""
    figures, disturbed = figures_of(record), disturbance(record, DISTURBED)
    return [_judge(gate, figures[gate.name], disturbed) for gate in gates]


def _judge(gate: Gate, figure: RecordFigure, disturbed: str) -> Outcome:
    if figure.value is None:
        return Outcome(gate.text, figure, UNSURE, f"not measured: {figure.reason}")
    if disturbed and figure.unit != BYTES:
        return Outcome(gate.text, figure, UNSURE, disturbed)
    holds = COMPARISONS[gate.comparison](figure.value, gate.bound)
    return Outcome(gate.text, figure, FAILED if holds else PASSED)


def judge_ratios(ratios: Iterable[Ratio], tolerance: float, unsettled: str = "") -> list[Outcome]:
    """Compare figures with a baseline's: those above it by more than the tolerance are FAILED.

    A figure fails only where its whole interval lies above the tolerance.

    Args:
        ratios: Ratios of the figures to those of the baseline.
        tolerance: Largest increase, as a share: 0.1 allows 10 % more.
        unsettled: Reason why times and energies cannot be compared; empty if they can.
    """
    return [_judge_ratio(ratio, tolerance, unsettled) for ratio in ratios]


def _judge_ratio(ratio: Ratio, tolerance: float, unsettled: str) -> Outcome:
    text = f"{ratio.name} > baseline + {tolerance * 100:.3g} %"
    if ratio.ratio is None:
        return Outcome(text, ratio.other, UNSURE, ratio.reason, ratio)
    if unsettled and ratio.base.unit != BYTES:
        return Outcome(text, ratio.other, UNSURE, unsettled, ratio)
    least = ratio.ratio if ratio.base.exact else ratio.low
    failed = least is not None and least > 1 + tolerance
    return Outcome(text, ratio.other, FAILED if failed else PASSED, ratio=ratio)


def explain_unknown(gates: Iterable[Gate], names: Iterable[str]) -> str | None:
    """Return an error text on the first gate whose figure is not among `names`; None if all are."""
    figures = list(names)
    for gate in gates:
        if gate.name not in figures:
            return (
                f"--fail-if {gate.text!r}: this bundle has no {gate.name}; it has {_short(figures)}"
            )
    return None


def _short(names: Iterable[str]) -> str:
    """Join names by step into a text: update.p50 and update.p99 become "update.{p50,p99}"."""
    entries: dict[str, list[str]] = {}
    for name in names:
        step, dot, what = name.rpartition(".")
        entries.setdefault(step if dot else name, []).extend([what] if dot else [])
    return ", ".join(f"{s}.{{{','.join(w)}}}" if w else s for s, w in entries.items())


def exit_code(outcomes: Iterable[Outcome]) -> ExitCode:
    """Return the exit code for the worst outcome: FAILED before UNSURE before passed."""
    verdicts = [outcome.verdict for outcome in outcomes]
    if FAILED in verdicts:
        return ExitCode.WRONG_RESULT
    return ExitCode.UNSURE if UNSURE in verdicts else ExitCode.DONE
