"""Weights of `paper` start from the distributions of the published code, held by their bounds."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgefold.train.layers.attention import LayerNorm, Linear
from edgefold.train.layers.postnorm_layers import PostNormLayer
from edgefold.train.models.registry import model_class

POOLING = "cnp", "np", "bnp"
ATTENTIVE = "canp", "anp", "banp"
TRANSFORMERS = "tnp-d", "tnp-a", "tnp-nd"
CLONED = {"eqtnp": ("encoders", "queries"), "lbanp": ("blocks",), "retreever": ("encoder",)} | {
    "cmanp": ("block_attention", "block_ff", "block_self_attention", "query_attention", "query_ff"),
    "transformer-ca": ("encoders",),
    **dict.fromkeys(TRANSFORMERS, ("layers",)),
    "lbanp-nd": ("blocks", "head.attention.layers"),
    "lbanp-end": ("blocks", "head.attention.blocks"),
}
"""Layers that the published code makes as copies of one."""
NAMES = (*POOLING, *ATTENTIVE, *CLONED)


def paper(name: str, start: str = "") -> Any:
    torch.manual_seed(0)
    of: Any = model_class(name)
    preset = of.presets["paper"]
    return of(replace(preset, start=start) if start else preset)


def require_uniform(tensor: Tensor, bound: float) -> None:
    """Hold that all numbers are within the bound, and that they reach it as uniform ones do."""
    share = tensor.detach().abs().flatten() / bound
    n = len(share)
    assert share.max() <= 1 + 1e-6
    # Of n uniform numbers the largest is below 1 - 12 / n with a chance of e^-12.
    assert share.max() > 1 - 12 / n
    # The mean is 1/2, with a standard error of 0.29 / sqrt(n); five of them.
    assert abs(share.mean() - 0.5) < 5 * 0.29 / math.sqrt(n)


def linear_layers(model: nn.Module) -> dict[str, Linear]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, Linear)}


@pytest.mark.parametrize("name", NAMES)
def test_linear_layers_start_uniform_within_the_root_of_their_inputs(name: str) -> None:
    model = paper(name)
    of_attention = [
        f"{at}.{side}"
        for at, layer in model.named_modules()
        if isinstance(layer, PostNormLayer)
        for side in "qkv"
    ]
    for at, layer in linear_layers(model).items():
        bound = 1 / math.sqrt(layer.weight.shape[-2])
        if at not in of_attention:
            require_uniform(layer.weight, bound)
        if layer.bias is not None and layer.bias.any():
            require_uniform(layer.bias, bound)
    for layer in model.modules():
        if isinstance(layer, LayerNorm):
            assert (layer.weight == 1).all() and not layer.bias.any()


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_attention_of_a_tnp_starts_as_torchs(name: str) -> None:
    """torch's own encoder layer has the same bounds, and the same biases of 0."""
    model = paper(name)
    width = model.config.width
    torchs = nn.TransformerEncoderLayer(width, model.config.n_heads, model.config.feedforward)
    joined = torchs.self_attn.in_proj_weight
    bound = math.sqrt(6 / sum(joined.shape))
    require_uniform(joined, bound)
    require_uniform(torchs.self_attn.out_proj.weight, 1 / math.sqrt(width))
    layers: list[Any] = [part for part in model.modules() if isinstance(part, PostNormLayer)]
    assert len(layers) == (8 if name == "tnp-nd" else 6)
    for layer in layers:
        for side in (layer.q, layer.k, layer.v):
            require_uniform(side.weight, bound)
            assert not side.bias.any()
        assert not layer.out.bias.any()
        assert layer.up.bias.any() and layer.down.bias.any()
    assert not torchs.self_attn.in_proj_bias.any() and not torchs.self_attn.out_proj.bias.any()


@pytest.mark.parametrize("name", CLONED)
def test_copies_of_a_layer_start_from_the_same_numbers(name: str) -> None:
    for start in ("published", "ours"):
        model = paper(name, start)
        for group in CLONED[name]:
            layers = model.get_submodule(group)
            first, second, *_ = (layer.state_dict() for layer in layers)
            weights = [part for part in first if part.endswith("weight") and "norm" not in part]
            alike = [torch.equal(first[part], second[part]) for part in weights]
            assert all(alike) if start == "published" else not any(alike)


@pytest.mark.parametrize("name", POOLING)
def test_the_decoder_of_a_pooling_process_starts_as_every_layer_does(name: str) -> None:
    for start in ("published", "ours"):
        decoder = paper(name, start).decoder
        wide = decoder.first.weight[decoder.n_encoded :].abs().max() > 0.5
        assert wide == (start == "ours")
        if start == "published":
            require_uniform(decoder.first.bias, 1 / math.sqrt(decoder.first.weight.shape[0]))


def test_blocks_of_cmanp_start_as_copies_of_one() -> None:
    for start in ("published", "ours"):
        model = paper("cmanp", start)
        stacks = [model.block_latents, model.context_attention.q.weight, model.latent_ff.up.weight]
        alike = [torch.equal(stack[0], stack[-1]) for stack in stacks]
        assert all(alike) if start == "published" else not any(alike)


@pytest.mark.parametrize("name", ["lbanp", "cmanp"])
def test_latents_start_as_standard_normal_numbers(name: str) -> None:
    latents = paper(name).input_latents.detach()
    # Five standard errors of 128 x 64 numbers.
    assert abs(latents.mean()) < 5 / math.sqrt(latents.numel())
    assert abs(latents.var() - 1) < 5 * math.sqrt(2 / latents.numel())
    assert latents.abs().max() > 3


def test_small_presets_start_as_before() -> None:
    for name in NAMES:
        of: Any = model_class(name)
        preset = of.presets["small"]
        assert "start" not in {field.name for field in fields(preset)} or preset.start == "ours"
