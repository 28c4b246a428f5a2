"""Score models of events on held-out sequences: likelihood, marks, gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.contract import advance, initial_state_beside
from edgefold.train.models.events.event_model import EventModel

FEWEST = 5
"""Sequences whose scatter tells a standard error."""


@dataclass(frozen=True, slots=True)
class HeldOutEvents:
    """Sequences side by side.

    Attributes:
        events: (B, N, 2), scaled.
        scored: (B, N), True for the events that count; those before them are only history, those
            behind the last one are padding.
    """

    events: Tensor
    scored: Tensor


@dataclass(frozen=True, slots=True)
class EventScore:
    """Scores of a model's predictions of events.

    Attributes:
        log_likelihood: Mean of an event, nats, time in scaled units.
        standard_error: Of it, from the scatter of the sequences; None for fewer than `FEWEST`.
        accuracy: Share of the events whose mark was the most probable one.
        gap_error: Mean of |gap - predicted median|, which no other number than the distribution's
            median makes smaller; in scaled units.
        gap_rmse: Root of the mean square of the same, which the papers give.
        n_events: Events that counted.
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
    """Score a model; the first event of a stream counts only in the likelihood.

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
    """Return a mean's standard error, from each sequence's sum of deviations from the mean."""
    if len(counts) < FEWEST:
        return None
    return float(deviations.square().sum().sqrt() / counts.sum())


def predictions_along(model: EventModel, events: Tensor) -> tuple[Tensor, Tensor]:
    """Median of the next gap and most probable mark after each event (B, N, 2): both (B, N)."""
    medians, marks = [], []
    for prediction in answers_along(model, events):
        medians.append(model.prediction.center(prediction)[..., 0])
        marks.append(prediction["mark_probabilities"].argmax(-1))
    return torch.stack(medians, 1), torch.stack(marks, 1)


@torch.inference_mode()
def answers_along(model: EventModel, events: Tensor) -> list[Mapping[str, Tensor]]:
    """Return the model's answers to each event of streams (B, N, 2) that begin empty."""
    state, predictions = initial_state_beside(model, events), list[Mapping[str, Tensor]]()
    for row in range(events.shape[1]):
        written, prediction = model.step(state, events[:, row])
        state = advance(model, state, written)
        predictions.append(prediction)
    return predictions


def _up_to_last(scored: Tensor) -> Tensor:
    """The mask of real events: all up to the last one that counts."""
    return scored.flip(1).cummax(1).values.flip(1)
