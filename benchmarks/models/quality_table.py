"""The table of `quality`: our log-likelihoods, and the papers' columns beside them."""

from __future__ import annotations

from typing import Final

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.runtime.series.durations import duration

COLUMNS: Final = {
    "gp": {"rbf": "RBF", "matern52": "Matern 5/2"},
    "images": {
        "celeba32": "CelebA 32",
        "celeba64": "CelebA 64",
        "celeba128": "CelebA 128",
        "seen": "EMNIST, seen",
        "unseen": "EMNIST, unseen",
    },
}
"""The papers' columns by task: names of our scores where we have the same, and titles."""


def papers_task(task: str) -> str:
    """The task of the papers that one of ours is set beside."""
    return "gp" if task == "gp" else "images"


def quality(data: Record) -> list[Table]:
    """A row for each model and preset, best first; scores are means over seeds."""
    runs: dict[tuple[str, str], list[Record]] = {}
    for run in data["runs"]:
        runs.setdefault((run["model"], run["preset"]), []).append(run)
    if not runs:
        return []
    kinds = list(dict.fromkeys(kind for run in data["runs"] for kind in run["scores"]))
    columns = COLUMNS[papers_task(data["task"])]
    ranked = sorted(runs, key=lambda key: -sum(_mean(runs[key], kind)[0] for kind in kinds))
    rows = []
    for key in ranked:
        ours = [_cell(*_mean(runs[key], kind)) for kind in kinds]
        papers = data["published"].get(key[0], [None] * len(columns))
        told = ["" if value is None else f"{value:.2f}" for value in papers]
        first = runs[key][0]
        lasted = sum(run["training"]["duration_s"] for run in runs[key]) / len(runs[key])
        row = [f"{key[0]}, {key[1]}", f"{first['n_parameters']:,}", duration(lasted)]
        rows.append([*row, *ours, *told])
    header = [f"{data['task']}, log-likelihood", "parameters", "training"]
    header += [columns.get(kind, kind) for kind in kinds]
    header += [f"papers: {title}" for title in columns.values()]
    n_seeds = len(runs[ranked[0]])
    note = (
        f"Nats a target, plus or minus a standard error; {data['budget']['steps']:,} steps of 16 "
        f"tasks, the same schedule for all, {n_seeds} seed{'s'[: n_seeds > 1]}. The papers' "
        "columns are theirs, at their sizes, after 100,000 steps or 200 epochs."
    )
    return [Table(header, rows, note)]


def _mean(runs: list[Record], kind: str) -> tuple[float, float]:
    """Mean score of seeds, and its standard error: of the seeds, or of the batches of one seed."""
    scores = [run["scores"][kind] for run in runs]
    values = [score["log_likelihood"] for score in scores]
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, scores[0]["standard_error"]
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, (variance / len(values)) ** 0.5


def _cell(mean: float, error: float) -> str:
    return f"{mean:.3f} ± {error:.3f}"
