"""Score models of events on held-out sequences: likelihood, marks, gaps (times between events)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.contract import advance, initial_state_for
from edgefold.train.models.events.event_model import EventModel

FEWEST = 5
"""Smallest number of sequences from whose scatter a standard error is computed."""


@dataclass(frozen=True, slots=True)
class HeldOutEvents:
    """Holds B held-out sequences of events, padded to the same length N.

    Attributes:
        events: Gaps and marks, (B, N, 2), gaps in scaled units.
        scored: (B, N), True for the events that count; events before them are only history, events
            behind the last one are padding.
    """

    events: Tensor
    scored: Tensor


@dataclass(frozen=True, slots=True)
class EventScore:
    """Holds the scores of a model's predictions of events.

    Attributes:
        log_likelihood: Mean log-likelihood of an event, nats, with time in scaled units.
        standard_error: Standard error of that mean, from the scatter of the sequences; None for
            fewer than `FEWEST` sequences.
        accuracy: Share of the events whose mark was the most probable one.
        gap_error: Mean of |gap - predicted median| in scaled units. For a right distribution no
            other number than its median makes it smaller.
        gap_rmse: Root of the mean of (gap - predicted median)^2, which the papers give.
        n_events: Number of events that counted.
    """

    log_likelihood: float
    standard_error: float | None
    accuracy: float
    gap_error: float
    gap_rmse: float
    n_events: int


@torch.inference_mode()
def score_events(
    model: EventModel, parts: Sequence[HeldOutEvents]
) -> tuple[EventScore, Tensor, Tensor]:
    """Score a model on batches of held-out sequences.

    A sequence's first event counts only in the likelihood.

    Returns:
        The score, then the sum of the log-likelihoods of each sequence and its number of events,
        (sequences,).
    """
    sums, counts, errors, hits = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    for part in parts:
        likelihood = model.event_log_likelihood(part.events, _up_to_last(part.scored))
        sums.append(torch.where(part.scored, likelihood, 0.0).double().sum(1))
        counts.append(part.scored.sum(1))
        medians, marks = predictions_along(model, part.events)
        gap, mark, _ = model.read(part.events)
        later = part.scored[:, 1:]
        hits.append((marks[:, :-1] == mark[:, 1:])[later].double())
        errors.append((medians[:, :-1] - gap[:, 1:])[later].double())
    total, n, error = torch.cat(sums), torch.cat(counts), torch.cat(errors)
    mean = float(total.sum() / n.sum())
    score = EventScore(
        mean,
        standard_error(total - mean * n, n),
        float(torch.cat(hits).mean()),
        float(error.abs().mean()),
        float(error.square().mean().sqrt()),
        int(n.sum()),
    )
    return score, total, n


def standard_error(deviations: Tensor, counts: Tensor) -> float | None:
    """Return the standard error of a mean over all events of some sequences.

    Args:
        deviations: Sum of the deviations from the mean of each sequence's events, (sequences,).
        counts: Number of events of each sequence, (sequences,).

    Returns:
        The standard error; None for fewer than `FEWEST` sequences.
    """
    if len(counts) < FEWEST:
        return None
    return float(deviations.square().sum().sqrt() / counts.sum())


def predictions_along(model: EventModel, events: Tensor) -> tuple[Tensor, Tensor]:
    """Return the median of the next gap and the likeliest next mark after each event, (B, N) each.

    Args:
        model: The model, in evaluation mode.
        events: Gaps and marks of streams that begin empty, (B, N, 2), scaled.
    """
    medians, marks = [], []
    for prediction in answers_along(model, events):
        medians.append(model.prediction.center(prediction)[..., 0])
        marks.append(prediction["mark_probabilities"].argmax(-1))
    return torch.stack(medians, 1), torch.stack(marks, 1)


@torch.inference_mode()
def answers_along(model: EventModel, events: Tensor) -> list[Mapping[str, Tensor]]:
    """Return predictions after each of the events (B, N, 2) of (gap, mark); streams begin empty."""
    state, predictions = initial_state_for(model, events), list[Mapping[str, Tensor]]()
    for row in range(events.shape[1]):
        written, prediction = model.step(state, events[:, row])
        state = advance(model, state, written)
        predictions.append(prediction)
    return predictions


def _up_to_last(scored: Tensor) -> Tensor:
    """Return the mask of real events, (B, N): True up to the last event that counts."""
    return scored.flip(1).cummax(1).values.flip(1)
