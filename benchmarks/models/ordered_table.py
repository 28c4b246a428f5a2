"""The tables of `benchmarks.models.ordered_quality` and `benchmarks.models.endless_events`."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_bytes, format_time


def ordered_quality(data: Record) -> list[Table]:
    """A table for each task and source."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for name, own in data["runs"].items():
        groups.setdefault((own["task"], own["source"]), {})[name] = own
    return [_group(*key, runs) for key, runs in groups.items()]


def _group(task: str, source: str, runs: dict[str, Any]) -> Table:
    is_events = "log_likelihood" in next(iter(runs.values()))["scores"]
    columns = ["nats an event", "marks right"] if is_events else ["right", "nats"]
    header = [f"{task} {source}".strip(), "parameters", "steps", *columns]
    rows = []
    for name, own in runs.items():
        cost, step = own["cost"], own["cost"]["step"]
        rows.append(
            [
                name,
                f"{own['n_parameters']:,}",
                f"{own['training']['steps_done']:,}",
                *_scores(own["scores"], is_events),
                format_time(step["median_s"]),
                format_time(step["p90_s"]),
                format_bytes(cost["state_bytes"]),
            ]
        )
    beside = next(iter(runs.values()))["beside"]
    rows += [
        [name, "", "", *_scores(scores, is_events), "", "", ""] for name, scores in beside.items()
    ]
    note = (
        "Scores are of held-out streams; ± is the standard error. A step is `Stream.step` on one "
        "thread, with Python's share and what runs between two steps: its median and its 90 % "
        "quantile."
    )
    return Table([*header, "a step", "of ten the slowest", "state"], rows, note)


def _scores(scores: dict[str, Any], is_events: bool) -> list[str]:
    if is_events:
        error = scores["standard_error"]  # of one sequence there is none
        told = f"{scores['log_likelihood']:.3f}" + (f" ± {error:.3f}" if error else "")
        return [told, f"{100 * scores['accuracy']:.1f} %"]
    error = scores.get("accuracy_error")
    right = f"{100 * scores['accuracy']:.1f}" + (f" ± {100 * error:.1f} %" if error else " %")
    return [right, f"{scores['nll']:.3f}" if "nll" in scores else ""]


def endless_events(data: Record) -> list[Table]:
    """A row for each model and number of events."""
    rows = []
    for name, own in data["runs"].items():
        for at in own["at"]:
            rows.append(
                [
                    name,
                    f"{at['n_events']:,}",
                    format_time(at["step"]["median_s"]),
                    format_bytes(at["needed_bytes"]),
                    f"{at['log_likelihood']:.3f}",
                    f"{at['exact']:.3f}",
                    f"{at['log_likelihood'] - at['exact']:+.4f}",
                ]
            )
    header = ["model", "events", "a step", "memory needed", "nats an event", "exact", "difference"]
    note = (
        "One simulated stream without a reset. The log-likelihoods are means over the last "
        f"{data['n_scored']:,} events, or all so far; memory is that of the process."
    )
    return [Table(header, rows, note)]
