"""TNPs rewritten so that a device does as little as possible; they predict what TNPs predict.

Beside attention without masks (`buffer_attention`) no addition is left that a product could do. An
output layer adds its input, the residual connection, in place of its bias. The bias is already in
that input: the layer norm before it adds both, and what else reads the sum subtracts it again,
which is a constant in its own bias.

    x' = x + bias of `out`             comes from the layer before, or from the embedding
    h' = norm(x' + attended W_out) + bias of `down`
    y' = norm(h' + relu(h' W_up + ...) W_down) + bias of the next layer's `out`
"""

from __future__ import annotations

import copy
from itertools import repeat
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.attention import LayerNorm, Linear
from edgefold.train.layers.buffer_attention import BufferAttention
from edgefold.train.layers.decoder_device import GaussianOutput
from edgefold.train.layers.device_layers import Affine, Weights, exact, rounded
from edgefold.train.layers.embeddings import FourierEmbedding
from edgefold.train.layers.embeddings_device import FourierOnDevice
from edgefold.train.layers.postnorm_layers import PostNormLayer

if TYPE_CHECKING:
    from edgefold.train.models.attentive.tnp import Tnp, TokenEmbedding
    from edgefold.train.models.attentive.tnp_d import TnpD
    from edgefold.train.models.attentive.tnp_nd import TnpNd


def _shifted(linear: Linear, shift: Tensor) -> Weights:
    """`linear(x)` as a function of x + shift."""
    weight, bias = exact(linear)
    return weight, bias - shift @ weight


class NormOnDevice(nn.Module):
    """Layer normalisation whose shift holds what the next residual connection needs."""

    weight: Tensor
    bias: Tensor

    def __init__(self, norm: LayerNorm, shift: Tensor):
        super().__init__()
        self.register_buffer("weight", norm.weight.detach().clone())
        self.register_buffer("bias", rounded(norm.bias.double() + shift, torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, LayerNorm.eps)


class PostNormOnDevice(nn.Module):
    """One layer, over rows (B*rows, D); `following` is the bias that the next layer needs in it."""

    out: Tensor
    down: Tensor

    def __init__(self, layer: PostNormLayer, following: Tensor, n_streams: int):
        super().__init__()
        out, down = exact(layer.out), exact(layer.down)
        q, v = _shifted(layer.q, out[1]), _shifted(layer.v, out[1])
        self.attention = BufferAttention(q, exact(layer.k), v, layer.n_heads, n_streams)
        self.register_buffer("out", rounded(out[0], torch.float32))
        self.norm = NormOnDevice(layer.norm, down[1])
        self.up = Affine(_shifted(layer.up, down[1]))
        self.register_buffer("down", rounded(down[0], torch.float32))
        self.last_norm = NormOnDevice(layer.last_norm, following)

    def forward(self, rows: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attended = self.attention.attended(self.attention.queries(rows), keys, values)
        hidden = self.norm(torch.addmm(rows, attended, self.out))
        risen = torch.relu(self.up(hidden))
        return self.last_norm(torch.addmm(hidden, risen, self.down))


class TokensOnDevice(nn.Module):
    """The published embedder of points (rows, X) and (rows, Y), or of targets without y."""

    def __init__(self, layer: TokenEmbedding, n_inputs: int):
        super().__init__()
        first, *rest = (exact(part) for part in layer.layers if isinstance(part, Linear))
        self.first = Affine(first)
        self.first_query = Affine((first[0][:n_inputs], first[1]))
        self.rest = nn.ModuleList(map(Affine, rest))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        rows = self.first_query(x) if y is None else self.first(torch.cat([x, y], -1))
        for layer in self.rest:
            rows = layer(torch.relu(rows))
        return rows


@torch.no_grad()
def _embedding(model: Tnp, shift: Tensor) -> FourierOnDevice | TokensOnDevice:
    """The model's embedding plus a shift."""
    embedding = copy.deepcopy(model.embedding)
    last = embedding.down if isinstance(embedding, FourierEmbedding) else embedding.layers[-1]
    assert isinstance(last, Linear) and last.bias is not None
    last.bias.copy_(last.bias.double() + shift)
    if isinstance(embedding, FourierEmbedding):
        return FourierOnDevice(embedding)
    return TokensOnDevice(embedding, model.n_inputs)


class TnpOnDevice(StreamingModel):
    """The rewrite of one model for a fixed number of streams; see the top of this file.

    The state is that of `Tnp`, with x' as points. Cache: `keys_k` and `values_k` of each layer, in
    the shapes of `buffer_attention`.
    """

    def __init__(self, model: Tnp, n_streams: int):
        super().__init__()
        self.config, self.buffer, self.n_streams = model.config, model.buffer, n_streams
        self.n_inputs, self.n_outputs = model.n_inputs, model.n_outputs
        self.rings, self.capacity, self.when_full = model.rings, model.capacity, model.when_full
        self.ordered, self.input_range = model.ordered, model.input_range
        self.prediction = model.prediction
        biases = [exact(layer.out)[1] for layer in model.layers]
        following = [*biases[1:], torch.zeros_like(biases[0])]
        layers = map(PostNormOnDevice, model.layers, following, repeat(n_streams))
        self.layers = cast("list[PostNormOnDevice]", nn.ModuleList(layers))
        self.embedding = _embedding(model, biases[0])

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {"points": self.embedding(x, y)})

    def refresh(self, state: State) -> Cache:
        slots = self.layers[0].attention.slots(self.buffer.visible(state))
        rows = slots.filled(state["points"])  # (B*N, D)
        cache: Cache = {}
        for k, layer in enumerate(self.layers):
            keys, values = layer.attention.keys_values(rows, slots)
            cache |= {f"keys_{k}": keys.contiguous(), f"values_{k}": values.contiguous()}
            if k + 1 < len(self.layers):
                rows = layer(rows, keys, values)
        return cache

    def targets(self, cache: Cache, x: Tensor) -> Tensor:
        """Encoded targets (B*M, D) for x (B, M, X)."""
        rows = self.embedding(x.reshape(-1, self.n_inputs))
        for k, layer in enumerate(self.layers):
            rows = layer(rows, cache[f"keys_{k}"], cache[f"values_{k}"])
        return rows


class TnpDOnDevice(TnpOnDevice):
    """The rewrite of TNP-D."""

    def __init__(self, model: TnpD, n_streams: int):
        super().__init__(model, n_streams)
        self.up = Affine(exact(model.head_up))
        self.output = GaussianOutput(model.head_down, model.outputs)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.up(self.targets(cache, x)))
        told: Prediction = self.output(hidden, (*x.shape[:2], self.n_outputs))
        return told


class TnpNdOnDevice(TnpOnDevice):
    """The rewrite of TNP-ND; its head is small and stays as it is."""

    def __init__(self, model: TnpNd, n_streams: int):
        super().__init__(model, n_streams)
        self.head = model.head

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        targets = self.targets(cache, x).view(*x.shape[:2], -1)
        return self.head(targets, mask)
