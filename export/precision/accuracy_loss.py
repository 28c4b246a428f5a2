"""Measure what a narrow precision costs on the task: the change in log-likelihood, in pairs.

Two bundles of one model, float32 and narrow, go through the same episodes (streams from a reset on)
with the runtime itself. The difference between the two scatters far less from episode to episode
than the likelihood itself: some hundred episodes show thousandths of a nat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefold.export.precision.calibrate import on_every_stream
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.bundle.manifest import n_that_fit
from edgefold.train.tasks.contract import Episode

FEWEST, MOST = 200, 4000
"""Smallest and largest number of differences that are measured on one kind of episodes."""
SETTLED = 0.0025
"""Standard error, nats, at which no more episodes are drawn."""


@dataclass(frozen=True, slots=True)
class LikelihoodChange:
    """Holds how much narrowing changed the log-likelihood of a target; negative is a loss.

    Attributes:
        mean: Mean of the narrow bundle's log-likelihood minus that of float32, nats.
        standard_error: Standard error of the mean, nats.
        n: Number of differences.
    """

    mean: float
    standard_error: float
    n: int


def likelihood_change(
    reference: Path, narrow: Path, episodes: Iterable[Episode]
) -> LikelihoodChange:
    """Run episodes through two bundles until the standard error is small, or no episode is left.

    An episode whose points are learned as they come gives one difference for each predicted row;
    any other gives one, the mean of its rows.

    Args:
        reference: Folder of the float32 bundle.
        narrow: Folder of the narrow bundle.
        episodes: The episodes, in raw units.
    """
    differences: list[float] = []
    with ExitStack() as stack:
        streams = [
            stack.enter_context(Stream.open(path, backend="onnxruntime"))
            for path in (reference, narrow)
        ]
        for episode in episodes:
            exact, rounded = (log_likelihoods(stream, episode) for stream in streams)
            difference = rounded - exact
            differences += (
                difference.tolist() if episode.prequential else [float(difference.mean())]
            )
            if len(differences) >= MOST or (
                len(differences) >= FEWEST and _error(differences) < SETTLED
            ):
                break
    return LikelihoodChange(float(np.mean(differences)), _error(differences), len(differences))


def _error(differences: list[float]) -> float:
    if len(differences) < 2:
        return math.inf
    return float(np.std(differences, ddof=1)) / math.sqrt(len(differences))


def log_likelihoods(stream: Stream, episode: Episode) -> FloatArray:
    """Return the log density, nats, of each predicted point of an episode, summed over outputs.

    A model whose state is full and refuses more points goes on to predict and learns no more, as on
    a device. A filter steps through all tokens; only its answers to the predicted ones count.
    """
    if stream.manifest.is_filter:
        return _of_answers(stream, episode)
    n, width = episode.n_context, 1 if episode.prequential else stream.manifest.targets
    stream.reset()
    if learned := n_that_fit(stream.room, n):
        stream.condition(*(on_every_stream(a[:learned], stream) for a in (episode.x, episode.y)))
    likelihoods: list[FloatArray] = []
    for start in range(n, len(episode.x), width):
        rows = slice(start, min(start + width, len(episode.x)))
        x, y = episode.x[rows], episode.y[rows]
        prediction = stream.query(on_every_stream(x, stream)).tensors
        if stream.manifest.n_streams > 1:
            prediction = {name: array[0] for name, array in prediction.items()}
        scores = stream.manifest.prediction.log_likelihood(prediction, y, np)
        likelihoods.append(np.broadcast_to(scores, len(y)))  # of a joint one: each target's share
        if episode.prequential and stream.room != 0:
            stream.update(on_every_stream(x, stream), on_every_stream(y, stream))
    return np.concatenate(likelihoods)


def _of_answers(stream: Stream, episode: Episode) -> FloatArray:
    n_streams, likelihoods = stream.manifest.n_streams, []
    stream.reset()
    for row, token in enumerate(episode.x):
        inputs = token if n_streams == 1 else np.broadcast_to(token, (n_streams, len(token)))
        answer = stream.step(inputs).tensors
        if row >= episode.n_context:
            tensors = {n: a if n_streams == 1 else a[0] for n, a in answer.items()}
            y = episode.y[row : row + 1]
            likelihoods.append(stream.manifest.prediction.log_likelihood(tensors, y, np))
    return np.concatenate(likelihoods)
