"""Define CMANP, the constant-memory attentive neural process (Feng et al., ICML 2024).

The state is the running cross-attention of every block's own latents to the context (section
3.1.1); everything behind it is `refresh`. In addition to the paper's plain form the configuration
holds initialisations and an embedder that make attention local in x from the first step; without
them the model sits on a plateau for thousands of steps. They change no step and no shape.

The device's form, `CmanpOnDevice`, does as little as possible and predicts the same. Its state is
that of `running_attention`, or of `forgetting_attention`. Layer norms are folded into the matrices
behind them, and what is computed only from learned latents is a constant.

A narrow type (float16) is for what lies behind the state: refresh, query, and the cache between
them. What stays float32, and why (gp-small, gp-paper and series-co2 with every node rounded):

    the update       scores reach 460 at gp-small, where float16 resolves 0.25: a worst latent of
                     the state is off by 1e-2, for as long as the state lives, and by 4e-4 if the
                     values only are half. The state is held to 1e-5, so no part of it is.
    W x + b, sin     in half it blurs x by 1e-3 and doubles the error of every prediction
    the last layer   so that predictions do not lie on float16's grid

Attention scores, softmax, layer norms and the residual stream of refresh and query lose nothing
that can be measured in half. Nothing there overflows, however large x and y are: the update's layer
norm bounds what follows it, and sines or a clip what a query begins with.

Letters of shapes: B streams, M targets, X inputs, K blocks, L latents, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.attention import Attention, FeedForward, join_heads
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    exact,
    fold,
    normalise,
)
from edgefold.train.layers.embeddings import embedding_on_device
from edgefold.train.layers.latents import PUBLISHED_FORM, LatentsConfig, first_latents
from edgefold.train.layers.prediction_head import GaussianOutput
from edgefold.train.layers.starts import start_alike
from edgefold.train.models.constant_memory.cmab import CmabModel, CmabOnDevice
from edgefold.train.models.running_latents import RunningLatentsModel, RunningLatentsOnDevice
from edgefold.train.published import Published, as_published
from edgefold.train.settings import PAPER_TRAINING
from edgefold.train.states.forgetting_attention import (
    ForgettingAttentionOnDevice,
    aged,
    ages_of,
    attend_and_forget,
    rates_of,
    require_half_lives,
)
from edgefold.train.states.running_attention import RunningAttentionOnDevice


@dataclass(frozen=True, slots=True)
class CmanpConfig(LatentsConfig):
    """Holds the sizes of a CMANP: each set of latents (`cmab`) has `n_latents` rows.

    With `half_lives` the latents forget, each by one of the half-lives in turn: a point weighs half
    as much after so many further points, and 0 means never to forget. Then the order of points
    matters.
    """

    half_lives: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        LatentsConfig.__post_init__(self)  # super() does not know a class with slots
        require_half_lives(self.half_lives)
        object.__setattr__(self, "half_lives", tuple(self.half_lives))  # JSON has lists


PRESETS = {
    "small": CmanpConfig(n_blocks=3, n_latents=32),
    "medium": CmanpConfig(n_blocks=3, n_latents=64),
    "large": CmanpConfig(),
    "paper": CmanpConfig(**PUBLISHED_FORM),
    "tiny": CmanpConfig(n_blocks=1, n_latents=24, width=32, n_heads=2, feedforward=48),
    "plain": CmanpConfig(n_blocks=3, n_latents=32, **PUBLISHED_FORM),
    "forgetting": CmanpConfig(n_blocks=3, n_latents=32, half_lives=(50.0, 500.0, 5000.0, 0.0)),
}
"""Settings by name: `paper` is the published model; `large` has its size and the settings of
`small`, which trains on two cores in minutes; `medium` has twice the latents of `small` and better
scores; `tiny`, as C, fits a microcontroller with 64 KB of RAM (one block with many latents was
better than two with fewer: docs/training.md); `plain` is the published model at the size of
`small`, for comparison; `forgetting` is `small` for streams that change: a quarter of its latents
forgets nothing."""
TRAINING = {
    "medium": {"steps": 40_000, "optimizer": "muon"},
    "large": {"steps": 100_000},
    **PAPER_TRAINING,
    "tiny": {"learning_rate": 4e-3},
    "plain": {"learning_rate": 5e-4},
}
"""Training settings that suit a preset better than a task's defaults, by its name: the plain
variant needs the papers' learning rate, and `tiny` takes a larger one."""
PUBLISHED = as_published(
    {"CMANP": (1.24, 0.80), "CNP": (0.26, 0.04)},
    {"CMANP": (3.93, 5.02, 5.55, 1.36, 1.09), "CNP": (2.15, 2.43, 2.55, 0.73, 0.49)},
)
"""Published log-likelihoods in nats, tables 4 and 3 of Feng et al. 2024."""

FORGETS = (
    "with half_lives a point weighs less with each later one, and two states do not say which of "
    "their points came later"
)
"""Why states of a model that forgets are not merged."""


class Cmanp(CmabModel, RunningLatentsModel):
    """Predicts by K constant-memory attention blocks and K query layers."""

    name = "cmanp"
    rates: Tensor
    presets: ClassVar[Mapping[str, CmanpConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = TRAINING
    published: ClassVar[Published] = PUBLISHED

    def __init__(self, config: CmanpConfig):
        super().__init__(config)
        n_blocks = config.n_blocks
        self.forgets = self.ordered = bool(config.half_lives)
        self.no_merge = FORGETS * self.forgets
        rates = rates_of(config.half_lives or (0.0,), config.n_latents)
        self.register_buffer("rates", rates, persistent=False)
        self._add_blocks(
            first_latents(config, self.embedding, n_blocks),
            first_latents(config, self.embedding, 1)[0],
            config.feed_forward,
            config.attention,
        )
        # Query layer k attends to what block k gave out.
        self.query_attention = nn.ModuleList(config.attention(True) for _ in range(n_blocks))
        self.query_ff = nn.ModuleList(config.feed_forward() for _ in range(n_blocks))
        if config.start == "published":
            self.start_blocks_alike()
            for layers in (self.query_attention, self.query_ff):
                start_alike(layers)
        self.add_head()

    def query_layer(self, k: int) -> tuple[Attention, FeedForward]:
        return cast("tuple[Attention, FeedForward]", (self.query_attention[k], self.query_ff[k]))

    @property
    def reading_latents(self) -> Tensor:
        return self.block_latents

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        if not self.forgets or not x.shape[1]:
            return super().condition(state, x, y, mask)
        return attend_and_forget(state, *self.scores_values(x, y, mask), mask, self.rates)

    def scores_at_once(self, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        scores, values = self.scores_values(x, y, mask)
        if self.forgets:
            scores = aged(scores, ages_of(x, mask)[0], self.rates)
        return scores, values

    def refresh(self, state: State) -> Cache:
        """Run all blocks on the attention to the points that the state holds; return the cache."""
        attended = join_heads(state["attended"].transpose(0, 1))  # (K, B, L, D)
        return self.cache_of(self.block_outputs(self.context_attention.out(attended)))

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return CmanpOnDevice(self, n_streams, dtype)


class CmanpBlockOnDevice(CmabOnDevice):
    """Runs all layers of block k and of query layer k on a device."""

    def __init__(self, model: Cmanp, k: int, n_streams: int, dtype: torch.dtype):
        super().__init__(model, k, exact(model.context_attention.out)[0][k], n_streams, dtype)
        attention, feedforward = model.query_layer(k)
        self.query_attention = AttentionOnDevice(attention, n_streams, dtype)
        self.query_ff = FeedForwardOnDevice(feedforward, dtype)


class CmanpOnDevice(RunningLatentsOnDevice):
    """Runs a CMANP on a device, for a fixed number of streams, with constants folded."""

    def __init__(self, model: Cmanp, n_streams: int, dtype: str = "float32"):
        super().__init__(model, n_streams)
        c, self.dtype = model.config, getattr(torch, dtype)
        self.embedding = embedding_on_device(model.embedding, dtype)
        attention = model.context_attention, model.block_latents
        if model.forgets:
            self.running = ForgettingAttentionOnDevice(*attention, model.rates)
        else:
            self.running = RunningAttentionOnDevice(*attention)
        blocks = (CmanpBlockOnDevice(model, k, n_streams, self.dtype) for k in range(c.n_blocks))
        self.blocks = cast("list[CmanpBlockOnDevice]", nn.ModuleList(blocks))
        self._fold_head(model)

    def _fold_head(self, model: Cmanp) -> None:
        self.head_up = Affine(fold(model.head_norm, model.head_up), self.dtype)
        self.output = GaussianOutput(model.head_down, model.outputs)

    def refresh(self, state: State) -> Cache:
        """Run all blocks on the attention to the points that the state holds; return the cache.

        It goes block by block, though the first phase of all blocks could run as one batch: a
        block's tensors stay in a core's cache, and the largest (the attention weights) exist once.
        """
        attended = self.running.attended(state).to(self.dtype)
        hidden: Tensor | None = None
        cache: Cache = {}
        for k, (block, heads) in enumerate(
            zip(self.blocks, attended.split(self.config.n_heads, 1), strict=True)
        ):
            rows = heads.reshape(self.n_streams, self.config.width, -1).mT  # (B, L, D)
            hidden = block(rows.reshape(-1, self.config.width), hidden)
            keys, values = block.query_attention.keys_values(normalise(hidden))
            cache |= {f"keys_{k}": keys.contiguous(), f"values_{k}": values.contiguous()}
        return cache

    def decoded(self, cache: Cache, x: Tensor) -> Tensor:
        """Embed targets x (B, M, X), pass them through the query layers; return rows (B*M, D)."""
        hidden = self.embedding(x.reshape(-1, self.n_inputs)).to(self.dtype)  # (B*M, D)
        for k, block in enumerate(self.blocks):
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            hidden = block.query_ff(block.query_attention.read(hidden, keys, values))
        return hidden

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.head_up(normalise(self.decoded(cache, x)))).float()
        prediction: Prediction = self.output(hidden, (*x.shape[:2], self.n_outputs))
        return prediction
