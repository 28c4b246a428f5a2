"""How our presets depart from the published models, and the table of what that brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import fmean
from typing import Any, Final

from benchmarks.record import Record
from benchmarks.table import KERNELS, Table

ALL = "all"
"""Name of the variant with every departure: the preset `small`."""
PUBLISHED = "published"
"""Name of the variant without any departure."""
MEANINGS: Final[Mapping[str, str]] = {
    "residual": "what a layer adds to its output: its input, or its input after the layer's norm",
    "embedding": "how points become rows: four layers with ReLU (mlp) or ELU, or Fourier features",
    "latents": "first values of latents: normal numbers, or embedded points spread over the inputs",
    "query_gain": "factor of the first query and key matrices of attention to points",
    "reads": "rows that keys and values are made of: as they are, or after a norm",
    "head_norm": "whether a norm stands before the predictor",
    "first_relu": "whether a ReLU stands before the self-attention of the first path",
    "points_per_unit": "points of the grid for a unit of x",
    "least": "number added to the diagonal of a joint head's Cholesky factor",
    "trained_blocks": "targets that training predicts together: all, a drawn number, or a block",
    "bottleneck": "layers between joint targets: LBANP's blocks (code) or TNP-ND's (equations)",
    "reads_context": "when latents read the context: in each block, or once before all",
    "given_noise": "noise on given targets in training where deviations are bounded",
    "permute": "whether a sample draws the targets in a random order",
    "scores_by": "what scores are divided by: the square root of the width, or of a head's",
    "start": "distribution from which weights start",
    "stages": "what bootstraps resample: points and then residuals (2), or points only (1)",
    "counts": "how often a bootstrap holds a point: as N drawn points say, or a Poisson number",
    "nodes": "where nodes of the grid lie: fitted between the margins, or at a fixed distance",
    "margin": "units of x by which the grid goes beyond the inputs",
    "density": "what the UNet reads of the density: itself, or the logarithm of 1 + density",
    "length_scales": "length scales of a SetConv: one of each channel, or one of all",
    "unit_bumps": "whether the bumps of a query are divided by their sum",
    "least_std": "least standard deviation of a prediction",
    "order": "how leaves of the tree are sorted: by one input, or by all in turn",
    "decisions": "decisions of a search that are trained: all but the last, or all",
    "entropy": "entropy that is a bonus: a mean over heads and decisions, or a sum of the policy's",
    "tree_gradients": "whether the gradient of a node goes on to its children",
}

UNSCORED = "given_noise", "permute"
"""Departures that change no score of gp: deviations are not bounded there, and samples are not
scored."""


def departures_of(name: str) -> dict[str, tuple[Any, Any]]:
    """Return, by setting, the published value and ours, where the preset `small` departs.

    Whole numbers are sizes and no departures.
    """
    from edgefold.train.models.registry import model_class

    presets = model_class(name).presets
    if not {"paper", "small"} <= set(presets):
        return {}
    paper, small = presets["paper"], presets["small"]
    pairs = {
        field.name: (getattr(paper, field.name), getattr(small, field.name))
        for field in fields(paper)
        if field.type != "int" and hasattr(small, field.name)
    }
    return {setting: pair for setting, pair in pairs.items() if pair[0] != pair[1]}


def departures_table() -> Table:
    """Return the settings by which `small` departs from `paper`, with the models that have them."""
    from edgefold.train.models.registry import learners

    found: dict[tuple[str, str, str], list[str]] = {}
    for name in learners():
        for setting, (published, ours) in departures_of(name).items():
            key = setting, word(published), word(ours)
            found.setdefault(key, []).append(f"`{name}`")
    rows = [
        [f"`{setting}`", f"`{published}`", f"`{ours}`", MEANINGS[setting], ", ".join(models)]
        for (setting, published, ours), models in found.items()
    ]
    header = ["setting", "paper", "small", "meaning", "models"]
    return Table(header, sorted(rows), of_words=True)


def word(value: Any) -> str:
    """Return a value as `--set NAME=VALUE` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def effects(data: Record) -> list[Table]:
    """Return a table of the differences of scores that each departure makes."""
    runs: dict[tuple[str, str], dict[int, Record]] = {}
    for run in data["runs"]:
        runs.setdefault((run["model"], run["variant"]), {})[run["seed"]] = run["scores"]
    kinds = list(KERNELS)
    rows = []
    for (model, variant), seeds in runs.items():
        base = runs.get((model, PUBLISHED), {})
        cells = []
        for kind in kinds:
            own = {seed: scores[kind]["log_likelihood"] for seed, scores in seeds.items()}
            cells.append(f"{fmean(own.values()):.3f}")
            gains = [own[seed] - base[seed][kind]["log_likelihood"] for seed in own if seed in base]
            cells.append("" if variant == PUBLISHED else _gains(gains))
        rows.append([f"`{model}`", variant if "=" not in variant else f"`{variant}`", *cells])
    titles = [head for kind in kinds for head in (KERNELS[kind], "gain of each seed")]
    note = (
        f"Log-likelihood of a target in nats, on the same {data['n_batches']:,} batches for all, "
        f"mean of the seeds; {data['steps']:,} steps of the papers' recipe, at the size of the "
        "preset `small`. A gain is the difference from the published form of the same seed."
    )
    return [Table(["model", "departure", *titles], rows, note)]


def _gains(gains: Sequence[float]) -> str:
    return ", ".join(f"{gain:+.3f}" for gain in gains)
