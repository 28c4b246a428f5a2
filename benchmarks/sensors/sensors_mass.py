"""The mass that our model, and its experts alone, give to the step in which a value is told.

A density of values that are steps of a quantum has no bound: whoever stacks it on the steps wins.
The mass of the step is at most 1, so peers are set beside us by it. A bundle does not tell it;
the same model in PyTorch, from the checkpoint that the bundle was exported from, does:

    rows x of all series side by side ──> distribution before each value ──> F(v + q/2) - F(v - q/2)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.record import progress
from benchmarks.sensors.sensors_peers import LEAST_MASS
from benchmarks.sensors.sensors_run import SensorFile, rows_taken
from benchmarks.sensors.sensors_scores import quantum_of
from edgefold.runtime.arrays import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from edgefold.train.contract import State
    from edgefold.train.models.sensors.model import Sensors

EVERY = 500
"""Slots between two lines on the progress."""


def log_masses(checkpoint: Path, files: Sequence[SensorFile]) -> dict[str, FloatArray]:
    """Return by series with a quantum the log mass of each row that the feed takes, (n, 2).

    The first is that of the experts' mixture, the second that of the model.
    """
    import torch

    from edgefold.train.checkpoints import load_model

    model, _ = load_model(checkpoint)
    longest = model.config.longest
    taken = {series.name: rows_taken(series, longest) for series in files}
    quanta = {name: quantum_of(rows[rows[:, 1] > 0, 0]) for name, rows in taken.items()}
    names = [name for name, quantum in quanta.items() if quantum]
    if not names:
        return {}
    n = max(len(taken[name]) for name in names)
    rows = np.zeros((n, len(names), 4), np.float32)  # slots that a shorter series lacks are missing
    for at, name in enumerate(names):
        rows[: len(taken[name]), at] = taken[name]
    half = torch.tensor([0.5 * quanta[name] for name in names], dtype=torch.float32)[:, None]
    with torch.no_grad():
        found = _follow(model, torch.from_numpy(rows), half)  # type: ignore[arg-type]
    return {
        name: np.log(np.maximum(found[: len(taken[name]), at], LEAST_MASS))[taken[name][:, 1] > 0]
        for at, name in enumerate(names)
    }


def _follow(model: Sensors, rows: Tensor, half: Tensor) -> FloatArray:
    """Masses of the values of rows (T, B, 4) and half a quantum around them, (T, B, 2)."""
    from edgefold.train.contract import commit

    state = model.initial_state(rows.shape[1])
    found = np.zeros((*rows.shape[:2], 2))
    for at, x in enumerate(rows):
        found[at] = mass_of(model, state, x, half).numpy()
        written, _ = model.step(state, x)
        state = commit(model.rings, state, written, in_place=True)
        if at % EVERY == 0:
            progress(f"masses: {at:,} of {len(rows):,} slots")
    return found


def mass_of(model: Sensors, state: State, x: Tensor, half: Tensor) -> Tensor:
    """The mass within half a quantum (B, 1) of the values of rows x (B, 4), (B, 2).

    The first is that of the experts' mixture, the second that of the model.
    """
    import torch

    from edgefold.train.models.sensors.expert_weights import Portfolio
    from edgefold.train.models.sensors.network import Normals

    row = model.floor.score(state, x)
    ends = torch.cat([x[:, :1] - half, x[:, :1] + half], 1)
    below, above = (tail[:, 0] for tail in row.mixture.first().tails(ends[:, None]))  # (B, 2)
    portfolio = Portfolio.of(state["portfolio"], Normals.unpacked(state["normals"]))
    tails = ((below, above), portfolio.tails(below, above))
    return torch.stack([_between(*of) for of in tails], 1)


def _between(below: Tensor, above: Tensor) -> Tensor:
    """The mass between two values, (B,), from those below and above them, (B, 2)."""
    import torch

    lower, upper = below[:, 1] - below[:, 0], above[:, 0] - above[:, 1]
    return torch.where(below.mean(1) < above.mean(1), lower, upper)
