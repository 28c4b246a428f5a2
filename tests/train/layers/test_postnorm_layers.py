from __future__ import annotations

import torch
from torch import nn

from edgefold.train.layers.postnorm_layers import PostNormLayer

ROWS, WIDTH, HEADS = 7, 16, 4


def layer_and_rows() -> tuple[PostNormLayer, torch.Tensor]:
    torch.manual_seed(0)
    return PostNormLayer(WIDTH, HEADS, 24), torch.randn(2, ROWS, WIDTH)


def as_torch(layer: PostNormLayer) -> nn.TransformerEncoderLayer:
    """torch's own encoder layer with the same weights."""
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, dropout=0.0, batch_first=True)

    def paired(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        linear = getattr(layer, name)
        return linear.weight.mT, linear.bias

    tensors: dict[str, torch.Tensor] = {}
    for name, ours in (
        ("self_attn.out_proj.", paired("out")),
        ("linear1.", paired("up")),
        ("linear2.", paired("down")),
        ("norm1.", (layer.norm.weight, layer.norm.bias)),
        ("norm2.", (layer.last_norm.weight, layer.last_norm.bias)),
    ):
        tensors |= {name + "weight": ours[0], name + "bias": ours[1]}
    for i, kind in enumerate(("weight", "bias")):
        tensors[f"self_attn.in_proj_{kind}"] = torch.cat([paired(n)[i] for n in "qkv"])
    theirs.load_state_dict(tensors)
    return theirs


def test_the_layer_is_the_one_of_vaswani_as_torch_has_it() -> None:
    layer, rows = layer_and_rows()
    visible = torch.rand(ROWS, ROWS) < 0.5
    visible.fill_diagonal_(True)
    # float32 sums of 24 numbers, added up in another order.
    torch.testing.assert_close(layer(rows), as_torch(layer)(rows), rtol=0, atol=2e-6)
    expected = as_torch(layer)(rows, src_mask=~visible)
    torch.testing.assert_close(layer(rows, visible), expected, rtol=0, atol=2e-6)


def test_a_row_sees_only_what_is_visible_to_it() -> None:
    layer, rows = layer_and_rows()
    visible = torch.ones(2, 1, 1, ROWS, dtype=torch.bool)
    visible[1, ..., 4:] = False
    before = layer(rows, visible)
    changed = rows.clone()
    changed[1, 4:] += 3
    after = layer(changed, visible)
    assert torch.equal(after[0], before[0]) and torch.equal(after[1, :4], before[1, :4])
    assert not torch.equal(after[1, 4:], before[1, 4:])


def test_a_row_that_sees_nothing_is_finite_and_attends_to_nothing() -> None:
    layer, rows = layer_and_rows()
    keys, values = layer.keys_values(rows)
    nothing = torch.zeros(1, ROWS, dtype=torch.bool)
    found = layer.step(rows, rows, keys, values, nothing)
    empty = layer.step(rows, rows, keys[..., :0, :], values[..., :0, :])
    torch.testing.assert_close(found, empty, rtol=0, atol=1e-6)
