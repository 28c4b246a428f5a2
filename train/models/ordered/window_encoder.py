"""Define a transformer encoder that answers each new token from the last n tokens.

    token ──> embedding + circular positional encoding ──> K post-norm layers ──> class scores
                                                           the last one only for the newest token

Here the whole window is computed again at each token: this is the form that is trained, and the
reference to which the continual forms (`for_device`) are equal. The state is a ring of tokens.

Positions count from the start of the stream and are encoded modulo a period of 2n - 1, so that the
encodings in a window differ and an endless stream meets none that was not trained (Hedegaard et al.
2023, "Continual Transformers", section 3.3).

Letters of shapes: B streams, N context tokens, M targets, R rows, X inputs, H heads, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import Categorical
from edgefold.train.batch import Batch
from edgefold.train.contract import Prediction, Ring, State, StreamingModel
from edgefold.train.layers.attention import Linear, split_heads
from edgefold.train.layers.postnorm_layers import PostNormLayer
from edgefold.train.settings import require_sizes

Pick = Callable[[Tensor], Tensor]

UNSEEN: Final = -1e30
"""Score of a token outside the window: its weight is 0."""


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """Holds the sizes of an encoder.

    Attributes:
        n_inputs: X, the number of features of a token.
        n_classes: Number of classes that are scored.
        n_layers: K, the number of layers.
        width: D, the width of a row. n_heads: H, the number of heads.
        feedforward: Width of the layers' feed-forward part.
        window: n, the number of tokens that an answer sees, the newest included.
        endless: Whether streams go on beyond one window. Training then starts them at random
            positions; else at 0, so that a position says the place in the sequence.
    """

    n_inputs: int = 8
    n_classes: int = 10
    n_layers: int = 1
    width: int = 64
    n_heads: int = 4
    feedforward: int = 128
    window: int = 32
    endless: bool = True

    def __post_init__(self) -> None:
        require_sizes(self)
        if self.n_classes < 2:
            raise ValueError(f"n_classes is {self.n_classes}, must be at least 2")
        if self.window < 2:
            raise ValueError(f"window is {self.window}, must be at least 2")


PAPER: Final = WindowConfig(
    n_inputs=128, n_classes=10, width=192, n_heads=16, feedforward=768, window=120
)
"""Sizes for GTZAN of Carreto Picon et al., section V-C; they do not state the feed-forward width,
which is 4 D here."""


class WindowEncoder(StreamingModel):
    """Encodes a window of tokens by softmax attention; subclasses override `attend`."""

    name = "window-transformer"
    presets: ClassVar[Mapping[str, Any]] = {"small": WindowConfig(), "paper": PAPER}
    prediction: Categorical

    def __init__(self, config: WindowConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, 1
        self.prediction = Categorical(config.n_classes)
        self.embed = Linear(config.n_inputs, config.width)
        self.positions = nn.Parameter(0.02 * torch.randn(2 * config.window - 1, config.width))
        self.layers = nn.ModuleList(
            PostNormLayer(config.width, config.n_heads, config.feedforward)
            for _ in range(config.n_layers)
        )
        self.scores = Linear(config.width, config.n_classes)
        self.rings = {"tokens": Ring(axis=1, counter="n_tokens")}

    def layer(self, k: int) -> PostNormLayer:
        """Return layer k, counted from 0."""
        layer = self.layers[k]
        assert isinstance(layer, PostNormLayer)
        return layer

    @property
    def reach(self) -> int:
        """Return R, the number of tokens that an answer depends on, the newest included."""
        return int(self.config.window)

    def initial_state(self, n_streams: int = 1) -> State:
        """Return the state before the first token: `tokens` (B, R - 1, X) and `n_tokens` (B,)."""
        like = self.scores.weight
        return {
            "tokens": like.new_zeros(n_streams, self.reach - 1, self.n_inputs),
            "n_tokens": torch.zeros(n_streams, dtype=torch.int64, device=like.device),
        }

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Take a token x (B, X) and score the classes, (B, classes)."""
        n_tokens = state["n_tokens"]
        past = positions_of(n_tokens, self.reach - 1)  # (B, R - 1)
        tokens = torch.cat([state["tokens"], x[:, None]], 1)
        scores = self.answer(tokens, torch.cat([past, n_tokens[:, None]], 1))
        following = {"tokens": x[:, None], "n_tokens": n_tokens + 1, "finite": scores.sum(-1)}
        return following, {"scores": scores}

    def answer(self, tokens: Tensor, positions: Tensor, shift: Tensor | None = None) -> Tensor:
        """Return the class scores of the last token, (B, classes).

        Args:
            tokens: Tokens in any order, the newest last, (B, R, X).
            positions: Positions of the tokens from 0 on, (B, R); negative for rows without a token.
            shift: Number that is added to positions before they are encoded, (B,); training draws
                it.
        """
        places = positions if shift is None else positions + shift[:, None]
        rows = self.embed(tokens) + self.encoding(places)
        scores: Tensor = self.scores(
            self.encode(rows, positions, lambda all: all[..., -1:, :])[:, 0]
        )
        return scores

    def encoding(self, positions: Tensor) -> Tensor:
        """Return the encoding (..., D) of positions (...), which repeats after 2n - 1 of them."""
        period = len(self.positions)
        return nn.functional.embedding(torch.remainder(positions, period), self.positions)

    def encode(self, rows: Tensor, positions: Tensor, pick: Pick, first: int = 0) -> Tensor:
        """Run the layers from `first` on over rows (B, R, D); return the newest row (B, 1, D).

        `positions` (B, R) are those of the rows' tokens, negative for none. `pick` is a function
        that takes the newest of rows (..., R, columns): (..., 1, columns).
        """
        visible = in_window(positions, self.config.window)
        for k in range(first, len(self.layers)):
            layer = self.layer(k)
            asked = pick(rows) if k == len(self.layers) - 1 else rows
            attended = self.attend(k, layer, rows, asked, positions, visible)
            rows = layer.finish(asked, attended)
        return rows

    def attend(
        self,
        k: int,
        layer: PostNormLayer,
        rows: Tensor,
        asked: Tensor,
        positions: Tensor,
        visible: Tensor,
    ) -> Tensor:
        """Attend to the window: return the result by head, (B, H, asked rows, D/H).

        Args:
            k: Number of the layer.
            layer: The layer.
            rows: All rows, (B, R, D).
            asked: Rows whose attention is wanted, all or one.
            positions: Positions of the rows' tokens, (B, R).
            visible: True for rows in the window, (B, R).
        """
        keys, values = layer.keys_values(rows)
        return torch.softmax(queries(layer, asked) @ keys.mT + unseen(visible), -1) @ values

    @property
    def summary(self) -> str:
        c = self.config
        return f"{self.name}, {c.n_layers} layer{'s'[: c.n_layers > 1]}, {c.width} wide"

    # Training -------------------------------------------------------------------------------------

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """Return the scores at each target, (B, M, classes), for training.

        The stream consists of the context's tokens, then the targets; y_context is not read.
        """
        return {"scores": self._scores(x_context, x_target, mask, None)}

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean negative log-likelihood of the targets in nats, ().

        If the settings say `endless`, each stream starts at a random position.
        """
        shift = None
        if self.config.endless:
            n, period = len(batch.x_context), len(self.positions)
            shift = torch.randint(period, (n,), generator=generator).to(batch.x_target.device)
        scores = self._scores(batch.x_context, batch.x_target, batch.mask, shift)
        likelihood: Tensor = self.prediction.log_likelihood(
            {"scores": scores}, batch.y_target, torch
        )
        return -likelihood.mean()

    def _scores(
        self, context: Tensor, targets: Tensor, mask: Tensor | None, shift: Tensor | None
    ) -> Tensor:
        tokens, positions = windows(context, targets, mask, self.reach)  # (B, M, R, X), (B, M, R)
        lead = positions.shape[:2]
        if shift is not None:
            shift = shift[:, None].expand(lead).flatten()
        return self.answer(tokens.flatten(0, 1), positions.flatten(0, 1), shift).unflatten(0, lead)


def queries(layer: PostNormLayer, rows: Tensor) -> Tensor:
    """Return the queries of rows by head, (B, H, rows, D/H), scaled by 1/sqrt(D/H)."""
    heads = split_heads(layer.q(rows), layer.n_heads)
    return heads / math.sqrt(heads.shape[-1])


def unseen(visible: Tensor) -> Tensor:
    """Return numbers to add to scores (B, H, rows, R): they hide rows not visible (B, R)."""
    return torch.where(visible, 0.0, UNSEEN)[:, None, None]


def positions_of(n_tokens: Tensor, length: int) -> Tensor:
    """Return the position in the stream of the token in each place of a ring, (B, length).

    The ring has a place for each of `length` tokens, and the newest replaces the oldest. So far
    n_tokens (B,) tokens have come. A position below 0 stands for a place without a token.
    """
    slots = torch.arange(length, device=n_tokens.device)
    newest = n_tokens[:, None] - 1
    return newest - torch.remainder(newest - slots, length)


def in_window(positions: Tensor, window: int) -> Tensor:
    """Return True for rows at positions (B, R) among the last `window` tokens, else False."""
    return (positions >= 0) & (positions > positions.amax(1, keepdim=True) - window)


def windows(
    context: Tensor, targets: Tensor, mask: Tensor | None, reach: int
) -> tuple[Tensor, Tensor]:
    """Return for each target the last `reach` tokens, the target included.

    Args:
        context: Tokens of the context, (B, N, X).
        targets: Tokens of the targets, (B, M, X).
        mask: True for context tokens that exist, (B, N).
        reach: R, the number of tokens for each target.

    Returns:
        Tokens (B, M, R, X) and positions (B, M, R), negative where there is no token; R is at most
            N + M.
    """
    tokens = torch.cat([context, targets], 1)
    n_streams, n_context, n_targets = len(tokens), context.shape[1], targets.shape[1]
    n_real = torch.full((n_streams,), n_context, device=tokens.device)
    if mask is not None:
        real = torch.cat([mask, mask.new_ones(n_streams, n_targets)], 1)
        order = torch.argsort((~real).to(torch.uint8), dim=1, stable=True)
        tokens = torch.where(real[..., None], tokens, 0.0)
        tokens = tokens.gather(1, order[..., None].expand_as(tokens))
        n_real = mask.sum(1)
    reach = min(reach, tokens.shape[1])
    back = torch.arange(1 - reach, 1, device=tokens.device)
    newest = n_real[:, None] + torch.arange(n_targets, device=tokens.device)  # (B, M)
    positions = newest[..., None] + back
    rows = positions.clamp_min(0).flatten(1)[..., None].expand(-1, -1, tokens.shape[-1])
    return tokens.gather(1, rows).unflatten(1, (n_targets, reach)), positions
