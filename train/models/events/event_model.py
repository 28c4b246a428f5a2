"""Define models of events in time: they predict when the next one comes, and of which mark.

An event is x = (gap, mark): the time since the event before, or since the beginning of the stream,
in scaled units, and the mark's number from 0 to K - 1, for K marks. A step takes an event and
answers with the distribution of the next one, and with the log density of the one that came.

Letters of shapes: B streams, N events of each, K marks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import NextEvent
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel

LEVELS = NextEvent(1).levels
CLASSICAL_TRAINING = {"steps": 1000, "learning_rate": 0.05, "warmup": 20}
"""Training settings that find the maximum of a likelihood of few parameters."""


class EventModel(StreamingModel):
    """Predicts the next event of a stream from the events before it; a base class.

    Override `initial_state`, `step` and `event_log_likelihood`. `edgefold verify` checks that the
    last two agree.

    Args:
        n_marks: K, the number of marks.
        levels: Levels of the quantiles of the gap that are predicted, between 0 and 1.
    """

    n_inputs = 2
    n_outputs = 1
    ordered = True

    def __init__(self, n_marks: int, levels: Sequence[float] = LEVELS):
        super().__init__()
        self.n_marks, self.levels = n_marks, tuple(levels)
        self.prediction = kind = NextEvent(n_marks, self.levels)
        self.input_range = kind.input_range

    @abstractmethod
    def event_log_likelihood(self, events: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the log density of each event given those before it, in nats: (B, N).

        It is what `step` gives as `log_likelihood` along the stream, computed for all events at
        once.

        Args:
            events: Events of streams that begin empty, (B, N, 2), each with gap and mark.
            mask: True for real events, which come first in each row, (B, N); None if all are real.
                Numbers of the other events may be anything finite.
        """

    def read(self, events: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split events (..., 2) into gaps, marks (int64) and whether each is possible, all (...).

        An impossible event (a gap below 0, no such mark, a number that is not finite) is read as
        gap 0 and mark 0, so that nothing fails on the way; `finite` must report it.
        """
        gap, number = events[..., 0], events[..., 1]
        possible = (gap >= 0) & (gap < math.inf) & (number >= 0) & (number < self.n_marks)
        gap, number = (torch.where(possible, part, 0.0) for part in (gap, number))
        return gap, number.long(), possible

    @staticmethod
    def finite(possible: Tensor) -> Tensor:
        """Return the entry `finite` of a step, (B,): NaN where its event is impossible, else 0."""
        return torch.where(possible, 0.0, math.nan)

    def log_likelihood(self, batch: Batch) -> Tensor:
        """Return the log-likelihood of each event of `x_context` in nats, (B, N).

        With a mask it is (E,), that of the E real events.
        """
        likelihood = self.event_log_likelihood(batch.x_context, batch.mask)
        return likelihood if batch.mask is None else likelihood[batch.mask]


def event_batch(events: Tensor, mask: Tensor | None = None) -> Batch:
    """Return a batch, without targets, of event sequences (B, N, 2) with columns gap and mark.

    The mask (B, N) is True for real events.
    """
    nothing = events.new_zeros(len(events), 0, 2)
    return Batch(events, events[..., :0], nothing, nothing[..., :0], mask)


def raw_positive(value: float, *shape: int) -> nn.Parameter:
    """Return a parameter that softplus turns into `value`, a positive number, for all elements."""
    return nn.Parameter(torch.full(shape, math.log(math.expm1(value))))
