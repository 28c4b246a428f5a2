"""Model events that make others more likely for a while, by a multivariate Hawkes process.

The intensity of mark k is a base rate and the sum of what earlier events still add (Hawkes 1971):

    lambda_k(t) = mu_k + sum over events (t_i, m_i) and decays d of
                  alpha_(m_i, k, d) beta_d exp(-beta_d (t - t_i))

alpha_(j, k, d) is the mean number of events of mark k that one event of mark j causes at decay d.
Exponential kernels make it a process with a state of fixed size: the part of every mark and decay
(Ogata 1981), here E (K, D), which a gap g multiplies by exp(-beta_d g) and an event of mark j
raises by alpha_j beta. The density of the next event is exact:

    log f(g, k) = log lambda_k(g) - Lambda(g)
    Lambda(g)   = sum_k mu_k g + sum_d sum_k E_kd (1 - exp(-beta_d g)) / beta_d

Quantiles of the gap solve Lambda(g) = -log(1 - q). Lambda rises and is concave, so that Newton's
steps from below never pass the solution. The probability of a mark is lambda_k / lambda averaged
over the distribution of the gap, by Gauss and Legendre's rule in q.

Letters of shapes: B streams, N events, K marks, D decays, Q levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
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

N_NODES = 8
"""Number of gaps over which the probabilities of marks are averaged."""
N_NEWTON = 10
"""Number of Newton's steps towards a quantile; a test checks that these suffice for parameters of
any size."""


@dataclass(frozen=True, slots=True)
class HawkesConfig:
    """Holds the settings of a Hawkes process.

    Attributes:
        n_marks: K, the number of marks.
        n_decays: D, the number of exponentials in a kernel; their decays are the same for all
            marks.
        levels: Levels of the quantiles of the gap that are predicted.
    """

    n_marks: int = 3
    n_decays: int = 1
    levels: tuple[float, ...] = LEVELS


class Hawkes(EventModel):
    """Predicts the next event by a Hawkes process with exponential kernels.

    State: `excitation` (B, K, D), right after the last event: how much earlier events add to the
    intensity of each mark, in the part that falls with each decay.
    """

    name = "hawkes"
    presets: ClassVar[Mapping[str, HawkesConfig]] = {
        "small": HawkesConfig(),
        "two-decays": HawkesConfig(n_decays=2),
    }
    training_defaults: ClassVar[Mapping[str, Any]] = dict.fromkeys(presets, CLASSICAL_TRAINING)

    areas: Tensor
    weights: Tensor

    def __init__(self, config: HawkesConfig):
        require_sizes(config)
        super().__init__(config.n_marks, config.levels)
        self.config = config
        n_marks, n_decays = config.n_marks, config.n_decays
        # One event in a unit of time, half of them caused by others.
        self.raw_base = raw_positive(0.5 / n_marks, n_marks)  # mu (K,)
        self.raw_caused = raw_positive(0.5 / n_marks / n_decays, n_marks, n_marks, n_decays)
        self.raw_decay = raw_positive(1.0, n_decays)  # beta (D,)
        with torch.no_grad():  # decays of the same value would stay the same
            wanted = 4.0 ** (torch.arange(n_decays) - (n_decays - 1) / 2)
            self.raw_decay.copy_(torch.log(torch.expm1(wanted)))
        nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
        shares = np.array([*self.levels, *(nodes + 1) / 2])
        tensors = {"areas": -np.log1p(-shares), "weights": weights / 2}  # (Q + nodes,), (nodes,)
        for name, array in tensors.items():
            self.register_buffer(name, torch.tensor(array).float(), persistent=False)

    @classmethod
    def of(cls, base: Tensor, caused: Tensor, decay: Tensor) -> Hawkes:
        """Build the process with known parameters, in scaled time.

        Args:
            base: mu, the base rate of each mark, (K,).
            caused: alpha, how many events of mark k an event of mark j causes, at [j, k], (K, K).
            decay: beta, the rate at which effects fall, (1,).
        """
        model = cls(HawkesConfig(len(base)))
        with torch.no_grad():
            pairs = ((model.raw_base, base), (model.raw_caused, caused[..., None]))
            for raw, value in (*pairs, (model.raw_decay, decay)):
                raw.copy_(torch.log(torch.expm1(value.double())))  # softplus takes -inf to 0
        return model.eval()

    def initial_state(self, n_streams: int = 1) -> State:
        """Return the state without any excitation, for n_streams = B streams."""
        return {"excitation": self.raw_base.new_zeros(n_streams, *self.raw_caused.shape[1:])}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Read one event of each stream, x (B, 2): (gap, mark); predict the next: `NextEvent`."""
        gap, mark, possible = self.read(x)
        excitation, decay = state["excitation"], softplus(self.raw_decay)
        before = self._log_density(excitation, gap, mark)
        rest = excitation * torch.exp(-decay * gap[:, None])[:, None]
        excitation = rest + self._caused()[mark]
        prediction = self._predict(excitation) | {"log_likelihood": before[:, None]}
        return {"excitation": excitation, FINITE: self.finite(possible)}, prediction

    def event_log_likelihood(self, events: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the log density (B, N), in nats, of events (B, N, 2), each given those before.

        The columns are gap and mark. `mask` is not used: real events come first in a row, and none
        depends on later ones.
        """
        gap, mark, _ = self.read(events)
        stays = torch.exp(-softplus(self.raw_decay) * gap[..., None])[..., None, :]  # (B, N, 1, D)
        return self._log_density(decayed_sums(self._caused()[mark], stays), gap, mark)

    def _caused(self) -> Tensor:
        """Return how much an event of each mark raises each intensity at each decay, (K, K, D)."""
        return softplus(self.raw_caused) * softplus(self.raw_decay)

    def _log_density(self, excitation: Tensor, gap: Tensor, mark: Tensor) -> Tensor:
        """Return the log density, in nats, of an event with gap and mark (...): (...).

        The excitation (..., K, D) is that right after the event before.
        """
        base, decay = softplus(self.raw_base), softplus(self.raw_decay)
        fallen = decay * gap[..., None]  # (..., D)
        of_mark = mark[..., None, None].expand(*mark.shape, 1, len(decay))
        left = (excitation.gather(-2, of_mark)[..., 0, :] * torch.exp(-fallen)).sum(-1)
        caused = -(excitation.sum(-2) * torch.expm1(-fallen) / decay).sum(-1)
        return torch.log(base[mark] + left) - base.sum() * gap - caused

    def _predict(self, excitation: Tensor) -> Prediction:
        """Return quantiles of the next gap (B, Q, 1) and probabilities of the marks (B, K).

        The excitation (B, K, D) is that right after the last event.
        """
        base, decay = softplus(self.raw_base), softplus(self.raw_decay)
        total, summed = base.sum(), excitation.sum(1)[:, None]  # E of all marks (B, 1, D)
        gaps = self.areas / (total + summed.sum(-1))  # too early: the intensity only falls
        for _ in range(N_NEWTON):
            fallen = decay * gaps[..., None]  # (B, Q + nodes, D)
            area = total * gaps - (summed * torch.expm1(-fallen) / decay).sum(-1)
            intensity = total + (summed * torch.exp(-fallen)).sum(-1)
            gaps = gaps + (self.areas - area) / intensity
        n_levels = len(self.levels)
        fallen = torch.exp(-decay * gaps[:, n_levels:, None])  # (B, nodes, D)
        of_all = total + (summed * fallen).sum(-1)  # (B, nodes)
        shares = self.weights / of_all
        of_marks = base * shares.sum(-1, keepdim=True) + (
            excitation * (shares[..., None] * fallen).sum(1)[:, None]
        ).sum(-1)
        return {"gap_quantiles": gaps[:, :n_levels, None], "mark_probabilities": of_marks}

    @property
    def summary(self) -> str:
        decays = "one decay" if self.config.n_decays == 1 else f"{self.config.n_decays} decays"
        return f"Hawkes process of {self.n_marks} marks, exponential kernels of {decays}"
