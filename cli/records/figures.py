"""Read the figures of a record by name, for gates, comparisons and tables of numbers.

    update.p99     a quantile of a step's time      update.late     share of late calls
    update.energy  joules of a call above idle      needed          memory that cannot be taken back

A record is what `edgefold profile --json` or `edgefold budget --json` wrote.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edgefold.cli.schemas.schema import shown_fields
from edgefold.devices.profile.record import MeasuredBundle, MeasuredMemory
from edgefold.runtime.errors import DataError
from edgefold.runtime.record_fields import Shown

Record = dict[str, Any]

DISTURBED, UNSTEADY = "disturbed", "unsteady"  # verdicts of `edgefold.devices.machine.validity`
SECONDS, BYTES, JOULES, SHARE, YEARS = "s", "B", "J", "share", "years"
TIMES = ("p50", "p90", "p99", "p999", "max", "mean")
LATE = Shown("late", "edgefold_step_late_ratio", "Share of calls longer than 1 / --rate.")
ENERGY = Shown("energy", "edgefold_step_energy_joules", "Energy of a call above the idle power.")
OF_A_STEP = {**dict.fromkeys(TIMES, SECONDS), LATE.name: SHARE, ENERGY.name: JOULES}
OF_THE_PROCESS = {
    shown.name: (path, shown)
    for path, shown in sorted(
        (*shown_fields(MeasuredMemory, ("memory",)), *shown_fields(MeasuredBundle, ("bundle",))),
        key=lambda entry: not entry[1].is_limit,
    )
}
"""Figures of the whole process by name: their keys in a profile, and how they are shown."""
OF_A_BUDGET = {"flash_years": YEARS, "flash_a_day": BYTES}
"""Units of the figures on flash, which a budget has with --flash."""
PREDICTED = {"at_least": SECONDS, "at_most": SECONDS}
"""Units of the ends of a step's predicted time, which a budget has instead of quantiles."""
WITH_ENERGY = ("update", "step", "query")
COMPARED = ("p50", "p99", "energy", "needed", "to_run_well", "at_least", "at_most")
"""Last parts of the names of figures that a comparison shows: with an interval, or exact."""


@dataclass(frozen=True, slots=True)
class RecordFigure:
    """Holds one number of a record, with its unit and its interval.

    Attributes:
        name: Name of the figure, such as update.p99.
        unit: One of SECONDS, BYTES, JOULES, SHARE and YEARS.
        value: The number; None where it was not measured, and `reason` then says why.
        low, high: Ends of the 95 % interval; None where an end is not known.
        exact: Whether the figure is counted or predicted, not sampled, so that it has no interval.
        shown: Metric of the figure in Prometheus' text format; None if it has none.
        step: Name of the step that the figure belongs to; "" for the whole process.
    """

    name: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    exact: bool = False
    shown: Shown | None = None
    step: str = ""


def unit_of(name: str) -> str | None:
    """Return the unit of the figure of a name; None for a name that no record has."""
    step, dot, what = name.rpartition(".")
    if dot and step:
        return OF_A_STEP.get(what) or PREDICTED.get(what)
    if name in OF_A_BUDGET:
        return OF_A_BUDGET[name]
    return _unit_at(OF_THE_PROCESS[name][0]) if name in OF_THE_PROCESS else None


def names_of(graphs: Collection[str]) -> list[str]:
    """Return the names of a profile's figures; `graphs` are a bundle's steps, such as update."""
    if "step" in graphs:
        steps = ["step", "step_bare"]
    else:
        optional = [step for step in ("condition", "refresh") if step in graphs]
        steps = ["update", "update_bare", *optional, "query", "query_wide", "row"]
    names = [f"{step}.{what}" for step in steps for what in (*TIMES, "late")]
    energies = [f"{step}.energy" for step in steps if step in WITH_ENERGY]
    return [*names, *energies, *OF_THE_PROCESS]


def read_record(path: Path) -> Record:
    """Read the record of a profile or of a budget from a JSON file.

    Raises:
        OSError: The file cannot be read.
        DataError: The file is not such a record, or a record of another version.
    """
    try:
        record = json.loads(path.read_bytes())
        kind = kind_of(record)
        if kind is not None:
            list(figures_of(record))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DataError(
            f"{path} is not a record that this version of `edgefold profile --json` or `edgefold "
            f"budget --json` wrote ({type(error).__name__}: {error}); write it again."
        ) from error
    if kind is None:
        raise DataError(
            f"{path} is neither a profile nor a budget of one board; compare what `edgefold "
            "profile --json` or `edgefold budget --json` wrote."
        )
    return dict(record)


def kind_of(record: Record) -> str | None:
    """Return the kind of a record: "profile", "budget", or None for others."""
    if "latency" in record and "conditions" in record:
        return "profile"
    return "budget" if "footprint" in record and "demand" in record else None


def figures_of(record: Record) -> dict[str, RecordFigure]:
    """Return the figures of a profile or of a budget by their names.

    Raises:
        KeyError, TypeError: The record lacks a field.
    """
    figures = _of_budget(record) if kind_of(record) == "budget" else _of_profile(record)
    return {figure.name: figure for figure in figures}


def disturbance(record: Record, *verdicts: str) -> str:
    """Return why a profile's times and energies cannot be relied on; empty if they can.

    Args:
        record: Record of a profile; one without a verdict reports no disturbance.
        verdicts: Verdicts that count as a disturbance: DISTURBED, or UNSTEADY too, where clocks
            moved by themselves, so that the figures belong to no one clock.
    """
    validity = record.get("validity") or {"verdict": None}
    if validity["verdict"] not in verdicts:
        return ""
    return f"{validity['verdict']}: {'; '.join(validity['reasons'])}"


def _of_profile(record: Record) -> Iterator[RecordFigure]:
    for step in record["latency"]:
        name, n = step["name"], step["n"]
        for what in TIMES:
            low, high = step.get(f"{what}_interval_s") or (None, None)
            value = step[f"{what}_s"]
            reason = "" if value is not None else f"{n} calls are too few to tell it"
            yield RecordFigure(f"{name}.{what}", SECONDS, value, low, high, reason)
        share = step["n_late"] / n
        yield RecordFigure(f"{name}.{LATE.name}", SHARE, share, shown=LATE, step=name)
    energy = record["energy"]
    without = "no power sensor answers" if energy["sensor"] is None else str(energy["reason"])
    for name in energy["steps"]:
        ends, reason = (None, None, None), without
        if figure := energy[name]:
            joules, half = figure["energy_j"], figure["interval_95_j"]
            ends, reason = (joules, joules - half, joules + half), ""
        yield RecordFigure(
            f"{name}.{ENERGY.name}", JOULES, *ends, reason=reason, shown=ENERGY, step=name
        )
    yield from map(partial(figure_of_the_process, record), OF_THE_PROCESS)


def figure_of_the_process(record: Record, name: str) -> RecordFigure:
    """Return one figure of the whole process from a profile's record.

    `name` is one of `OF_THE_PROCESS`. The record has the figure as a number, or as an object with
    a number or a range, or with the reason why it has none.
    """
    path, shown = OF_THE_PROCESS[name]
    unit = _unit_at(path)
    field: Any = record
    for key in path:
        field = field[key]
    low, number, reason = None, field, ""
    if isinstance(field, dict):
        low, number = field.get("range_bytes") or (None, field.get("memory_bytes"))
        reason = str(field["reason"] or "") if number is None else ""
    high = None if low is None else number
    return RecordFigure(name, unit, number, low, high, reason, exact=unit == BYTES, shown=shown)


def _unit_at(path: tuple[str, ...]) -> str:
    """Return the unit of the figure under a record's keys `path`: seconds for _s, else bytes."""
    return SECONDS if path[-1].endswith("_s") else BYTES


def _of_budget(record: Record) -> Iterator[RecordFigure]:
    yield RecordFigure("needed", BYTES, record["needed_bytes"], exact=True)
    yield RecordFigure("to_run_well", BYTES, record["to_run_well_bytes"], exact=True)
    for name, taken in {**record["steps"], "arrival": record["arrival"]}.items():
        ends = {"at_least": taken["low_s"] or None, "at_most": taken["high_s"]}
        for end, value in ends.items():
            reason = taken["reason"] or "the board's profile does not tell it"
            yield RecordFigure(f"{name}.{end}", SECONDS, value, reason=reason, exact=True)
    for setting in (record.get("flash") or {"settings": ()})["settings"]:
        if setting["is_asked"]:
            yield RecordFigure("flash_years", YEARS, setting["flash_years"], exact=True)
            yield RecordFigure("flash_a_day", BYTES, setting["device_bytes"], exact=True)
