"""What a narrower precision costs on the task: the change in log-likelihood, pair by pair.

Both bundles of one model, float32 and narrow, go through the same trials with the runtime itself.
The difference of one trial scatters far less than the trials do, so that some hundred of them tell
thousandths of a nat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefold.export.precision.calibrate import on_every_stream
from edgefold.export.precision.task_streams import Episode
from edgefold.runtime import Stream

FloatArray = NDArray[np.float64]

FEWEST, MOST = 200, 4000
"""Trials of one kind."""
SETTLED = 0.0025
"""Standard error, nats, at which no more trials are drawn."""


@dataclass(frozen=True, slots=True)
class LikelihoodChange:
    """Mean change of the log-likelihood of a target from float32, nats; negative is a loss."""

    mean: float
    standard_error: float
    n: int


def likelihood_change(reference: Path, narrow: Path, trials: Iterable[Episode]) -> LikelihoodChange:
    """Follow trials with both bundles until the standard error is small, or they end.

    A trial whose points are learned as they come counts each row; any other counts once.
    """
    differences: list[float] = []
    with ExitStack() as stack:
        streams = [
            stack.enter_context(Stream.open(path, backend="onnxruntime"))
            for path in (reference, narrow)
        ]
        for trial in trials:
            exact, found = (log_likelihoods(stream, trial) for stream in streams)
            difference = found - exact
            differences += difference.tolist() if trial.learns else [float(difference.mean())]
            if len(differences) >= MOST or (
                len(differences) >= FEWEST and _error(differences) < SETTLED
            ):
                break
    return LikelihoodChange(float(np.mean(differences)), _error(differences), len(differences))


def _error(differences: list[float]) -> float:
    if len(differences) < 2:
        return math.inf
    return float(np.std(differences, ddof=1)) / math.sqrt(len(differences))


def log_likelihoods(stream: Stream, trial: Episode) -> FloatArray:
    """Log density, nats, of each predicted point of a trial, summed over outputs."""
    n, width = trial.n_context, 1 if trial.learns else stream.manifest.targets
    stream.reset()
    if n:
        stream.condition(*(on_every_stream(a[:n], stream) for a in (trial.x, trial.y)))
    found: list[FloatArray] = []
    for start in range(n, len(trial.x), width):
        rows = slice(start, min(start + width, len(trial.x)))
        x, y = trial.x[rows], trial.y[rows]
        prediction = stream.query(on_every_stream(x, stream))
        mean, std = (a.reshape(-1, *y.shape)[0] for a in (prediction.mean, prediction.std))
        found.append((-0.5 * ((y - mean) / std) ** 2 - np.log(std)).sum(-1))
        if trial.learns:
            stream.update(on_every_stream(x, stream), on_every_stream(y, stream))
    constant = 0.5 * math.log(2 * math.pi) * trial.y.shape[1]
    likelihoods: FloatArray = np.concatenate(found) - constant
    return likelihoods
