"""Define heads that predict all targets of a query jointly: a mean for each and one covariance.

The input is encoded targets (B, M, D), M for each of B streams, as in TNP-ND (Nguyen & Grover
2022); Y is the number of outputs, R is `RANK`:

    targets ──> MLP ──────────────────────────────────────> mean (B, M, Y)
    targets ──> they attend to each other ──> projector ──> P (B, M, Y, R) ──> L = tril(P P^T)

`JointGaussian` says how `std` and `factor` hold L. Every row of L needs only the targets before it,
so the covariance grows with M^2 whatever the attention costs.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import JointGaussian
from edgefold.train.contract import Prediction
from edgefold.train.layers.attention import mlp
from edgefold.train.layers.postnorm_layers import PostNormLayer

RANK = 20
"""R, the numbers of each target and output in P, as published."""
N_LAYERS = 2


class TargetAttention(nn.Module):
    """Lets M targets (B, M, D) attend to each other in two encoder layers, at a cost of O(M^2)."""

    def __init__(self, width: int, n_heads: int, feedforward: int = 128):
        super().__init__()
        layers = (PostNormLayer(width, n_heads, feedforward) for _ in range(N_LAYERS))
        self.layers = cast("list[PostNormLayer]", nn.ModuleList(layers))

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
        n_outputs: Y, the number of outputs.
        bounded: Whether the covariance has a least diagonal, as described at `JointGaussian`.
        block: Number of targets that a query predicts; 0 for any number.
        hidden: Width of the hidden layers.
    """

    def __init__(
        self,
        attention: TargetAttention | BottleneckAttention,
        width: int,
        n_outputs: int,
        bounded: bool = False,
        block: int = 0,
        hidden: int = 128,
    ):
        super().__init__()
        self.kind = JointGaussian(RANK, bounded, block)
        self.attention = attention
        self.mean = mlp(width, hidden, n_outputs, 2)
        self.projector = mlp(width, hidden, n_outputs * RANK, 4)

    def forward(self, targets: Tensor, mask: Tensor | None = None) -> Prediction:
        """Predict `mean` and `std` (B, M, Y), `factor` (B, M, Y, RANK) from targets (B, M, D).

        `JointGaussian` describes how `factor` gives the correlations of the targets. The mask (B,
        M) is True for real targets; the others change no prediction of these.
        """
        factor = self.projector(self.attention(targets, mask)).unflatten(-1, (-1, RANK))
        if mask is not None:
            factor = torch.where(mask[..., None, None], factor, 0.0)
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
