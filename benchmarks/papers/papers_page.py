"""docs/papers.md: the papers' tables, with what was trained here beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.papers.published_tables import TABLES, Cell, Column, PublishedRow, PublishedTable
from benchmarks.papers.step_times import StepTimes, read_times
from benchmarks.record import IMAGES, RECORDS, Record
from benchmarks.table import Table
from edgefold.runtime.series.durations import duration

SURE = 2.0
"""Standard errors that a score may lie below the paper's and still count as reached."""


def records_of(table: str, folder: Path) -> list[Record]:
    """Return the records of a table's runs, those of the most steps last."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{table}-*.json"))]
    own = [record for record in found if record.get("table") == table]
    return sorted(own, key=lambda record: (record["steps"], record["seed"]))


def is_of(record: Record, row: PublishedRow) -> bool:
    """Return whether a record is of a row."""
    return (record["model"], tuple(record["settings"])) == (row.model, row.settings)


def score_of(records: Sequence[Record], column: Column) -> Cell:
    """Return the mean of a score over seeds and its standard error, or None where it is missing.

    Of one seed the error is that of its batches, or of the problems of the wheel.
    """
    found = [value_at(record["scores"], column.place) for record in records]
    if not found or None in found:
        return None
    pairs = [pair for pair in found if pair is not None]
    means = [column.factor * mean for mean, _ in pairs]
    error = abs(column.factor) * pairs[0][1]
    if len(pairs) > 1:
        error = stdev(means) / math.sqrt(len(means))
    return fmean(means), error


def value_at(scores: Mapping[str, Any], place: str) -> Cell:
    """Return a score of an evaluation and its standard error (NaN unknown); None if missing."""
    if isinstance(scores.get(place), dict) and "percent" in scores[place]:
        percents = scores[place]["percent"]
        return fmean(percents), stdev(percents) / math.sqrt(len(percents))
    kind, _, name = place.rpartition(".")
    found = scores.get(kind, {})
    if name not in found:
        return None
    value, error = found[name], found.get(f"{name}_error", math.nan)
    if name == "log_likelihood":
        error = found.get("standard_error") or math.nan
    elif name == "accuracy" and math.isnan(error):
        n = found.get("n_sequences") or found.get("n_windows") or found.get("n_events")
        error = math.sqrt(value * (1 - value) / n) if n else math.nan
    return value, error


def table_of(name: str, folder: Path) -> Table:
    """Return a table: of each row the papers' cells, ours, and how far ours got."""
    of = TABLES[name]
    records = records_of(name, folder)
    note = f"In {of.unit}; {of.source}. ± as the papers print it"
    if not records:
        shown = [[row.title, *map(_shown, row.cells)] for row in of.rows]
        return Table(["", *(column.title for column in of.columns)], shown, f"{note}.")
    header = ["", *(f"{column.title}, paper" for column in of.columns)]
    header += [*(f"{column.title}, here" for column in of.columns), "steps here", "took", ""]
    rows = []
    for row in of.rows:
        own = [record for record in records if is_of(record, row)]
        own = [record for record in own if record["steps"] == own[-1]["steps"]]
        ours = [score_of(own, column) for column in of.columns]
        cells = [
            row.title,
            *map(_shown, row.cells),
            *(_shown(cell) if own else "" for cell in ours),
        ]
        rows.append([*cells, _steps(own), _duration(own), _verdict(of, row, ours, own)])
    note += ", and here the standard error: of the seeds, or of one seed over its evaluation."
    return Table(header, rows, note + _machines(records))


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    mean, error = cell
    return f"{mean:.2f}" + ("" if math.isnan(error) else f" ± {error:.2f}")


def _steps(own: Sequence[Record]) -> str:
    if not own:
        return ""
    seeds = f", {len(own)} seeds" if len(own) > 1 else ""
    return f"{own[0]['steps']:,}{seeds}"


def _duration(own: Sequence[Record]) -> str:
    """Return how long a training took, and whether on a GPU; the mean over seeds."""
    if not own:
        return ""
    took = duration(fmean(run["training"]["duration_s"] for run in own))
    return f"{took}, GPU" if gpu_of(own[0]) else took


def gpu_of(record: Record) -> str:
    """Return the name of the GPU that a run was trained on; "" if none."""
    device: str = record["training"]["machine"].partition(", torch")[0]
    return device if device.startswith("NVIDIA") else ""


def _machines(records: Sequence[Record]) -> str:
    """Return, in a sentence, what the trainings ran on; "" without records."""
    cpus = (record["conditions"] for record in records if not gpu_of(record))
    on = {f"{of['cpu_model']}, {of['threads']} thread" for of in cpus}
    on |= {gpu for record in records if (gpu := gpu_of(record))}
    if not on:
        return ""
    return (
        f" Trained on: {'; '.join(sorted(on))}. What it took is time by the clock, with other work "
        "on the machine and with pauses; the times below are those of steps alone."
    )


def _verdict(
    of: PublishedTable, row: PublishedRow, ours: Sequence[Cell], own: Sequence[Record]
) -> str:
    if not row.model:
        return "no such model here"
    if not own:
        return "not trained"
    missing, compared = [], False
    for column, paper, here in zip(of.columns, row.cells, ours, strict=True):
        if paper is None or here is None:
            continue
        compared = True
        apart = paper[0] - here[0] if column.low_is_good else here[0] - paper[0]
        errors = [0.0 if math.isnan(error) else error for error in (paper[1], here[1])]
        if apart < -SURE * math.hypot(*errors):
            missing.append(f"{column.title} {abs(apart):.2f} short")
    return ", ".join(missing) or ("reached" if compared else "nothing to compare")


def hours(name: str, times: StepTimes) -> str:
    """Return, as text, how long the papers' training of each row takes on this machine."""
    of = TABLES[name]
    rows = []
    for row in of.rows:
        step_s = times.step_s.get(row.slug)
        if step_s is not None:
            rows.append([row.title, f"{1e3 * step_s:.1f} ms", duration(step_s * of.steps)])
    header = ["", "a step", f"{of.steps:,} steps"]
    return Table(header, rows, f"{times.machine}, {times.threads} thread(s).").markdown()


def page(folder: Path = RECORDS / "papers") -> str:
    """Return the generated part of docs/papers.md."""
    parts = []
    for name, of in TABLES.items():
        parts += [f"### {of.title}", f"`python -m benchmarks.tables_of_papers {name}`"]
        parts += [_state(name, of, folder), table_of(name, folder).markdown()]
        times = read_times(name, folder)
        if times is not None:
            parts.append(_hours_line(of, times))
        picture = IMAGES / f"papers-{name}.png"
        if picture.exists():
            parts.append(f"![training curves of {of.title}](img/{picture.name})")
    return "\n\n".join(parts)


def _state(name: str, of: PublishedTable, folder: Path) -> str:
    length = "The papers state no number of steps: give `--steps`."
    if of.steps:
        length = f"The papers train for {of.steps:,} steps."
    if records_of(name, folder):
        return length
    if of.data:
        return (
            f"**Nothing was scored: the data is not in the repository.** It needs {of.data}, given "
            f"with `--data`. {length}"
        )
    return f"**Nothing was trained yet.** {length}"


def _hours_line(of: PublishedTable, times: StepTimes) -> str:
    lasting = {row.title: times.step_s.get(row.slug) for row in of.rows}
    told = ", ".join(
        f"{title} {duration(step_s * of.steps)}" for title, step_s in lasting.items() if step_s
    )
    authors = f" The authors' training: {of.hours}." if of.hours else ""
    return (
        f"{of.steps:,} steps with {times.threads} thread of {times.machine} (measured over some "
        f"steps, not compiled): {told}.{authors}"
    )
