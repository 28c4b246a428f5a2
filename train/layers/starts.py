"""Start layers from the distributions of published code, where they are not torch's default.

A default `Linear` starts from uniform numbers within 1 / sqrt(n_in), weights and biases alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from edgefold.train.layers.postnorm_layers import PostNormLayer


@torch.no_grad()
def start_alike(layers: Iterable[nn.Module]) -> None:
    """Give all layers the numbers of the first, as copies of one layer have them at the start.

    A layer may have parts that the first does not have; these keep their own numbers.
    """
    first, *others = layers or [nn.Identity()]
    for layer in others:
        unknown = layer.load_state_dict(first.state_dict(), strict=False).unexpected_keys
        assert not unknown, f"the first layer alone has {unknown}"


@torch.no_grad()
def start_stack_alike(parameters: Iterable[torch.Tensor]) -> None:
    """Give all copies on the leading axis of parameters (K, ...) the numbers of the first."""
    for parameter in parameters:
        parameter.copy_(parameter[:1].clone().expand_as(parameter))


@torch.no_grad()
def start_as_transformer(layers: Iterable[PostNormLayer]) -> None:
    """Start layers as torch's `TransformerEncoder` does.

    Queries, keys and values are one matrix (3D, D) of Xavier's uniform numbers; all biases of the
    attention are 0; and the layers are copies of one.
    """
    layers = list(layers)
    for layer in layers[:1]:
        bound = math.sqrt(6 / sum(layer.q.weight.shape + layer.k.weight.shape))
        for side in (layer.q, layer.k, layer.v):
            nn.init.uniform_(side.weight, -bound, bound)
        for part in (layer.q, layer.k, layer.v, layer.out):
            assert part.bias is not None
            nn.init.zeros_(part.bias)
    start_alike(layers)
