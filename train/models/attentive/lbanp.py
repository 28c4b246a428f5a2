"""Define LBANP, the latent bottlenecked attentive neural process (Feng et al., ICLR 2023).

Section 3.2: block k lets the latents attend to the context and then to themselves; query layer k
attends to the latents that block k has computed. The latents of every block but the first depend on
the context, so `refresh` computes them again: its cost grows with the points N as O(K N L D), and
all points must be kept. No later point changes a block's keys and values of a point: `update`
computes them once.

The device's form, `LbanpOnDevice`, does as little as possible and predicts the same.

A point is kept in one of two forms, with the capacity N, by `keep`:

    keys      keys (B, K*H, N, D/H + 1) and values (B, K*H, N, D/H) of every block
    points    points (B, N, D + 1), the normalised row and a 1

    update    one product makes all blocks' keys and values of the point
    refresh   K blocks of latents, to the keys and values of the query layers
    query     keys and values -> prediction

Empty slots need no mask. A kept key ends with 0, an empty one is 0 and ends with -1, and the
queries' last number is `NEGLIGIBLE` less the score of slot 0: an empty slot's score is that far
below a real one, whatever its size, and no weight is a denormal number. Empty values are 0, so that
a stream that has seen nothing attends to nothing, which is the prior. (A mask that is added to the
scores would cost a pass over them.)

Letters of shapes: B streams, N points, K blocks, L latents, H heads, D width.

Where the scores of all heads together are large, refresh goes head by head, so that they stay in a
core's cache and the largest tensor of the graph is smaller by the number of heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Cache, State, StreamingModel, initial_state_for
from edgefold.train.layers.attention import NEGLIGIBLE, Attention, FeedForward
from edgefold.train.layers.buffer_attention import with_key_column
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    ResidualNorm,
    Weights,
    constant_rows,
    exact,
    fold,
    normalise,
    scaled,
)
from edgefold.train.layers.latents import PUBLISHED_FORM, LatentsConfig, first_latents
from edgefold.train.layers.starts import start_alike
from edgefold.train.models.kept_points import PointsModel
from edgefold.train.models.latents_model import LatentsModel, LatentsOnDevice
from edgefold.train.published import Published, as_published
from edgefold.train.settings import PAPER_TRAINING
from edgefold.train.states.point_buffer import PointBuffer, real_points


@dataclass(frozen=True, slots=True)
class LbanpConfig(LatentsConfig):
    """Holds the sizes of an LBANP, and what it keeps of a point.

    The state holds `capacity` points: with `keep` "keys" the keys and values of every block, 2 K D
    floats a point; with "points" the embedded row, D floats, from which each refresh computes them.
    """

    capacity: int = 256
    when_full: str = "refuse"
    keep: Literal["keys", "points"] = "keys"

    def __post_init__(self) -> None:
        LatentsConfig.__post_init__(self)  # super() does not know a class with slots
        if self.keep not in ("keys", "points"):
            raise ValueError(f"keep is {self.keep!r}; take 'keys' or 'points'")


PRESETS = {
    "small": LbanpConfig(n_blocks=3, n_latents=32),
    "paper": LbanpConfig(**PUBLISHED_FORM),
}
"""Settings by name: `paper` has the published size, 792,514 parameters, and the published
initialisation; `small` trains on two cores in minutes."""
PUBLISHED = as_published(
    {"LBANP (128)": (1.27, 0.85), "LBANP (8)": (1.20, 0.75)},
    {"LBANP (128)": (3.97, 5.09, 5.84, 1.39, 1.17), "LBANP (8)": (3.50, 4.39, 4.94, 1.34, 1.05)},
)
"""Published log-likelihoods in nats: for GP tasks (RBF and Matern 5/2) table 2 of Feng et al. 2023,
for images its table 3."""


class LbanpBlock(nn.Module):
    """Holds the layers of one block of latents, and the query layer that attends to the block."""

    def __init__(self, config: LbanpConfig):
        super().__init__()
        self.context_attention = config.attention(True)
        self.context_ff = config.feed_forward()
        self.latent_attention = config.attention(False)
        self.latent_ff = config.feed_forward()
        self.query_attention = config.attention(True)
        self.query_ff = config.feed_forward()

    def encoded(self, hidden: Tensor, context: tuple[Tensor, Tensor], visible: Tensor) -> Tensor:
        """Return the latents (B, L, D) after the block.

        Args:
            hidden: Latents before the block, (B, L, D).
            context: Keys and values of the points, each (B, H, N, D/H).
            visible: True for points that exist, (B, N).
        """
        layer = self.context_attention
        attended = layer.attend(layer.queries(hidden), *context, visible)
        hidden = self.context_ff.added(layer.kept(hidden) + attended)
        return self.latent_ff.added(self.latent_attention.added(hidden))


class Lbanp(LatentsModel, PointsModel):
    """Predicts by K blocks of latents, which read all points kept, and K query layers.

    State, per stream: `count`, and of each point `keys` and `values`, each (N, K, H, D/H), or
    `points` (N, D), where N is the capacity.
    """

    name = "lbanp"
    presets: ClassVar[Mapping[str, LbanpConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = PUBLISHED

    def __init__(self, config: LbanpConfig):
        super().__init__(config)
        self.keep_points(config, row_shapes(config))
        self.input_latents = nn.Parameter(first_latents(config, self.embedding, 1)[0])  # (L, D)
        blocks = nn.ModuleList(LbanpBlock(config) for _ in range(config.n_blocks))
        self.blocks = cast("list[LbanpBlock]", blocks)
        if config.start == "published":
            start_alike(blocks)
        self.add_head()

    def query_layer(self, k: int) -> tuple[Attention, FeedForward]:
        return self.blocks[k].query_attention, self.blocks[k].query_ff

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        points = self.embedding.points(x, y)  # (B, D)
        if self.config.keep == "points":
            return self.buffer.written(state, {"points": points})
        contexts = self._contexts(points[:, None])
        keys, values = (torch.stack(side, 1).squeeze(-2) for side in zip(*contexts, strict=True))
        return self.buffer.written(state, {"keys": keys, "values": values})  # (B, K, H, D/H)

    def _contexts(self, points: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values (B, H, N, D/H) of embedded points (B, N, D) for each block."""
        return [block.context_attention.keys_values(points) for block in self.blocks]

    def refresh(self, state: State) -> Cache:
        if self.config.keep == "points":
            contexts = self._contexts(state["points"])
        else:
            sides = (state[name].permute(2, 0, 3, 1, 4) for name in ("keys", "values"))
            contexts = list(zip(*sides, strict=True))  # K times (B, H, N, D/H)
        return self.cache_of(self._outputs(contexts, self.buffer.visible(state)))

    def _outputs(self, contexts: list[tuple[Tensor, Tensor]], visible: Tensor) -> Iterator[Tensor]:
        """Yield the latents (B, L, D) after each block.

        Block k reads the keys and values contexts[k] of points where visible (B, N) is True.
        """
        hidden = self.input_latents.expand(len(visible), -1, -1)
        for block, context in zip(self.blocks, contexts, strict=True):
            hidden = block.encoded(hidden, context, visible)
            yield hidden

    def context_cache(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Cache:
        if x.shape[1] == 0:
            return self.refresh(initial_state_for(self, x))
        x, y, mask = real_points(x, y, mask)
        return self.cache_of(self._outputs(self._contexts(self.embedding.points(x, y)), mask))

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return LbanpOnDevice(self, n_streams)


def row_shapes(config: LbanpConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of the row that each state tensor keeps of a point, by its name."""
    if config.keep == "points":
        return {"points": (config.width,)}
    shape = (config.n_blocks, config.n_heads, config.width // config.n_heads)
    return {"keys": shape, "values": shape}


Contexts = list[tuple[Tensor, Tensor]]
"""Keys (B, heads, N, D/H + 1) and values (B, heads, N, D/H) of the points, for each group of
heads."""

MOST_SCORES = 2**18
"""Number of attention scores that are computed together, 1 MB of them: about half of a core's
cache."""


def folded_contexts(model: Lbanp) -> list[tuple[Weights, Weights]]:
    """Return the weights of each block's keys and values, which read normalised points.

    The layer norm is folded in. Each key gets one number more, a last 0, which marks a real point.
    """
    contexts = []
    for block in model.blocks:
        layer = block.context_attention
        assert layer.context_norm is not None
        weight, bias = (
            with_key_column(weights, layer.n_heads, 0.0)
            for weights in fold(layer.context_norm, layer.k)
        )
        contexts.append(((weight, bias), fold(layer.context_norm, layer.v)))
    return contexts


class KeptKeys(nn.Module):
    """Keeps the keys and values of each point for every block in the state.

    Args:
        model: The trained model.
        heads_at_once: Number of heads that attend at once: `contexts` returns groups of so many.
    """

    def __init__(self, model: Lbanp, heads_at_once: int):
        super().__init__()
        c = model.config
        self.step, self.n_heads, self.capacity = heads_at_once, c.n_heads, c.capacity
        head, all_heads = c.width // c.n_heads, c.n_blocks * c.n_heads
        rows = {"keys": (all_heads, head + 1), "values": (all_heads, head)}
        self.buffer = PointBuffer(c.capacity, c.when_full, rows, axis=2)
        keys, values = (
            Affine((torch.cat([w for w, _ in sides], 1), torch.cat([b for _, b in sides])))
            for sides in zip(*folded_contexts(model), strict=True)
        )
        self.keys, self.values = keys, values

    def initial_state(self, n_streams: int) -> State:
        state = self.buffer.initial_state(n_streams)
        return state | {"keys": state["keys"] - 1}

    def rows(self, normal: Tensor) -> State:
        """Compute the rows that the state keeps of normalised points (B, D), by tensor name."""
        shapes = self.buffer.rows
        return {
            name: layer(normal).view(-1, *shapes[name])
            for name, layer in (("keys", self.keys), ("values", self.values))
        }

    def contexts(self, state: State, k: int) -> Contexts:
        """Return block k's keys and values of the points, without a reservoir's spare slot."""
        starts = range(k * self.n_heads, (k + 1) * self.n_heads, self.step)
        return [
            (
                state["keys"][:, first : first + self.step, : self.capacity],
                state["values"][:, first : first + self.step, : self.capacity],
            )
            for first in starts
        ]


class KeptPoints(nn.Module):
    """Keeps each normalised point and a 1 in the state, from which keys and values are computed.

    Their biases multiply the 1. So an empty slot, which holds zeros, gets the value 0 and a key
    that ends with -1, the mark of an empty slot; keys of points end with 0.

    Args:
        model: The trained model.
        heads_at_once: Number of heads that attend at once: `contexts` returns groups of so many.
    """

    def __init__(self, model: Lbanp, heads_at_once: int):
        super().__init__()
        c = model.config
        self.step, self.capacity = heads_at_once, c.capacity
        self.buffer = PointBuffer(c.capacity, c.when_full, {"points": (c.width + 1,)})
        groups = c.n_heads // heads_at_once
        self.keys, self.values = nn.ModuleList(), nn.ModuleList()
        for (key, key_bias), (value, value_bias) in folded_contexts(model):
            last = with_key_column(torch.zeros(c.width).double(), c.n_heads, 1.0)
            keys = torch.vstack([key, key_bias + last]).chunk(groups, 1)
            values = torch.vstack([value, value_bias]).chunk(groups, 1)
            for layers, sides, bias in (
                (self.keys, keys, -last.chunk(groups)[0]),
                (self.values, values, torch.zeros(c.width // groups)),
            ):
                layers.append(nn.ModuleList(Affine((side, bias)) for side in sides))

    def initial_state(self, n_streams: int) -> State:
        return self.buffer.initial_state(n_streams)

    def rows(self, normal: Tensor) -> State:
        """Compute the rows that the state keeps of normalised points (B, D), by tensor name."""
        return {"points": F.pad(normal, (0, 1), value=1.0)}

    def contexts(self, state: State, k: int) -> Contexts:
        """Compute block k's keys and values of the points, without a reservoir's spare slot."""
        points = state["points"][:, : self.capacity]
        shape = (len(points), self.capacity, self.step, -1)
        rows = points.flatten(0, 1)
        keys, values = (cast(nn.ModuleList, side[k]) for side in (self.keys, self.values))
        return [
            (key(rows).view(shape).transpose(1, 2), value(rows).view(shape).transpose(1, 2))
            for key, value in zip(keys, values, strict=True)
        ]


class ContextAttention(nn.Module):
    """Lets latents attend to kept points, and to no empty slot.

    The last number of a key is 0 for a point and -1 for an empty slot; that of a query is so large
    that an empty slot gets no weight.

    Args:
        layer: The trained attention.
        n_streams: B, the number of streams.
        start: Latents of the first block, (B*L, D), which are constants; None for other blocks.
    """

    first_kept: Tensor | None
    first_queries: Tensor | None
    same: Tensor
    last: Tensor

    def __init__(self, layer: Attention, n_streams: int, start: Tensor | None):
        super().__init__()
        self.n_streams, self.n_heads = n_streams, layer.n_heads
        self.norm = ResidualNorm(layer.norm, layer.residual, torch.float32)
        weight, bias = scaled(self.norm.read_by(layer.q), layer.n_heads)
        query = (
            with_key_column(weight, layer.n_heads, 0.0),
            with_key_column(bias, layer.n_heads, NEGLIGIBLE),
        )
        self.out = Affine(exact(layer.out))
        # The first block's queries come from learned latents: constants.
        self.q = Affine(query) if start is None else None
        kept = queries = None
        if start is not None:
            kept, fixed = constant_rows(layer, start)
            queries = self._split(with_key_column(fixed, layer.n_heads, NEGLIGIBLE)).float()
        self.register_buffer("first_kept", None if kept is None else kept.float())
        self.register_buffer("first_queries", queries)
        self.register_buffer("same", torch.eye(layer.q.weight.shape[-1] // layer.n_heads + 1))
        self.register_buffer("last", self.same[-1])

    def _split(self, queries: Tensor) -> Tensor:
        return queries.view(self.n_streams, -1, self.n_heads, queries.shape[-1] // self.n_heads)

    def _hiding(self, keys: Tensor) -> Tensor:
        """Return a matrix (B, heads, D/H + 1, D/H + 1) that is multiplied to the queries.

        A key (B, heads, N, D/H + 1) of an empty slot is 0 but for its last number, -1, so its score
        is minus the query's last number. From that the matrix subtracts the query's score with the
        first slot: an empty slot then scores `NEGLIGIBLE` below the first one, whatever its size.
        """
        return self.same - keys[:, :, :1].mT * self.last

    def forward(self, hidden: Tensor, contexts: Contexts) -> Tensor:
        """Return the latents `hidden` (B*L, D) after they attended to the points.

        `contexts` holds the points' keys and values for each group of heads.
        """
        queries, kept = self.first_queries, self.first_kept
        if self.q is not None:
            normal = self.norm(hidden)
            queries, kept = self._split(self.q(normal)), self.norm.kept(hidden, normal)
        assert queries is not None and kept is not None
        groups = queries.transpose(1, 2).split(self.n_heads // len(contexts), 1)
        attended = [
            torch.softmax(q @ self._hiding(keys) @ keys.mT, -1) @ values
            for q, (keys, values) in zip(groups, contexts, strict=True)
        ]  # (B, heads, L, D/H)
        rows = torch.cat(attended, 1).transpose(1, 2).reshape(hidden.shape)
        return self.out(rows) + kept


class LbanpBlockOnDevice(nn.Module):
    """Runs a block of latents on a device; `start` (B*L, D) are the first block's, else None."""

    def __init__(self, block: LbanpBlock, n_streams: int, start: Tensor | None):
        super().__init__()
        single = torch.float32
        self.context_attention = ContextAttention(block.context_attention, n_streams, start)
        self.context_ff = FeedForwardOnDevice(block.context_ff, single)
        self.latent_attention = AttentionOnDevice(block.latent_attention, n_streams, single)
        self.latent_ff = FeedForwardOnDevice(block.latent_ff, single)

    def forward(self, hidden: Tensor, contexts: Contexts) -> Tensor:
        hidden = self.context_ff(self.context_attention(hidden, contexts))
        latents: Tensor = self.latent_ff(self.latent_attention(hidden))
        return latents


class LbanpOnDevice(LatentsOnDevice):
    """Runs an LBANP on a device, for a fixed number of streams, with constants folded."""

    start: Tensor

    def __init__(self, model: Lbanp, n_streams: int):
        super().__init__(model, n_streams)
        c = model.config
        n_scores = n_streams * c.n_heads * c.n_latents * c.capacity
        heads_at_once = c.n_heads if n_scores <= MOST_SCORES else 1
        keeper = KeptKeys if c.keep == "keys" else KeptPoints
        self.kept = keeper(model, heads_at_once)
        self.rings = self.kept.buffer.rings
        start = model.input_latents.detach().double().repeat(n_streams, 1)
        self.register_buffer("start", start.float())
        self.blocks = nn.ModuleList(
            LbanpBlockOnDevice(block, n_streams, None if k else start)
            for k, block in enumerate(model.blocks)
        )
        self.add_decoder(model)

    def initial_state(self, n_streams: int = 1) -> State:
        return self.kept.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        normal = normalise(self.embedding(x, y))
        # What is kept is a linear function of the normalised row: it is finite if the row is.
        return self.kept.buffer.written(state, self.kept.rows(normal), normal.sum(1))

    def refresh(self, state: State) -> Cache:
        hidden, cache = self.start, Cache()
        for k, block in enumerate(self.blocks):
            hidden = block(hidden, self.kept.contexts(state, k))
            cache |= self.decoder.cached(k, hidden)
        return cache
