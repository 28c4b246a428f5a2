"""Model events that come independently of each other, at rates learned from the stream.

The model is a homogeneous Poisson process whose rates are gamma distributed over streams: rate of
mark k ~ Gamma(a_k, b), b in units of time. After n_k events of mark k in time T the rates are
Gamma(a_k + n_k, b + T), so that the next gap t has the density A B^A / (B + t)^(A + 1) (Lomax),
where A = sum_k (a_k + n_k) and B = b + T, and the mark is k with probability (a_k + n_k) / A,
whenever it comes (Gelman et al., Bayesian Data Analysis, 2.6). Training finds a and b by the
likelihood of whole streams; where all streams have the same rates, training makes a and b large,
and the rates are then constant.

So that nothing grows for ever, n and T are sums that forget: each event weighs 1 - 1/memory of what
it weighed before the last one.

Letters of shapes: B streams, N events, K marks, Q levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from edgefold.train.contract import FINITE, Prediction, State
from edgefold.train.models.events.event_model import (
    CLASSICAL_TRAINING,
    LEVELS,
    EventModel,
    raw_positive,
)
from edgefold.train.settings import require_sizes
from edgefold.train.states.decayed_sums import decayed_sums

CERTAIN = 1e9
"""Number of events that a prior stands for, where no stream shall change it."""


@dataclass(frozen=True, slots=True)
class PoissonConfig:
    """Holds the settings of a Poisson process.

    Attributes:
        n_marks: K, the number of marks.
        memory: Number of events from which the rates are learned; older ones are forgotten little
            by little.
        levels: Levels of the quantiles of the gap that are predicted.
    """

    n_marks: int = 3
    memory: int = 1000
    levels: tuple[float, ...] = LEVELS


class Poisson(EventModel):
    """Predicts the next event from the rates of the marks, learned from a prior and the stream.

    State: `counts` (B, K), the events of each mark, and `time` (B, 1), the time that they took;
    both forget old events.
    """

    name = "poisson"
    presets: ClassVar[Mapping[str, PoissonConfig]] = {"small": PoissonConfig()}
    training_defaults: ClassVar[Mapping[str, Any]] = {"small": CLASSICAL_TRAINING}

    log_above: Tensor

    def __init__(self, config: PoissonConfig):
        require_sizes(config)
        super().__init__(config.n_marks, config.levels)
        self.config = config
        self.raw_counts = raw_positive(10 / config.n_marks, config.n_marks)  # a: ten events
        self.raw_time = raw_positive(10.0, 1)  # b: one in a unit of time
        self.stays = 1 - 1 / config.memory
        levels = torch.tensor(self.levels, dtype=torch.float64)
        self.register_buffer("log_above", torch.log1p(-levels).float(), persistent=False)  # (Q,)

    @classmethod
    def fitted(cls, events: Tensor, n_marks: int) -> Poisson:
        """Build the process with constant rates under which events (n, 2) are most likely.

        The columns of events are gap and mark. The prior is so narrow that no stream changes it.
        """
        model = cls(PoissonConfig(n_marks))
        counts = torch.bincount(events[:, 1].long(), minlength=n_marks).clamp(min=1e-3)
        shares = counts / counts.sum()
        mean_gap = events[:, 0].double().mean().clamp(min=1e-6).float()
        with torch.no_grad():  # softplus(x) is x above 20
            model.raw_counts.copy_(CERTAIN * shares)
            model.raw_time.copy_(CERTAIN * mean_gap)
        return model.eval()

    def initial_state(self, n_streams: int = 1) -> State:
        """Return the state after no event: counts (B, K) and time (B, 1) of 0."""
        like = self.raw_counts
        return {
            "counts": like.new_zeros(n_streams, self.n_marks),
            "time": like.new_zeros(n_streams, 1),
        }

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Read one event of each stream, x (B, 2): (gap, mark); predict the next: `NextEvent`."""
        gap, mark, possible = self.read(x)
        came = self._one_of(mark)
        before = self._log_density(state["counts"], state["time"], gap[:, None], came)
        counts = self.stays * state["counts"] + came
        time = self.stays * state["time"] + gap[:, None]
        a, b = self._posterior(counts, time)
        total = a.sum(-1, keepdim=True)
        gaps = b * _less_one(-self.log_above / total)  # (B, Q)
        prediction = {
            "gap_quantiles": gaps[..., None],
            "mark_probabilities": a / total,
            "log_likelihood": before,
        }
        return {"counts": counts, "time": time, FINITE: self.finite(possible)}, prediction

    def event_log_likelihood(self, events: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the log density (B, N), in nats, of events (B, N, 2), each given those before.

        The columns are gap and mark. `mask` is not used: real events come first in a row, and none
        depends on later ones.
        """
        gap, mark, _ = self.read(events)
        came, gap = self._one_of(mark), gap[..., None]
        stays = torch.full_like(gap, self.stays)
        counts, time = decayed_sums(came, stays), decayed_sums(gap, stays)
        return self._log_density(counts, time, gap, came)[..., 0]

    def _one_of(self, mark: Tensor) -> Tensor:
        """Return rows (..., K) that are 1 at the mark and 0 elsewhere."""
        return (mark[..., None] == torch.arange(self.n_marks, device=mark.device)).to(
            self.raw_counts.dtype
        )

    def _posterior(self, counts: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parameters of the rates' gamma distributions after some events.

        They are the shapes, which are `counts` plus those of the prior, (..., K), and the time that
        all rates share, `time` plus that of the prior, (..., 1).
        """
        return softplus(self.raw_counts) + counts, softplus(self.raw_time) + time

    def _log_density(self, counts: Tensor, time: Tensor, gap: Tensor, came: Tensor) -> Tensor:
        """Return the log density, (..., 1), in nats, of an event after counts and time.

        Args:
            counts: Number of earlier events of each mark, (..., K).
            time: Time that they took, (..., 1).
            gap: Gap of the event, (..., 1).
            came: Row with a 1 at the event's mark and 0 elsewhere, (..., K).
        """
        a, b = self._posterior(counts, time)
        total = a.sum(-1, keepdim=True)
        # log of (a_k / A) A B^A / (B + t)^(A + 1), without powers
        return ((a * came).sum(-1, keepdim=True) / b).log() - (total + 1) * torch.log1p(gap / b)

    @property
    def summary(self) -> str:
        return f"Poisson process of {self.n_marks} marks"


def _less_one(power: Tensor) -> Tensor:
    """Return exp(power) - 1 of positive powers, accurate also where ONNX computes it.

    In ONNX expm1 becomes exp(power) - 1, which keeps only four digits where the power is 3e-4, as
    after a thousand events.
    """
    half = torch.tanh(power.clamp(max=1.0) / 2)
    return torch.where(power < 1.0, 2 * half / (1 - half), torch.exp(power) - 1)
