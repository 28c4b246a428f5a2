"""The latents that a model with a bottleneck begins with."""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

from edgefold.train.models.embeddings import Embedding

LatentKind = Literal["inducing", "normal"]


class LatentConfig(Protocol):
    """What a model's config says about its latents.

    `latents` is "inducing" for embeddings of points that are spread between `input_low` and
    `input_high`, so that attention is local in x from the first step, or "normal" as published.
    """

    @property
    def n_inputs(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def n_latents(self) -> int: ...
    @property
    def latents(self) -> LatentKind: ...
    @property
    def input_low(self) -> float: ...
    @property
    def input_high(self) -> float: ...


@torch.no_grad()
def first_latents(config: LatentConfig, embedding: Embedding, n_sets: int) -> Tensor:
    """Initial values of n_sets sets of latents, (n_sets, L, D)."""
    if config.latents == "normal":
        return torch.randn(n_sets, config.n_latents, config.width)
    if config.n_inputs == 1:  # an even grid, each set shifted by its share of one step
        steps = torch.arange(config.n_latents).repeat(n_sets, 1)
        shift = (torch.arange(n_sets)[:, None] + 0.5) / n_sets
        unit = ((steps + shift) / config.n_latents)[..., None]
    else:
        unit = torch.rand(n_sets, config.n_latents, config.n_inputs)
    points = config.input_low + (config.input_high - config.input_low) * unit
    return embedding.queries(points)
