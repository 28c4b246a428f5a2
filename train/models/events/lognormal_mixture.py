"""Predict the time to the next event by a mixture of log-normal distributions, and its mark.

Shchur et al., "Intensity-free learning of temporal point processes", ICLR 2020, section 3.2. Other
than in the paper, every component may have probabilities of the marks of its own, so that the mark
depends on the gap: p(gap, mark) = sum_c w_c LogNormal_c(gap) P_c(mark). Both marginals stay exact:
the gap has the mixture, and P(mark) = sum_c w_c P_c(mark).

Letters of shapes: C components, K marks, D features, Q levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgefold.train.contract import Prediction
from edgefold.train.layers.attention import Linear

Mixture = dict[str, Tensor]
"""Tensors of a mixture of C components by name: `log_weights`, `means` and `log_stds`, each (...,
C), of the gap's logarithm, and `log_marks`, the logarithms of the probabilities of the marks: (...,
C, K), or (..., 1, K) where all components share them."""

MOST_DEPENDENT_MARKS = 32
"""Largest number K of marks whose probabilities may depend on the gap: they take C K numbers in the
state, for C components."""
LEAST_GAP = 1e-6
"""Shortest gap in scaled units: shorter ones count as this one; two events at the same time have
gap 0."""
LOG_STD = (-3.5, 3.0)
"""Bounds of the logarithm of a component's standard deviation: none is narrower than 3 % of its
gap."""
FIRST_MEANS = (-6.0, 3.0)
"""Logarithms of a gap between which the means of the components are spread evenly at first."""
N_SECTIONS, N_PASSES, N_NEWTON = 17, 3, 2
"""Search of quantiles: the number of sections of a bracket, of passes, each of which keeps one
section, and of Newton's steps. Three passes leave 1/4913 of a bracket, from where two steps of
Newton's method reach the last digit of float32."""


class MarkedLogNormals(nn.Module):
    """Computes a mixture from the features of a model, (..., D), by one linear layer.

    Args:
        n_features: D, the number of features.
        n_marks: K, the number of marks.
        n_components: C, the number of components.
        dependent: Whether each component has probabilities of the marks of its own, unless there
            are more than `MOST_DEPENDENT_MARKS` marks.
    """

    def __init__(self, n_features: int, n_marks: int, n_components: int, dependent: bool):
        super().__init__()
        dependent = dependent and n_marks <= MOST_DEPENDENT_MARKS
        self.sizes = [n_components, n_components, n_components, n_marks]
        self.linear = Linear(n_features, sum(self.sizes))
        self.dependent = dependent
        if dependent:
            self.mark_gains = nn.Parameter(torch.ones(n_components, 1))
            self.mark_shifts = nn.Parameter(torch.zeros(n_components, n_marks))
        with torch.no_grad():
            assert self.linear.bias is not None
            self.linear.weight.mul_(0.5)
            self.linear.bias.zero_()
            self.linear.bias[n_components : 2 * n_components] = torch.linspace(
                *FIRST_MEANS, n_components
            )

    def forward(self, features: Tensor) -> Mixture:
        return self.mixture(self.linear(features))

    def mixture(self, numbers: Tensor) -> Mixture:
        """Return the mixture from a linear layer's numbers (..., 3 C + K).

        They are log weights, means and log stds of C components, and K scores of the marks.
        """
        weights, means, log_stds, marks = numbers.split(self.sizes, -1)
        marks = marks[..., None, :]
        if self.dependent:
            marks = marks * self.mark_gains + self.mark_shifts
        return {
            "log_weights": torch.log_softmax(weights, -1),
            "means": means,
            "log_stds": log_stds.clamp(*LOG_STD),
            "log_marks": torch.log_softmax(marks, -1),
        }


def log_density(mixture: Mixture, gap: Tensor, mark: Tensor) -> Tensor:
    """Return the log-likelihood in nats, (...), of events of these gaps and marks.

    Gaps are (...), in scaled units; marks are (...), int64.
    """
    log_gap = gap.clamp(min=LEAST_GAP).log()
    z = (log_gap[..., None] - mixture["means"]) * torch.exp(-mixture["log_stds"])
    log_marks = mixture["log_marks"]
    chosen = mark[..., None, None].expand(*log_marks.shape[:-1], 1)
    log_marks = log_marks.gather(-1, chosen)[..., 0]  # (..., C or 1)
    parts = mixture["log_weights"] - 0.5 * z * z - mixture["log_stds"] + log_marks
    return parts.logsumexp(-1) - log_gap - 0.5 * math.log(2 * math.pi)


def mark_probabilities(mixture: Mixture) -> Tensor:
    """Return the probabilities of the next event's marks, at whatever time it comes, (..., K)."""
    weights = mixture["log_weights"].exp()
    return (
        (weights[..., None, :] @ mixture["log_marks"].exp())[..., 0, :]
        if mixture["log_marks"].shape[-2] > 1
        else mixture["log_marks"][..., 0, :].exp()
    )


def next_event(mixture: Mixture, levels: Tensor, came: Tensor) -> Prediction:
    """Return a model's prediction of the next event of each stream.

    Args:
        mixture: Mixture that the model predicts.
        levels: Result of `sought` for the levels of the quantiles.
        came: Log density of the event that came, (B,).
    """
    return {
        "gap_quantiles": gap_quantiles(mixture, levels)[..., None],
        "mark_probabilities": mark_probabilities(mixture),
        "log_likelihood": came[:, None],
    }


def sought(levels: Sequence[float]) -> Tensor:
    """Turn Q levels into the argument `levels` of `gap_quantiles`, (2, Q).

    Row 0 is 2 level - 1; row 1 is the quantile of the standard normal distribution at the level.
    """
    exact = torch.tensor(levels, dtype=torch.float64)
    return torch.stack([2 * exact - 1, torch.special.ndtri(exact)]).float()


def gap_quantiles(mixture: Mixture, levels: Tensor) -> Tensor:
    """Return the quantiles of the gap in scaled units, (..., Q), for Q levels.

    The next event comes with the probability `level` before this gap is over. A quantile of a
    mixture lies between the least and the largest quantile of its components. That bracket is
    divided and divided again, for all levels at once, and Newton's method ends the search.

    Args:
        mixture: Mixture of C components.
        levels: Row 0: 2 level - 1; row 1: the standard normal quantile of the level, (2, Q); see
            `sought`.
    """
    means, log_stds = mixture["means"], mixture["log_stds"]
    weights = mixture["log_weights"].exp()[..., None]  # (..., C, 1)
    targets, normal = levels[0], levels[1, :, None]  # targets of the sum of w erf(slope x - offset)
    slopes = torch.exp(-log_stds) * math.sqrt(0.5)
    offsets = (means * slopes)[..., None, :]
    slopes = slopes[..., None, :]
    ends = means[..., None, :] + log_stds.exp()[..., None, :] * normal  # (..., Q, C)
    low = ends.amin(-1)
    width = ends.amax(-1) - low
    inner = torch.arange(1, N_SECTIONS, device=means.device).to(means.dtype) / N_SECTIONS
    for _ in range(N_PASSES):
        cuts = low[..., None] + width[..., None] * inner  # (..., Q, S - 1)
        scaled = cuts[..., None] * slopes[..., None, :] - offsets[..., None, :]
        reached = (torch.erf(scaled) @ weights[..., None, :, :])[..., 0]
        width = width / N_SECTIONS
        low = low + width * (reached < targets[:, None]).to(means.dtype).sum(-1)
    slope_weights = weights * slopes.mT * (2 / math.sqrt(math.pi))
    log_gap = low + 0.5 * width
    for _ in range(N_NEWTON):
        scaled = log_gap[..., None] * slopes - offsets
        beyond = (torch.erf(scaled) @ weights)[..., 0] - targets
        density = (torch.exp(-scaled * scaled) @ slope_weights)[..., 0]
        log_gap = log_gap - beyond / density.clamp(min=1e-20)
        log_gap = torch.minimum(torch.maximum(log_gap, low), low + width)
    return log_gap.exp()
