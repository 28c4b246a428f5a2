"""Define what tasks of events share. An event is (gap, mark); a gap is the time since the last one.

Tasks share scaling, scores, reference models and a picture. Gaps are in units of the task's mean
gap, so that models need no setting for the unit of time; likelihoods are densities of time in that
unit too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import torch

from edgefold.runtime.errors import DataError
from edgefold.train.contract import StreamingModel
from edgefold.train.models.events.event_model import EventModel
from edgefold.train.tasks.contract import Task
from edgefold.train.tasks.events.event_scores import (
    EventScore,
    HeldOutEvents,
    score_events,
    standard_error,
)

EVALUATION_BATCH = 32


class EventTask(Task):
    """A task whose model predicts the next event of a sequence: its gap and its mark.

    Attributes:
        time_scale: Unit of scaled time, in the user's units.
        marks: Names of the marks, in the order of their numbers.
    """

    n_inputs = 2
    n_outputs = 1
    default_model = "hawkes"
    filters, prediction = True, "next-event"
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 3_000,
        "batch": 16,
        "warmup": 100,
        "learning_rate": 1e-3,
        "threads": 1,
    }

    def __init__(self, time_scale: float, marks: tuple[str, ...]):
        self.time_scale, self.marks = time_scale, marks
        self.model_settings = {"n_marks": len(marks)}

    @abstractmethod
    def held_out(self, n_batches: int, seed: int) -> list[HeldOutEvents]:
        """Return batches of sequences that training never sees, `EVALUATION_BATCH` in each.

        Args:
            n_batches: Largest number of batches.
            seed: Seed that chooses the sequences.
        """

    @abstractmethod
    def references(self) -> Mapping[str, EventModel]:
        """Return the models to compare with, by name, ready for use."""

    def describe(self) -> dict[str, Any]:
        """Return what config.json stores of the task: its name, the marks and the scale of times.

        The entry `rows` makes `edgefold run` read each row as an event with one of the marks.
        """
        return {
            "name": self.name,
            "rows": "events",
            "marks": list(self.marks),
            "x_shift": [0.0, 0.0],
            "x_scale": [self.time_scale, 1.0],
            "y_shift": [0.0],
            "y_scale": [self.time_scale],
        }

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Score likelihoods, marks and gaps of held-out events, compared with reference models."""
        parts = self.held_out(n_batches, seed)
        run = ", ".join(names)
        models = {run: event_model(model)} | dict(self.references())
        width, lines = max(map(len, models)), []
        scores: dict[str, Any] = {}
        sums = {}
        for name, one in models.items():
            score, sums[name], counts = score_events(one, parts)
            scores[self.name if name == run else name] = asdict(score)
            lines.append(f"{name:{width}}{_columns(score, self.time_scale)}")
        for name in list(models)[1:]:
            apart = sums[run] - sums[name]
            mean = float(apart.sum() / counts.sum())
            error = standard_error(apart - mean * counts, counts)
            scores[name] |= {"difference": mean, "difference_error": error}
            lines.append(f"{run} less {name}: {mean:+.4f}{_error(error)} nats an event")
        head = f"{'':{width}}  log-likelihood  marks right  error of the gap"
        tail = (
            f"{score.n_events:,} events; nats, of densities of time in units of "
            f"{self.time_scale:.6g}; the error is the mean distance from the predicted median"
        )
        return scores, "\n".join([head, *lines, tail])

    def draw(self, model: StreamingModel, format: str, seed: int, title: str) -> bytes:
        """Draw the gaps of a held-out sequence in their predicted bands, and the likelihoods."""
        from edgefold.train.tasks.events.event_pictures import draw_events

        part = self.held_out(1, seed)[0]
        return draw_events(self, event_model(model), part, format, title)


def event_model(model: StreamingModel) -> EventModel:
    """Return the model if it is an `EventModel`; raise DataError for any other."""
    if not isinstance(model, EventModel):
        raise DataError(
            f"{type(model).__name__} is no EventModel; evaluation needs its event_log_likelihood()."
        )
    return model


def sequences(parts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad sequences (N_i, 2) of (gap, mark) to a tensor (B, N, 2); return it and its mask (B, N).

    The mask is True for real events.
    """
    events = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    lengths = torch.tensor([len(part) for part in parts])
    return events, torch.arange(events.shape[1]) < lengths[:, None]


def _columns(score: EventScore, unit: float) -> str:
    likelihood = f"{score.log_likelihood:.3f}{_error(score.standard_error)}"
    return f"  {likelihood:>14}  {100 * score.accuracy:9.1f} %  {unit * score.gap_error:15.4g}"


def _error(standard_error: float | None) -> str:
    """Return a standard error as text; empty where too few sequences gave one."""
    return "" if standard_error is None else f" ± {standard_error:.3f}"
