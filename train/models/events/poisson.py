"""Events that come independently of each other, at rates that are learned from the stream.

A homogeneous Poisson process whose rates are gamma distributed over streams: rate of mark k ~
Gamma(a_k, b), b in units of time. After n_k events in time T they are Gamma(a_k + n_k, b + T), so
that the next gap t has the density A B^A / (B + t)^(A + 1) (Lomax), A = sum_k (a_k + n_k) and
B = b + T, and the mark is k with probability (a_k + n_k) / A, whenever it comes (Gelman et al.,
Bayesian Data Analysis, 2.6). Training finds a and b by the likelihood of whole streams; with a and
b large, which it chooses where all streams have the same rates, the rates are constant.

So that nothing grows for ever, n and T are sums that forget: each event weighs 1 - 1/memory of what
it weighed before the last one.
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
"""Events that a prior stands for when it shall not move."""


@dataclass(frozen=True, slots=True)
class PoissonConfig:
    """The settings.

    Attributes:
        n_marks: K.
        memory: Events that the rates are learned from; older ones are forgotten little by little.
        levels: Of the quantiles of the gap.
    """

    n_marks: int = 3
    memory: int = 1000
    levels: tuple[float, ...] = LEVELS


class Poisson(EventModel):
    """State: the events of each mark, and the time that they took, both forgetting."""

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
        """The process with constant rates that makes events (n, 2) most likely.

        Its prior is so narrow that no stream changes it.
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
        """Counts (B, K) and time (B, 1) of no event."""
        like = self.raw_counts
        return {
            "counts": like.new_zeros(n_streams, self.n_marks),
            "time": like.new_zeros(n_streams, 1),
        }

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """x (B, 2); see `NextEvent`."""
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
        """(B, N), of events (B, N, 2)."""
        gap, mark, _ = self.read(events)
        came, gap = self._one_of(mark), gap[..., None]
        stays = torch.full_like(gap, self.stays)
        counts, time = decayed_sums(came, stays), decayed_sums(gap, stays)
        return self._log_density(counts, time, gap, came)[..., 0]

    def _one_of(self, mark: Tensor) -> Tensor:
        """1 at the mark and 0 elsewhere, (..., K)."""
        return (mark[..., None] == torch.arange(self.n_marks, device=mark.device)).to(
            self.raw_counts.dtype
        )

    def _posterior(self, counts: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Gamma's parameters: shapes (..., K), and the time that they share, (..., 1)."""
        return softplus(self.raw_counts) + counts, softplus(self.raw_time) + time

    def _log_density(self, counts: Tensor, time: Tensor, gap: Tensor, came: Tensor) -> Tensor:
        """Return it of an event after these counts: gap (..., 1) and mark (..., K); (..., 1)."""
        a, b = self._posterior(counts, time)
        total = a.sum(-1, keepdim=True)
        # log of (a_k / A) A B^A / (B + t)^(A + 1), without powers
        return ((a * came).sum(-1, keepdim=True) / b).log() - (total + 1) * torch.log1p(gap / b)

    @property
    def summary(self) -> str:
        return f"Poisson process of {self.n_marks} marks"


def _less_one(power: Tensor) -> Tensor:
    """exp(power) - 1 of positive powers, also on devices: ONNX writes expm1 as that difference.

    Of a power of 3e-4, which a thousand events leave, the difference keeps four digits.
    """
    half = torch.tanh(power.clamp(max=1.0) / 2)
    return torch.where(power < 1.0, 2 * half / (1 - half), torch.exp(power) - 1)
