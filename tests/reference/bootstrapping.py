"""BNP and BANP by their paper's equations, of one stream, in float64 numpy.

Lee et al. 2020, "Bootstrapping Neural Processes", section 4.1 and equations 8 to 12. The draws of
both stages are arguments: how often each bootstrap holds each point of the context (K, N), and the
place of the point whose residual each point gets, (K, N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.neural_processes import (
    LEAST,
    attentive_encodings,
    pooling_encodings,
    softplus,
)
from tests.reference.numpy_layers import Rows, Weights, linear, log_density, mlp, relu

Encode = Callable[[Weights, Any, Rows, Rows, Rows], tuple[Rows, Rows]]
Draws = NDArray[np.int64]


def joined(encode: Encode, weights: Weights, config: Any, x: Rows, y: Rows, at: Rows) -> Rows:
    """Encode a context by both encoders for targets at: (M, 2 D)."""
    first, second = encode(weights, config, x, y, at)
    return np.concatenate([first, np.repeat(second[None], len(at), 0)], -1)


def predicted(
    weights: Weights, context: Rows, at: Rows, own: Rows | None = None
) -> tuple[Rows, Rows]:
    """Predict targets by equation 10: a bootstrap's encoding is a term of the first layer."""
    hidden = linear(weights["first"], np.concatenate([context, at], -1))
    if own is not None:
        hidden = hidden + linear(weights["bootstrapped"], own)
    mean, raw = np.split(mlp(weights["rest"], relu(hidden), 2), 2, -1)
    return mean, LEAST + (1 - LEAST) * softplus(raw)


def bootstrapping_process(
    encode: Encode,
    weights: Weights,
    config: Any,
    x: Rows,
    y: Rows,
    targets: Rows,
    counts: Draws,
    places: Draws,
) -> tuple[Rows, Rows]:
    """Return mean and deviation of the predictions with each bootstrap, (M, K, Y)."""
    decoder, arguments = weights["decoder"], (encode, weights, config)
    base = joined(*arguments, x, y, targets)
    predictions = []
    for times, drawn in zip(counts, places, strict=True):
        held = np.repeat(np.arange(len(x)), times)
        mean, std = predicted(decoder, joined(*arguments, x[held], y[held], x), x)
        residuals = ((y - mean) / std)[drawn]
        own_y = mean + std * (residuals - residuals.mean(0))
        own = joined(*arguments, x, own_y, targets)
        predictions.append(predicted(decoder, base, targets, own))
    means, deviations = (np.stack(parts, 1) for parts in zip(*predictions, strict=True))
    return means, deviations


def bnp(*arguments: Any) -> tuple[Rows, Rows]:
    return bootstrapping_process(pooling_encodings, *arguments)


def banp(*arguments: Any) -> tuple[Rows, Rows]:
    return bootstrapping_process(attentive_encodings, *arguments)


def loss(
    encode: Encode, weights: Weights, config: Any, context: tuple[Rows, Rows], *rest: Any
) -> float:
    """Return the loss of equation 12, of one stream: without bootstraps, plus that of the mixture.

    Context points and targets together are predicted from the context.
    """
    targets, counts, places = rest
    x, y = (np.concatenate(pair) for pair in zip(context, targets, strict=True))
    base = joined(encode, weights, config, *context, x)
    plain = log_density(y, *predicted(weights["decoder"], base, x))
    many = bootstrapping_process(encode, weights, config, *context, x, counts, places)
    mixture = np.log(np.exp(log_density(y[:, None], *many)).mean(1))
    return float(-plain.mean() - mixture.mean())
