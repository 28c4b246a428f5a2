"""CANP and ANP rewritten so that a device does as little as possible.

    update    embeds a point three times and keeps the rows: of path 1, of path 2, of x alone
    refresh   self-attention of both paths (`buffer_attention`), keys and values of targets, and
              what path 2 adds to the decoder's first layer
    query     attention of targets, decoder

The first layers of the three embeddings are one matrix. Linear layers that follow each other are
one: the last of x's embedding and those of keys and queries, and the last of path 2 and the
decoder's first. Queries, keys and values of self-attention are not kept as in `canp`: they are
cheap beside the attention, and a point's row of three vectors instead of seven is a smaller state
and a faster update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import SEED, Cache, Prediction, State, StreamingModel
from edgefold.train.layers.attention import LayerNorm, Linear
from edgefold.train.layers.buffer_attention import BufferAttention, Slots
from edgefold.train.layers.device_layers import Affine, Weights, exact, rounded
from edgefold.train.models.neural_processes.anp_layers import Path, ResidualAttention
from edgefold.train.models.neural_processes.np_layers import latent_std
from edgefold.train.models.neural_processes.pooling_device import (
    PoolingDecoderOnDevice,
    composed,
    linear_layers,
    squares,
)

if TYPE_CHECKING:
    from edgefold.train.models.neural_processes.anp import Anp
    from edgefold.train.models.neural_processes.canp import Canp

ROWS = ("rows_cross", "rows_pooled", "rows_x")
"""What is kept of a point, (D,) each."""


def without_bias(linear: Linear) -> Weights:
    """The weights of a layer that has no bias."""
    weight = linear.weight.double()
    return weight, weight.new_zeros(weight.shape[-1])


def norm_on_device(norm: LayerNorm) -> LayerNorm:
    """A copy that is no part of the model."""
    found = LayerNorm(len(norm.weight))
    found.load_state_dict(norm.state_dict())
    return found


class ResidualAttentionOnDevice(nn.Module):
    """Attention of the published form, to rows (B*N, D) of the buffer.

    Args:
        layer: The trained form.
        before: A linear layer between rows and the layers of queries and keys, if there is one.
    """

    def __init__(self, layer: ResidualAttention, n_streams: int, before: Weights | None = None):
        super().__init__()
        q, k = without_bias(layer.q), without_bias(layer.k)
        if before is not None:
            q, k = composed(before, q), composed(before, k)
        v = without_bias(layer.v)
        self.kernel = BufferAttention(q, k, v, layer.n_heads, n_streams)
        self.residual, self.out = Affine(q), Affine(exact(layer.out))
        self.norm, self.out_norm = norm_on_device(layer.norm), norm_on_device(layer.out_norm)

    def forward(self, rows: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What rows find, (rows, D)."""
        attended = self.kernel.attended(self.kernel.queries(rows), keys, values)
        return self.after(self.residual(rows) + attended)

    def after(self, total: Tensor) -> Tensor:
        """What follows the attention, row by row: (rows, D)."""
        hidden = self.norm(total)
        return self.out_norm(hidden + torch.relu(self.out(hidden)))

    def among(self, rows: Tensor, slots: Slots) -> Tensor:
        """Self-attention."""
        return self(rows, *self.kernel.keys_values(rows, slots))


class EmbeddingsOnDevice(nn.Module):
    """Points to what is kept of them."""

    def __init__(self, paths: tuple[Path, Path], of_inputs: Weights, n_outputs: int):
        super().__init__()
        layers = [linear_layers(path.embed) for path in paths]
        weight, bias = of_inputs
        blind = torch.cat([weight, weight.new_zeros(n_outputs, weight.shape[1])])  # to y
        firsts = [*(own[0] for own in layers), (blind, bias)]
        weights, biases = zip(*firsts, strict=True)
        self.first = Affine((torch.hstack(weights), torch.hstack(biases)))
        self.second = nn.ModuleList(Affine(own[1]) for own in layers)

    def forward(self, points: Tensor) -> list[Tensor]:
        """Points (rows, X + Y) -> `ROWS`, (rows, D) each."""
        *halves, of_x = torch.relu(self.first(points)).chunk(3, -1)
        pairs = zip(self.second, halves, strict=True)
        return [*(torch.relu(layer(half)) for layer, half in pairs), of_x]


class CanpOnDevice(StreamingModel):
    """A CANP for a fixed number of streams.

    State, per stream: `ROWS` (B, slots, D) and `count`. Cache: `keys` (B, H, D/H + 1, slots) and
    `values` (B, H, slots, D/H); `hidden` (B, 1, D), what path 2 adds to the decoder's first layer.
    """

    of_found: Tensor

    @torch.no_grad()
    def __init__(self, model: Canp, n_streams: int):
        super().__init__()
        self.config, self.prediction, self.n_streams = model.config, model.prediction, n_streams
        self.n_inputs, self.n_outputs = model.n_inputs, model.n_outputs
        self.capacity, self.when_full = model.capacity, model.when_full
        self.ordered, self.input_range = model.ordered, model.input_range
        rows = {**dict.fromkeys(ROWS, (model.config.width,)), **model.buffer.rows}
        del rows["points"]
        self.buffer = type(model.buffer)(model.capacity, model.when_full, rows)
        self.rings = self.buffer.rings
        encoders, decoder, width = model.encoders, model.decoder, model.config.width
        of_inputs, last = linear_layers(encoders.of_inputs)
        paths = encoders.cross_path, encoders.pooled_path
        self.embeddings = EmbeddingsOnDevice(paths, of_inputs, model.n_outputs)
        self.of_inputs = Affine(of_inputs)
        self.cross = ResidualAttentionOnDevice(encoders.cross, n_streams, last)
        self.paths = cast(
            "list[ResidualAttentionOnDevice]",
            nn.ModuleList(
                ResidualAttentionOnDevice(path.attention, self.n_encoded) for path in paths
            ),
        )
        first, last = linear_layers(encoders.after)
        self.after = Affine(first)
        weight, bias = exact(decoder.first)
        self.fold_pooled(model, last, (weight[width : 2 * width], bias * 0))
        self.inputs = Affine((weight[2 * width :], bias))
        self.register_buffer("of_found", rounded(weight[:width], torch.float32))
        self.decoder = PoolingDecoderOnDevice(decoder, model.n_outputs)

    @property
    def n_encoded(self) -> int:
        """Contexts that self-attention encodes at once."""
        return self.n_streams

    def fold_pooled(self, model: Canp, last: Weights, of_pooled: Weights) -> None:
        """Make what leads from path 2 to the decoder's first layer.

        Args:
            model: The trained form.
            last: The last layer of path 2.
            of_pooled: The decoder's first layer, for what path 2 says.
        """
        self.of_pooled = Affine(composed(last, of_pooled))

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = self.embeddings(torch.cat([x, y], -1))
        found = dict(zip(ROWS, rows, strict=True))
        return self.buffer.written(state, found, squares(x, y).sum(1))

    def refresh(self, state: State) -> Cache:
        slots = self.cross.kernel.slots(self.buffer.visible(state))
        of_cross, of_pooled, of_x = (slots.filled(state[name]) for name in ROWS)
        values = self.cross.kernel.values(self.paths[0].among(of_cross, slots), slots)
        keys = self.cross.kernel.keys(of_x, slots)
        pooled = self.pooled(self.paths[1].among(of_pooled, slots), slots.real)
        hidden = self.hidden(pooled, state)
        return {"keys": keys.contiguous(), "values": values.contiguous(), "hidden": hidden}

    def pooled(self, rows: Tensor, weight: Tensor) -> Tensor:
        """The hidden layer behind the mean of rows, by weights, of each context: (contexts, D)."""
        weight = weight.reshape(-1, 1, self.slots)
        total = (weight @ rows.view(len(weight), self.slots, -1))[:, 0]
        return torch.relu(self.after(total / weight.sum(-1).clamp(min=1.0)))

    @property
    def slots(self) -> int:
        """Slots of the buffer."""
        return self.capacity + self.buffer.is_reservoir

    def hidden(self, pooled: Tensor, state: State) -> Tensor:
        """What path 2 adds to the decoder's first layer."""
        return self.of_pooled(pooled)[:, None]

    def at(self, cache: Cache, x: Tensor) -> Tensor:
        """What targets x (B, M, X) and what they find add to the first layer: (B, M, D)."""
        rows = x.flatten(0, 1)
        found = self.cross(torch.relu(self.of_inputs(rows)), cache["keys"], cache["values"])
        return torch.addmm(self.inputs(rows), found, self.of_found).unflatten(0, x.shape[:2])

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder.answer(self.at(cache, x) + cache["hidden"])
        return {"mean": mean, "std": std}


class AnpOnDevice(CanpOnDevice):
    """An ANP for a fixed number of streams: `hidden` is (B, 1, S, D), and `seed` in the state."""

    of_latent: Tensor

    def fold_pooled(self, model: Canp, last: Weights, of_pooled: Weights) -> None:
        width, (weight, bias) = model.config.width, last
        self.latent_mean = Affine((weight[:, :width], bias[:width]))
        self.latent_std = Affine((weight[:, width:], bias[width:]))
        self.register_buffer("of_latent", rounded(of_pooled[0], torch.float32))
        self.noise = cast("Anp", model).noise

    def initial_state(self, n_streams: int = 1) -> State:
        seed = torch.zeros(n_streams, dtype=torch.int64)
        return {**super().initial_state(n_streams), SEED: seed}

    def hidden(self, pooled: Tensor, state: State) -> Tensor:
        mean, std = self.latent_mean(pooled), latent_std(self.latent_std(pooled))
        samples = mean[:, None] + std[:, None] * self.noise(state[SEED])  # (B, S, D)
        return (samples @ self.of_latent)[:, None]

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder.answer(self.at(cache, x)[:, :, None] + cache["hidden"])
        return {"mean": mean, "std": std}
