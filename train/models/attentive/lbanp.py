"""Define LBANP, the latent bottlenecked attentive neural process (Feng et al., ICLR 2023).

Section 3.2: block k lets the latents attend to the context and then to themselves; query layer k
attends to the latents that block k has computed. In LBANP-L (appendix B.3) the only query layer
attends to those of the last block. The latents of every block but the first depend on the context,
so `refresh` computes them again: its cost grows with the points N as O(K N L D), and all points
must be kept. No later point changes a block's keys and values of a point: `update` computes them
once.

The device's form, `LbanpOnDevice`, does as little as possible and predicts the same.

    update    one product makes all blocks' keys and values of the point
    refresh   K blocks of latents, to the keys and values of the query layers
    query     keys and values -> prediction

`kept_context` describes its state, and how latents attend to it.

Letters of shapes: B streams, N points, K blocks, L latents, H heads, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, State, StreamingModel, initial_state_for
from edgefold.train.layers.attention import Attention, FeedForward
from edgefold.train.layers.device_layers import (
    AttentionOnDevice,
    FeedForwardOnDevice,
    normalise,
)
from edgefold.train.layers.latents import PUBLISHED_FORM, LatentsConfig, first_latents
from edgefold.train.layers.starts import start_alike
from edgefold.train.models.attentive.kept_context import (
    MOST_SCORES,
    ContextAttention,
    Contexts,
    KeptKeys,
    KeptPoints,
)
from edgefold.train.models.kept_points import PointsModel
from edgefold.train.models.latents_model import LatentsModel, LatentsOnDevice
from edgefold.train.published import Published, as_published
from edgefold.train.settings import PAPER_TRAINING
from edgefold.train.states.point_buffer import real_points

Queries = Literal["each", "last"]
"""Query layers: each block has one, by which targets attend to its latents, or only the last block
does, as in LBANP-L (Feng et al. 2023, appendix B.3) and Perceiver IO."""


@dataclass(frozen=True, slots=True)
class KeptLatentsConfig(LatentsConfig):
    """Holds the sizes of a model whose latents read kept points, and what it keeps of a point.

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


@dataclass(frozen=True, slots=True)
class LbanpConfig(KeptLatentsConfig):
    """Holds the settings of an LBANP; `queries` is described at `Queries`."""

    queries: Queries = "each"


PRESETS = {
    "small": LbanpConfig(n_blocks=3, n_latents=32),
    "paper": LbanpConfig(**PUBLISHED_FORM),
}
"""Settings by name: `paper` has the published size, 792,514 parameters, and the published
initialisation; `small` trains on two cores in minutes."""
PUBLISHED = as_published(
    {"LBANP (128)": (1.27, 0.85), "LBANP (8)": (1.20, 0.75)},
    {
        "LBANP (128)": (3.97, 5.09, 5.84, 1.39, 1.17),
        "LBANP (8)": (3.50, 4.39, 4.94, 1.34, 1.05),
        "LBANP-L (128)": (3.78, 4.90, None, None, None),
    },
)
"""Published log-likelihoods in nats, Feng et al. 2023: for GP tasks (RBF and Matern 5/2) table 2,
for images table 3; LBANP-L (`queries` "last") table 6."""


class LbanpBlock(nn.Module):
    """Holds the layers of one block of latents, and the query layer that attends to the block.

    A block that targets do not read has no query layer.
    """

    def __init__(self, config: LatentsConfig, is_read: bool = True):
        super().__init__()
        self.context_attention = config.attention(True)
        self.context_ff = config.feed_forward()
        self.latent_attention = config.attention(False)
        self.latent_ff = config.feed_forward()
        if is_read:
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
    """Predicts by K blocks of latents, which read all points kept, and K query layers or one.

    State, per stream: `count`, and of each point `keys` and `values`, each (N, K, H, D/H), or
    `points` (N, D), where N is the capacity.
    """

    name = "lbanp"
    presets: ClassVar[Mapping[str, KeptLatentsConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = PUBLISHED

    def __init__(self, config: KeptLatentsConfig, n_classes: int = 0):
        super().__init__(config, n_classes)
        self.keep_points(config, row_shapes(config))
        self.input_latents = nn.Parameter(first_latents(config, self.embedding, 1)[0])  # (L, D)
        first = self.first_read
        blocks = nn.ModuleList(LbanpBlock(config, k >= first) for k in range(config.n_blocks))
        self.blocks = cast("list[LbanpBlock]", blocks)
        if config.start == "published":
            start_alike(blocks)
        self.add_head()

    @property
    def n_query_layers(self) -> int:
        each: bool = self.config.queries == "each"
        return self.config.n_blocks if each else 1

    @property
    def first_read(self) -> int:
        """Return the number of the first block whose latents targets read; they read all later."""
        n_blocks: int = self.config.n_blocks
        return n_blocks - self.n_query_layers

    def query_layer(self, k: int) -> tuple[Attention, FeedForward]:
        block = self.blocks[self.first_read + k]
        return block.query_attention, block.query_ff

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        points = self._points(x, y)  # (B, D)
        if self.config.keep == "points":
            return self.buffer.written(state, {"points": points})
        contexts = self._contexts(points[:, None])
        keys, values = (torch.stack(side, 1).squeeze(-2) for side in zip(*contexts, strict=True))
        return self.buffer.written(state, {"keys": keys, "values": values})  # (B, K, H, D/H)

    def _points(self, x: Tensor, y: Tensor) -> Tensor:
        points: Tensor = self.embedding.points(x, self.outputs.encoded(y))
        return points

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
        """Yield the latents (B, L, D) after each block that targets read.

        Block k reads the keys and values contexts[k] of points where visible (B, N) is True.
        """
        hidden = self.input_latents.expand(len(visible), -1, -1)
        for k, (block, context) in enumerate(zip(self.blocks, contexts, strict=True)):
            hidden = block.encoded(hidden, context, visible)
            if k >= self.first_read:
                yield hidden

    def context_cache(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Cache:
        if x.shape[1] == 0:
            return self.refresh(initial_state_for(self, x))
        x, y, mask = real_points(x, y, mask)
        return self.cache_of(self._outputs(self._contexts(self._points(x, y)), mask))

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return LbanpOnDevice(self, n_streams)


def row_shapes(config: KeptLatentsConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of the row that each state tensor keeps of a point, by its name."""
    if config.keep == "points":
        return {"points": (config.width,)}
    shape = (config.n_blocks, config.n_heads, config.width // config.n_heads)
    return {"keys": shape, "values": shape}


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
        self.outputs, self.first_read = model.outputs, model.first_read
        c = model.config
        n_scores = n_streams * c.n_heads * c.n_latents * c.capacity
        heads_at_once = c.n_heads if n_scores <= MOST_SCORES else 1
        keeper = KeptKeys if c.keep == "keys" else KeptPoints
        self.kept = keeper(c, [block.context_attention for block in model.blocks], heads_at_once)
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
        normal = normalise(self.embedding(x, self.outputs.encoded(y)))
        # What is kept is a linear function of the normalised row: it is finite if the row is.
        return self.kept.buffer.written(state, self.kept.rows(normal), normal.sum(1))

    def refresh(self, state: State) -> Cache:
        hidden, cache = self.start, Cache()
        for k, block in enumerate(self.blocks):
            hidden = block(hidden, self.kept.contexts(state, k))
            if k >= self.first_read:
                cache |= self.decoder.cached(k - self.first_read, hidden)
        return cache
