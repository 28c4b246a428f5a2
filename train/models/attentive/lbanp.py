"""LBANP: the latent bottlenecked attentive neural process (Feng et al., ICLR 2023).

Section 3.2: block k lets the latents attend to the context and then to themselves; query layer k
attends to what block k gave out. The latents of every block but the first depend on the context, so
`refresh` computes them anew: its cost grows with the points N as O(K N L D), and all points must be
kept. What no later point changes is every block's keys and values of a point: `update` computes
them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import (
    Cache,
    Prediction,
    State,
    StreamingModel,
    initial_state_beside,
)
from edgefold.train.layers.attention import FeedForward, LayerNorm, Linear
from edgefold.train.layers.embeddings import embedding_of
from edgefold.train.layers.latents import LatentsConfig, first_latents
from edgefold.train.layers.prediction_head import Outputs
from edgefold.train.models.attentive.lbanp_device import LbanpOnDevice
from edgefold.train.paper_training import PAPER_TRAINING
from edgefold.train.published import Published, as_published
from edgefold.train.states.point_buffer import PointBuffer


@dataclass(frozen=True, slots=True)
class LbanpConfig(LatentsConfig):
    """The shape of an LBANP and what it keeps.

    The state holds `capacity` points, each as the `keys` and values of every block (2 K D floats)
    or as its embedded row (`points`, D floats), from which refresh computes keys and values again.
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
    "paper": LbanpConfig(embedding="mlp", latents="normal", query_gain=1.0),
}
"""`paper` has the published size, 792,514 parameters, and the published initialisation; `small`
trains on two cores in minutes."""
PUBLISHED = as_published(
    {"LBANP (128)": (1.27, 0.85), "LBANP (8)": (1.20, 0.75)},
    {"LBANP (128)": (3.97, 5.09, 5.84, 1.39, 1.17)},
)
"""Log-likelihood under RBF and Matern 5/2, table 2 of Feng et al. 2023."""


class LbanpBlock(nn.Module):
    """One block of latents, and the query layer that attends to it."""

    def __init__(self, config: LbanpConfig):
        super().__init__()
        self.context_attention = config.attention(True)
        self.context_ff = FeedForward(config.width, config.feedforward)
        self.latent_attention = config.attention(False)
        self.latent_ff = FeedForward(config.width, config.feedforward)
        self.query_attention = config.attention(True)
        self.query_ff = FeedForward(config.width, config.feedforward)

    def encoded(self, hidden: Tensor, context: tuple[Tensor, Tensor], visible: Tensor) -> Tensor:
        """The latents (B, L, D) after this block; the context is keys and values (B, H, N, D/H)."""
        layer = self.context_attention
        hidden = hidden + layer.attend(layer.queries(hidden), *context, visible)
        hidden = hidden + self.context_ff(hidden)
        hidden = hidden + self.latent_attention(hidden)
        encoded: Tensor = hidden + self.latent_ff(hidden)
        return encoded

    def decoded(self, hidden: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The targets (B, M, D) after the query layer."""
        layer = self.query_attention
        hidden = hidden + layer.attend(layer.queries(hidden), keys, values)
        decoded: Tensor = hidden + self.query_ff(hidden)
        return decoded


class Lbanp(StreamingModel):
    """K blocks of latents that read all points kept, and K query layers.

    State, per stream: `count`, and of each point `keys` and `values`, each (N, K, H, D/H), or
    `points` (N, D), where N is the capacity. Cache: `keys` and `values` (B, K, H, L, D/H), those of
    the query layers.
    """

    name = "lbanp"
    presets: ClassVar[Mapping[str, LbanpConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = PUBLISHED

    def __init__(self, config: LbanpConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.input_range = (config.input_low, config.input_high)
        self.buffer = PointBuffer(config.capacity, config.when_full, row_shapes(config))
        self.capacity, self.when_full = config.capacity, config.when_full
        self.rings, self.ordered = self.buffer.rings, config.when_full != "refuse"
        self.embedding = embedding_of(
            config.embedding, config.n_inputs, config.n_outputs, config.width, config.fourier_std
        )
        self.input_latents = nn.Parameter(first_latents(config, self.embedding, 1)[0])  # (L, D)
        blocks = nn.ModuleList(LbanpBlock(config) for _ in range(config.n_blocks))
        self.blocks = cast("list[LbanpBlock]", blocks)
        self.head_norm = LayerNorm(config.width)
        self.head_up = Linear(config.width, 2 * config.width)
        self.outputs = Outputs(config.n_outputs, bounded=config.bounded)
        self.head_down = Linear(2 * config.width, self.outputs.n_numbers)

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        points = self.embedding.points(x, y)  # (B, D)
        if self.config.keep == "points":
            return self.buffer.written(state, {"points": points})
        contexts = self._contexts(points[:, None])
        keys, values = (torch.stack(side, 1).squeeze(-2) for side in zip(*contexts, strict=True))
        return self.buffer.written(state, {"keys": keys, "values": values})  # (B, K, H, D/H)

    def _contexts(self, points: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each block's keys and values of points (B, N, D), each (B, H, N, D/H)."""
        return [block.context_attention.keys_values(points) for block in self.blocks]

    def refresh(self, state: State) -> Cache:
        if self.config.keep == "points":
            contexts = self._contexts(state["points"])
        else:
            kept = (state[name].permute(2, 0, 3, 1, 4) for name in ("keys", "values"))
            contexts = list(zip(*kept, strict=True))  # K times (B, H, N, D/H)
        return self._encoded(contexts, self.buffer.visible(state))

    def _encoded(self, contexts: list[tuple[Tensor, Tensor]], visible: Tensor) -> Cache:
        """The query layers' keys and values of the latents that read the visible points."""
        hidden = self.input_latents.expand(len(visible), -1, -1)
        cached = []
        for block, context in zip(self.blocks, contexts, strict=True):
            hidden = block.encoded(hidden, context, visible)
            cached.append(block.query_attention.keys_values(hidden))
        keys, values = (torch.stack(side, 1) for side in zip(*cached, strict=True))
        return {"keys": keys, "values": values}

    def decoded(self, cache: Cache, x: Tensor) -> Tensor:
        """What the query layers make of targets x (B, M, X), normalised: (B, M, D)."""
        hidden = self.embedding.queries(x)
        for k, block in enumerate(self.blocks):
            hidden = block.decoded(hidden, cache["keys"][:, k], cache["values"][:, k])
        normal: Tensor = self.head_norm(hidden)
        return normal

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.head_up(self.decoded(cache, x)))
        return self.outputs.prediction_of(self.head_down(hidden))

    def context_cache(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Cache:
        """The cache of a whole context at once, of any number of points: the form for training."""
        if x.shape[1] == 0:
            return self.refresh(initial_state_beside(self, x))
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        x, y = (torch.where(mask[..., None], points, 0.0) for points in (x, y))
        return self._encoded(self._contexts(self.embedding.points(x, y)), mask)

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        return self.query(self.context_cache(x_context, y_context, mask), x_target)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return LbanpOnDevice(self, n_streams)

    @property
    def summary(self) -> str:
        c = self.config
        blocks = f"{c.n_blocks} block{'s'[: c.n_blocks > 1]}"
        return f"{self.name.upper()}, {blocks}, {c.width} wide, {c.n_latents} latents"


def row_shapes(config: LbanpConfig) -> dict[str, tuple[int, ...]]:
    """What is kept of a point."""
    if config.keep == "points":
        return {"points": (config.width,)}
    shape = (config.n_blocks, config.n_heads, config.width // config.n_heads)
    return {"keys": shape, "values": shape}
