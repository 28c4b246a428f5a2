"""Define heads that predict all targets of a query jointly: a mean for each and one covariance.

The input is encoded targets (B, M, D), M for each of B streams, as in TNP-ND (Nguyen & Grover
2022); Y is the number of outputs, R is `RANK`:

    targets ──> MLP ──────────────────────────────────────> mean (B, M, Y)
    targets ──> they attend to each other ──> projector ──> P (B, M, Y, R)
    targets ──> MLP ──> d (B, M, Y), of a low-rank covariance only

    "cholesky"    covariance = L L^T, where L = tril(P P^T) and its diagonal |P_i|^2 + least
    "low-rank"    covariance = P P^T + diag(exp(d))

`JointGaussian` says how `std`, `factor` and `own` hold the covariance. It grows with M^2 whatever
the attention costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import JointGaussian
from edgefold.train.contract import Prediction
from edgefold.train.layers.attention import mlp
from edgefold.train.layers.postnorm_layers import PostNormLayer
from edgefold.train.layers.starts import start_as_transformer
from edgefold.train.settings import Start

RANK = 20
"""R, the numbers of each target and output in P, as published."""
N_LAYERS = 2
N_DIAGONAL_LAYERS = 4

TrainedBlocks = Literal["all", "drawn", "fixed"]
"""Number of targets that training predicts together: all of a task, as published, a number that
`drawn_block` draws for each step, or the settings' `block`."""

PUBLISHED_HEAD: Final[Mapping[str, Any]] = {"least": 0.0, "trained_blocks": "all"}
"""Settings by which a joint head is the one of the published code."""


class TargetAttention(nn.Module):
    """Lets M targets (B, M, D) attend to each other in two encoder layers, at a cost of O(M^2).

    With the `start` "published" the layers start as torch's `TransformerEncoder` does.
    """

    def __init__(self, width: int, n_heads: int, feedforward: int = 128, start: Start = "ours"):
        super().__init__()
        layers = (PostNormLayer(width, n_heads, feedforward) for _ in range(N_LAYERS))
        self.layers = cast("list[PostNormLayer]", nn.ModuleList(layers))
        if start == "published":
            start_as_transformer(self.layers)

    def forward(self, targets: Tensor, mask: Tensor | None) -> Tensor:
        visible = None if mask is None else mask[:, None, None]
        for layer in self.layers:
            targets = layer(targets, visible)
        return targets


class BottleneckAttention(nn.Module):
    """Lets targets attend to L latents that attended to all targets, at a cost of O(M L).

    LBANP-END does so (Feng et al. 2023, appendix B.5): learned latents (L, D) attend to the targets
    and then to themselves, twice; the targets then attend to the latents.
    """

    def __init__(self, width: int, n_heads: int, n_latents: int, feedforward: int = 128):
        super().__init__()

        def layers() -> list[PostNormLayer]:
            stack = (PostNormLayer(width, n_heads, feedforward) for _ in range(N_LAYERS))
            return cast("list[PostNormLayer]", nn.ModuleList(stack))

        self.latents = nn.Parameter(torch.randn(n_latents, width))
        self.target_attention, self.latent_attention = layers(), layers()
        self.last_attention = PostNormLayer(width, n_heads, feedforward)

    def forward(self, targets: Tensor, mask: Tensor | None) -> Tensor:
        visible = None if mask is None else mask[:, None, None]
        hidden = self.latents.expand(len(targets), -1, -1)
        for read, mix in zip(self.target_attention, self.latent_attention, strict=True):
            hidden = mix(read.step(hidden, hidden, *read.keys_values(targets), visible))
        last = self.last_attention
        encoded: Tensor = last.step(targets, targets, *last.keys_values(hidden))
        return encoded


class JointHead(nn.Module):
    """Predicts a `JointGaussian`: a mean of each target and one covariance, from targets (B, M, D).

    Args:
        attention: Layers by which the targets exchange information: called with targets and mask.
        width: D, the width of an encoded target.
        kind: The kind of prediction, which says what the covariance is made of.
        n_outputs: Y, the number of outputs.
        hidden: Width of the hidden layers.
    """

    def __init__(
        self,
        attention: nn.Module,
        width: int,
        kind: JointGaussian,
        n_outputs: int,
        hidden: int = 128,
    ):
        super().__init__()
        self.kind = kind
        self.attention = attention
        self.mean = mlp(width, hidden, n_outputs, 2)
        self.projector = mlp(width, hidden, n_outputs * kind.rank, 4)
        self.diagonal = None
        if kind.covariance == "low-rank":
            self.diagonal = mlp(width, hidden, n_outputs, N_DIAGONAL_LAYERS)

    def forward(self, targets: Tensor, mask: Tensor | None = None) -> Prediction:
        """Predict `mean` and `std` (B, M, Y), `factor` (B, M, Y, R) from targets (B, M, D).

        `JointGaussian` describes how `factor` gives the correlations of the targets. The mask (B,
        M) is True for real targets; the others change no prediction of these.
        """
        rank = self.kind.rank
        factor = self.projector(self.attention(targets, mask)).unflatten(-1, (-1, rank))
        if mask is not None:
            factor = torch.where(mask[..., None, None], factor, 0.0)
        if self.diagonal is not None:
            own = torch.exp(0.5 * self.diagonal(targets))
            std = (factor.square().sum(-1) + own.square()).sqrt()
            shares = factor / std[..., None]
            return {"mean": self.mean(targets), "std": std, "factor": shares, "own": own}
        lower: Tensor = self.kind.lower(factor, torch)
        mean = self.mean(targets)
        std = lower.square().sum(-1).sqrt().reshape(mean.shape)
        return {"mean": mean, "std": std, "factor": factor}

    def loss(self, targets: Tensor, y: Tensor, block: int) -> Tensor:
        """Return the negative joint log-likelihood of all blocks, divided by all targets: ().

        Args:
            targets: Encoded targets, (B, M, D).
            y: True values of the targets, (B, M, Y).
            block: Number of targets that are predicted jointly; the last block may have fewer.
        """
        n_targets = y.shape[1]
        n_even = n_targets // block * block
        total = y.new_zeros(())
        for part, size in ((slice(n_even), block), (slice(n_even, None), n_targets - n_even)):
            if targets[:, part].shape[1]:
                rows, values = (
                    t[:, part].unflatten(1, (-1, size)).flatten(0, 1) for t in (targets, y)
                )
                scores = self.kind.log_likelihood(self(rows), values, torch)
                total = total + size * scores.sum()
        return -total / (len(y) * n_targets)


def drawn_block(n_targets: int, generator: torch.Generator) -> int:
    """Draw how many targets a training step predicts together: from 1 to all `n_targets`.

    The logarithm is uniform, so that few are drawn as often as many. A head that is only trained on
    all of a task's targets together predicts few of them far worse than one that predicts each
    separately.
    """
    return int((n_targets + 1) ** torch.rand((), generator=generator).item())


def trained_block(config: Any, n_targets: int, generator: torch.Generator) -> int:
    """Return how many of `n_targets` a training step predicts together, by `trained_blocks`."""
    if config.trained_blocks == "drawn":
        return drawn_block(n_targets, generator)
    block: int = config.block if config.trained_blocks == "fixed" else 0
    return block or n_targets


def joint_kind(config: Any, block: int = 0) -> JointGaussian:
    """Return the kind of prediction that the settings of a model with a joint head describe.

    Args:
        config: Settings, of which `bounded`, `least` and `covariance` are taken.
        block: Number of targets that a query predicts; 0 for any number.
    """
    return JointGaussian(RANK, config.bounded, block, config.least, config.covariance)


def require_joint_settings(config: Any) -> None:
    """Raise ValueError where the settings of a model with a joint head contradict each other.

    Args:
        config: Settings, of which `trained_blocks` and those of `joint_kind` are read; "fixed"
            blocks need a setting `block`.
    """
    joint_kind(config)  # checks its own
    if config.trained_blocks == "fixed" and not hasattr(config, "block"):
        raise ValueError("trained_blocks is 'fixed', but the model has no block; take all or drawn")
