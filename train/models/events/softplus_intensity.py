"""Compute the intensity of a transformer Hawkes process, its integral, and predictions from them.

Zuo et al., "Transformer Hawkes Process", ICML 2020, eq. 6 and 7: at a time t after the last event

    rate_k(t) = scale_k softplus((slope_k t + a_k) / scale_k) + floor_k,

where the number a_k is the model's output after that event. The paper divides t by the absolute
time of the event, which makes the intensity depend on when the stream began; ours does not. The
floor is ours too: without it and with a slope below 0 there may never be another event, and the gap
has no quantiles. The log-likelihood of an event of mark k is log rate_k(t) minus the integral of
all rates from 0 to t (eq. 8).

With x(u) = (a + slope t u) / scale the integral is t scale times the mean of softplus(x(u)) over u
from 0 to 1, and softplus(x) = max(x, 0) + log(1 + exp(-|x|)). The mean of the first part is known
in closed form. The second part is a bump around x = 0, which fixed quadrature covers on either side
of its peak: so the error is the same for any gap and any slope, under 1e-5 of the integral.

Letters of shapes: B streams, K marks, Q levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.models.events.event_model import raw_positive

BUMP = 16.0
"""Largest |x| that quadrature covers: beyond it the bump is under 2e-7."""
N_NODES = 10
"""Number of nodes of Gauss and Legendre's quadrature on each side of the bump."""
MARK_LEVELS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.98)
"""Levels of quantiles of the gap, which divide time into intervals; in each one, each mark's share
of the events is computed."""
LEAST_SLOPE = 1e-6
LEAST_LOG_GAP = -14.0
"""Logarithm of the gap from which on quantiles are searched, about a millionth of a scaled unit."""
N_SECTIONS, N_PASSES, N_NEWTON = 9, 3, 2
"""Search of quantiles: the number of sections of a bracket, of passes, each of which keeps one
section, and of Newton's steps."""


class SoftplusIntensity(nn.Module):
    """Computes the intensities (rates) of K marks between two events, and predicts the next event.

    Args:
        n_marks: K, the number of marks.
        levels: Levels of the Q quantiles of the gap.
    """

    borders: Tensor
    nodes: Tensor
    node_weights: Tensor
    limits: Tensor
    masses: Tensor
    inner: Tensor

    def __init__(self, n_marks: int, levels: Sequence[float]):
        super().__init__()
        self.slopes = nn.Parameter(torch.full((n_marks,), -0.1))
        self.raw_scales = raw_positive(1.0, n_marks)
        self.raw_floors = raw_positive(0.1, n_marks)
        self.n_levels = len(levels)
        nodes, weights = _quadrature(N_NODES)
        masses = torch.tensor([0.0, *MARK_LEVELS, 1.0], dtype=torch.float64).diff()
        every = torch.tensor([*levels, *MARK_LEVELS], dtype=torch.float64)
        for name, constant in (
            ("borders", torch.tensor([-BUMP, 0.0, BUMP])),
            ("nodes", nodes),
            ("node_weights", weights[:, None]),
            ("limits", -torch.log1p(-every)),  # of the integral, (Q + mark levels,)
            ("masses", masses[:, None]),
            ("inner", torch.arange(1, N_SECTIONS) / N_SECTIONS),
        ):
            self.register_buffer(name, constant.float(), persistent=False)

    def rates(self, a: Tensor, t: Tensor) -> Tensor:
        """Return the rates of the marks, (..., K), at times t (...) after the last event.

        The model's output after that event is a (..., K).
        """
        scales = F.softplus(self.raw_scales)
        risen = F.softplus((a + self.slopes * t[..., None]) / scales)
        return scales * risen + F.softplus(self.raw_floors)

    def expected(self, a: Tensor, t: Tensor) -> Tensor:
        """Return the integral of all rates from 0 to t (...), the expected number of events.

        The model's output after the last event is a (..., K).
        """
        return self.expected_marks(a, t).sum(-1)

    def expected_marks(self, a: Tensor, t: Tensor) -> Tensor:
        """Return the integral of each mark's rate from 0 to t (...) after output a: (..., K)."""
        scales, t = F.softplus(self.raw_scales), t[..., None]
        start = a / scales
        rise = self.slopes * t / scales
        sign = torch.where(rise < 0, -1.0, 1.0)
        safe = torch.where(rise.abs() < LEAST_SLOPE, sign * LEAST_SLOPE, rise)
        # The shares of the way at which x is -BUMP, 0 and BUMP, (..., K, 3).
        met = ((self.borders - start[..., None]) / safe[..., None]).clamp(0.0, 1.0)
        peak, one, other = met[..., 1], met[..., :2], met[..., 1:]
        positive = torch.where(rise < 0, peak, 1 - peak)  # the share of it with x > 0
        middle = torch.where(rise < 0, 0.5 * peak, 0.5 + 0.5 * peak)
        first, length = torch.minimum(one, other), (one - other).abs()  # (..., K, 2)
        x = start[..., None] + rise[..., None] * first
        x = x[..., None] + (rise[..., None] * length)[..., None] * self.nodes
        bump = torch.log1p(torch.exp(-x.abs()))
        bump = (bump.view(-1, N_NODES) @ self.node_weights).view_as(length)
        mean = positive * (start + rise * middle).clamp(min=0.0) + (length * bump).sum(-1)
        return t * (scales * mean + F.softplus(self.raw_floors))

    def log_density(self, a: Tensor, gap: Tensor, mark: Tensor) -> Tensor:
        """Return the log-likelihood in nats, (...), of events of these gaps and marks.

        Gaps are (...), in scaled units; marks are (...), int64; a (..., K) is the model's output
        after the event before.
        """
        rate = self.rates(a, gap).gather(-1, mark[..., None])[..., 0]
        return rate.log() - self.expected(a, gap)

    def forward(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the quantiles of the gap, (B, Q), and the probabilities of the marks, (B, K).

        The model's output after the last event is a (B, K). The quantiles are where the integral of
        the rates reaches -log(1 - level). A mark's probability is the sum over intervals between
        quantiles of the gap's probability to lie there times the mark's share of the events that
        are expected there.
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
        quantiles, ends = gap.split([self.n_levels, len(MARK_LEVELS)], 1)
        # Events of each mark in each interval, and in the last one by their rates where it begins.
        by_then = self.expected_marks(a, ends)  # (B, levels, K)
        events = torch.cat([by_then[:, :1], by_then.diff(dim=1), self.rates(a, ends[:, -1:])], 1)
        shares = events / events.sum(-1, keepdim=True)
        return quantiles, (shares * self.masses).sum(1)


def _quadrature(n: int) -> tuple[Tensor, Tensor]:
    """Return n nodes and weights of Gauss and Legendre's quadrature on (0, 1), in float64."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return torch.from_numpy(0.5 + 0.5 * nodes), torch.from_numpy(0.5 * weights)
