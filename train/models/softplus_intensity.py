"""The intensity of a transformer Hawkes process, its integral, and what follows from both.

Zuo et al., "Transformer Hawkes Process", ICML 2020, eq. 6 and 7: at a time t after the last event

    rate_k(t) = scale_k softplus((slope_k t + a_k) / scale_k) + floor_k,

where a_k is read off what the model knows after that event. The paper divides t by the absolute
time of the event, which makes the intensity depend on when the stream began; ours does not. The
floor is ours too: without it and with a slope below 0 there may never be another event, and the gap
has no quantiles. The log-likelihood of an event of mark k is log rate_k(t) less the integral of all
rates from 0 to t (eq. 8).

With x(u) = (a + slope t u) / scale the integral is t scale times the mean of softplus(x(u)) over u
from 0 to 1, and softplus(x) = max(x, 0) + log(1 + exp(-|x|)). The mean of the first part is known.
The second is a bump, which fixed quadrature covers on either side of its peak: so the error is the
same for any gap and any slope, under 1e-5 of the integral.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.models.event_model import raw_positive

BUMP = 16.0
"""Beyond this |x| the bump is under 2e-7."""
N_NODES = 10
"""Of Gauss and Legendre's quadrature, on each side of the bump."""
N_MARK_NODES = 8
"""At so many levels of the gap's distribution the marks' shares are averaged."""
LEAST_SLOPE = 1e-6
LEAST_LOG_GAP = -14.0
"""Quantiles are sought from here on, about a millionth of a scaled unit."""
N_SECTIONS, N_PASSES, N_NEWTON = 9, 4, 2
"""How quantiles are searched: each pass keeps one of so many sections of a bracket."""


class SoftplusIntensity(nn.Module):
    """The intensities of K marks between two events.

    Args:
        n_marks: K.
        levels: Of the gap's quantiles, Q.
    """

    nodes: Tensor
    node_weights: Tensor
    limits: Tensor
    mark_weights: Tensor
    inner: Tensor

    def __init__(self, n_marks: int, levels: Sequence[float]):
        super().__init__()
        self.slopes = nn.Parameter(torch.full((n_marks,), -0.1))
        self.raw_scales = raw_positive(1.0, n_marks)
        self.raw_floors = raw_positive(0.1, n_marks)
        self.n_levels = len(levels)
        nodes, weights = _quadrature(N_NODES)
        mark_levels, mark_weights = _quadrature(N_MARK_NODES)
        every = torch.cat([torch.tensor(levels, dtype=torch.float64), mark_levels])
        for name, constant in (
            ("nodes", nodes),
            ("node_weights", weights),
            ("limits", -torch.log1p(-every)),  # of the integral, (Q + mark levels,)
            ("mark_weights", mark_weights[:, None]),
            ("inner", torch.arange(1, N_SECTIONS) / N_SECTIONS),
        ):
            self.register_buffer(name, constant.float(), persistent=False)

    def rates(self, a: Tensor, t: Tensor) -> Tensor:
        """Rates (..., K) of the marks at times t (...) after an event that left a (..., K)."""
        scales = F.softplus(self.raw_scales)
        risen = F.softplus((a + self.slopes * t[..., None]) / scales)
        return scales * risen + F.softplus(self.raw_floors)

    def expected(self, a: Tensor, t: Tensor) -> Tensor:
        """The integral of all rates from 0 to t: events to be expected by then, (...)."""
        scales, t = F.softplus(self.raw_scales), t[..., None]
        start = a / scales
        rise = self.slopes * t / scales
        sign = torch.where(rise < 0, -1.0, 1.0)
        safe = torch.where(rise.abs() < LEAST_SLOPE, sign * LEAST_SLOPE, rise)
        # The shares of the way at which x is -BUMP, 0 and BUMP.
        before, peak, after = (((x - start) / safe).clamp(0.0, 1.0) for x in (-BUMP, 0.0, BUMP))
        positive = torch.where(rise < 0, peak, 1 - peak)  # the share of it with x > 0
        middle = torch.where(rise < 0, 0.5 * peak, 0.5 + 0.5 * peak)
        mean = positive * (start + rise * middle).clamp(min=0.0)
        for one, other in ((before, peak), (peak, after)):
            low, length = torch.minimum(one, other), (one - other).abs()
            x = (start + rise * low)[..., None] + (rise * length)[..., None] * self.nodes
            mean = mean + length * (torch.log1p(torch.exp(-x.abs())) @ self.node_weights)
        return (t * (scales * mean + F.softplus(self.raw_floors))).sum(-1)

    def log_density(self, a: Tensor, gap: Tensor, mark: Tensor) -> Tensor:
        """Log-likelihood in nats of an event of this gap and mark, int64: (...) like both."""
        rate = self.rates(a, gap).gather(-1, mark[..., None])[..., 0]
        return rate.log() - self.expected(a, gap)

    def forward(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Quantiles of the gap (B, Q), and the marks' probabilities (B, K).

        The quantiles are where the integral of the rates reaches -log(1 - level). A mark's
        probability is the mean of its share in the rates over the gap's distribution, by quadrature
        over levels.
        """
        a = a[:, None]  # (B, 1, K)
        floor = F.softplus(self.raw_floors).sum()
        low = torch.full_like(self.limits, LEAST_LOG_GAP).expand(len(a), -1)
        width = (self.limits / floor).log() - low  # the floor alone reaches the limit there
        for _ in range(N_PASSES):
            cuts = low[..., None] + width[..., None] * self.inner  # (B, levels, S - 1)
            reached = self.expected(a[:, :, None], cuts.exp())
            width = width / N_SECTIONS
            low = low + width * (reached < self.limits[:, None]).to(low.dtype).sum(-1)
        log_gap = low + 0.5 * width
        for _ in range(N_NEWTON):
            gap = log_gap.exp()
            beyond = self.expected(a, gap) - self.limits
            log_gap = log_gap - beyond / (gap * self.rates(a, gap).sum(-1))
            log_gap = torch.minimum(torch.maximum(log_gap, low), low + width)
        gap = log_gap.exp()
        rates = self.rates(a, gap[:, self.n_levels :])
        shares = rates / rates.sum(-1, keepdim=True)
        return gap[:, : self.n_levels], (shares * self.mark_weights).sum(1)


def _quadrature(n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss and Legendre on (0, 1), float64."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return torch.from_numpy(0.5 + 0.5 * nodes), torch.from_numpy(0.5 * weights)
