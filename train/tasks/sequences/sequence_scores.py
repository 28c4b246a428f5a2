"""Score a filter that follows whole recordings, and baselines that see one window at a time.

A stream starts at each recording's first token and is never reset within it, as on a device. A
token is scored if it has a label and if a training window could have ended there. The first tokens
of a recording, where a window of W tokens is not yet full, are not scored; nor do the papers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefold.train.contract import StreamingModel, follow
from edgefold.train.tasks.sequences.sequence_sources import UNLABELLED, LabelledTokens, SequenceSet

Array = NDArray[np.float64]
SIDE_BY_SIDE = 16
"""Number of recordings that are followed in one batch."""
CHUNK = 512
"""Number of tokens of each recording that are in memory at once."""
N_FITTED = 20_000
"""Largest number of windows that a baseline is fitted to."""
MOST_NUMBERS = 1_024
"""Largest size of a window, in numbers, with which a baseline is fitted to whole windows."""
WEIGHT_DECAY = 1e-3


@dataclass(frozen=True, slots=True)
class ClassScores:
    """Holds the scores of predicted classes.

    Attributes:
        accuracy: Share of the tokens whose most probable class is right.
        accuracy_error: Standard error of the accuracy, from its scatter over recordings, because
            neighbouring tokens are not independent; over tokens where there is only one recording.
        nll: Mean negative log-likelihood of a token's class, nats.
        mean_ap, mean_cap: Mean average precision over the actions, plain and calibrated, where the
            source has a background; NaN elsewhere.
        n: Number of tokens that were scored.
    """

    accuracy: float
    accuracy_error: float
    nll: float
    mean_ap: float
    mean_cap: float
    n: int


def scored(recording: LabelledTokens, sequences: SequenceSet) -> NDArray[np.int64]:
    """Return the indices of a recording's scored tokens: labelled, and not too near its start."""
    first = min(sequences.window, len(recording)) - sequences.n_scored
    places = np.flatnonzero(recording.y != UNLABELLED)
    return places[places >= first]


def scaled(tokens: NDArray[np.float32], sequences: SequenceSet) -> Tensor:
    """Turn raw tokens (n, X) into the model's units, by shift and scale of the set."""
    return torch.from_numpy((tokens - sequences.shift) / sequences.scale)


@torch.inference_mode()
def answers(
    model: StreamingModel, recordings: Sequence[LabelledTokens], sequences: SequenceSet
) -> list[Array]:
    """Let a model follow recordings; return log-probabilities (T, K) of the classes for each."""
    order = sorted(range(len(recordings)), key=lambda i: len(recordings[i]))
    parts: list[Array] = [np.empty(0)] * len(recordings)
    for start in range(0, len(order), SIDE_BY_SIDE):
        chosen = order[start : start + SIDE_BY_SIDE]
        batch = _followed(model, [recordings[i] for i in chosen], sequences)
        for row, index in enumerate(chosen):
            parts[index] = batch[row, : len(recordings[index])]
    return parts


def _followed(
    model: StreamingModel, recordings: Sequence[LabelledTokens], sequences: SequenceSet
) -> Array:
    """Let a model follow B recordings at once; return the log-probabilities, (B, T, K).

    T is the length of the longest recording; behind the end of a shorter one the numbers are
    meaningless.
    """
    state, log_probabilities = model.initial_state(len(recordings)), []
    for start in range(0, max(map(len, recordings)), CHUNK):
        parts = [recording.tokens(start, start + CHUNK) for recording in recordings]
        x = torch.zeros(len(parts), max(map(len, parts)), sequences.n_inputs)
        for row, part in enumerate(parts):
            x[row, : len(part)] = scaled(part, sequences)
        state, prediction = follow(model, state, x)
        log_probabilities.append(prediction["scores"].double().log_softmax(-1).numpy())
    return np.concatenate(log_probabilities, 1)


def score(
    rows: Sequence[Array], recordings: Sequence[LabelledTokens], sequences: SequenceSet
) -> ClassScores:
    """Score predicted classes.

    Args:
        rows: Log-probabilities (T, K) of the classes, one array a recording.
        recordings: The recordings with their labels.
        sequences: The set that they are from.
    """
    places = [scored(recording, sequences) for recording in recordings]
    pairs = list(zip(recordings, places, strict=True))
    y = np.concatenate([recording.y[at] for recording, at in pairs])
    log_probability = np.concatenate([one[at] for one, at in zip(rows, places, strict=True)])
    hits = (log_probability.argmax(-1) == y).astype(np.float64)
    accuracy, n = hits.mean().item(), len(hits)
    cuts = np.cumsum([len(at) for at in places])[:-1]
    groups = np.split(hits - accuracy, cuts) if len(recordings) > 1 else [*hits - accuracy]
    n_groups = len(groups)
    spread = sum(float(np.sum(group)) ** 2 for group in groups) * n_groups / max(1, n_groups - 1)
    mean_ap = mean_cap = math.nan
    if sequences.has_background:
        truths = [r.truth[at] for r, at in pairs if r.truth is not None]
        truth = np.concatenate(truths)[:, 1:]
        of_classes = [
            average_precisions(log_probability[:, 1 + k], truth[:, k])
            for k in range(truth.shape[1])
            if truth[:, k].any()
        ]
        mean_ap, mean_cap = np.mean(of_classes, 0).tolist() if of_classes else (math.nan,) * 2
    nll = -log_probability[np.arange(n), y].mean().item()
    return ClassScores(accuracy, math.sqrt(spread) / n, nll, mean_ap, mean_cap, n)


def average_precisions(scores: Array, truth: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the average precision and the calibrated average precision of one class.

    Tokens are sorted by falling score. The average precision is the mean of TP / (TP + FP) over the
    tokens of the class; the calibrated one is that of w TP / (w TP + FP) with w negatives for each
    positive, which does not depend on how rare the class is (De Geest et al. 2016, Online Action
    Detection).

    Args:
        scores: Score of the class at each token, (n,).
        truth: Whether each token is of the class, (n,).
    """
    positive = truth[np.argsort(-scores, kind="stable")]
    hits, n = np.cumsum(positive), np.arange(1, len(positive) + 1)
    weight = (len(positive) - hits[-1]) / hits[-1]
    plain = hits / n
    misses = n - hits
    calibrated = weight * hits / np.maximum(weight * hits + misses, 1e-12)
    if not weight:  # no negative at all
        calibrated = plain
    return plain[positive].mean().item(), calibrated[positive].mean().item()


# Baselines ----------------------------------------------------------------------------------------

Features = Callable[[LabelledTokens, int], Tensor]
"""A function of a recording and a place that returns the features (D,) a baseline sees there."""


def baselines(
    sequences: SequenceSet, recordings: Sequence[LabelledTokens]
) -> dict[str, ClassScores]:
    """Fit baselines to the training recordings, and return their scores on others by name.

    Baselines are the class frequencies, and logistic regressions on parts of a window.
    """
    fitted = [(r, place) for r in sequences.training for place in scored(r, sequences)]
    if len(fitted) > N_FITTED:
        chosen = np.random.default_rng(0).choice(len(fitted), N_FITTED, replace=False)
        fitted = [fitted[i] for i in sorted(chosen)]
    y = torch.tensor([int(r.y[place]) for r, place in fitted])
    n_classes = len(sequences.classes)
    share = (torch.bincount(y, minlength=n_classes) + 1).double() / (len(y) + n_classes)
    constant = share.log().numpy()
    scores = {
        "the most frequent class": score(
            [np.broadcast_to(constant, (len(r), n_classes)) for r in recordings],
            recordings,
            sequences,
        )
    }
    kinds: dict[str, Features] = {
        "last token": lambda r, place: scaled(r.tokens(place, place + 1), sequences)[0],
        "mean of the window": lambda r, place: window_at(r, place, sequences)[0].mean(0),
    }
    if sequences.window * sequences.n_inputs <= MOST_NUMBERS:
        kinds["whole window"] = lambda r, place: window_at(r, place, sequences)[0].flatten()
    for name, features in kinds.items():
        x = torch.stack([features(*place) for place in fitted])
        predict = logistic_regression(x, y, n_classes)
        answers = []
        for recording in recordings:
            at = scored(recording, sequences)
            row = np.zeros((len(recording), n_classes))
            if len(at):
                row[at] = predict(torch.stack([features(recording, place) for place in at])).numpy()
            answers.append(row)
        scores[f"logistic regression, {name}"] = score(answers, recordings, sequences)
    return scores


def window_at(
    recording: LabelledTokens, place: int, sequences: SequenceSet
) -> tuple[Tensor, Tensor]:
    """Return the scaled window (W, X) that ends with token `place`, and True for real tokens, (W,).

    Tokens before the start of the recording are zeros.
    """
    first = place + 1 - sequences.window
    tokens = scaled(recording.tokens(max(0, first), place + 1), sequences)
    window = torch.zeros(sequences.window, sequences.n_inputs)
    window[-len(tokens) :] = tokens
    return window, torch.arange(sequences.window) >= -first


def logistic_regression(x: Tensor, y: Tensor, n_classes: int) -> Callable[[Tensor], Tensor]:
    """Fit a logistic regression to inputs x (n, D) and classes y (n,).

    The columns are standardised, and the loss contains `WEIGHT_DECAY` times the squared weights.

    Returns:
        A function that takes other inputs (m, D) and returns log-probabilities (m, K).
    """
    mean, std = x.mean(0), x.std(0).clamp(min=1e-6)
    weight = torch.zeros(x.shape[1], n_classes, requires_grad=True)
    bias = torch.zeros(n_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")
    even = (x - mean) / std

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(even @ weight + bias, y)
        loss = loss + WEIGHT_DECAY * weight.square().sum()
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)

    @torch.inference_mode()
    def predict(other: Tensor) -> Tensor:
        return ((other - mean) / std @ weight + bias).double().log_softmax(-1)

    return predict
