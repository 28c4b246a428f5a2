"""Define THP, the transformer Hawkes process (Zuo et al., ICML 2020), on a window of events.

Causal self-attention reads the last events. Its output for the newest one gives the intensities of
all marks until the next event (`softplus_intensity`), from which the likelihood follows. Keys and
values are kept in rings. The model differs from the paper as follows:

    the intensity at an event   is that of the state before it; the published code evaluates it with
                                a state that has seen the event, so that its likelihoods are leaks
    absolute time               is nowhere: a stream is endless. Queries and keys turn with time
                                (rotary angles, Su et al. 2021), so that scores depend on the age of
                                an event; times are whole ticks (`event_times`), and exact for ever
    forgetting                  a head's scores also fall with age, at a learned rate, and a silent
                                event of score 0 and value 0 takes part: else a normalised attention
                                cannot distinguish one recent event from many
    tokens                      embed the time since the event before, and the mark

Letters of shapes: B streams, N events, K marks, H heads, R events of the window, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import FINITE, Prediction, Ring, State
from edgefold.train.layers.attention import (
    Attention,
    FeedForward,
    LayerNorm,
    Linear,
    join_heads,
)
from edgefold.train.models.events.event_model import LEVELS, EventModel
from edgefold.train.models.events.event_times import LONGEST_GAP, TICKS, EventTimes
from edgefold.train.models.events.lognormal_mixture import LEAST_GAP
from edgefold.train.models.events.softplus_intensity import SoftplusIntensity
from edgefold.train.settings import require_sizes

CHUNK = 128
"""Number of queries of a sequence that attend at once in training: scores of all would grow as
N^2."""
HIDDEN_SCORE = -1e9
"""Score of events that a query does not see; their weight is exactly 0."""
RATES = (0.02, 5.0)
"""Lowest and highest rate at which heads forget at first, for a unit of scaled time."""


@dataclass(frozen=True, slots=True)
class ThpConfig:
    """Holds the settings of a THP.

    Attributes:
        n_marks: K, the number of marks.
        n_layers, width, n_heads, feedforward: Sizes of the transformer; width / n_heads is even.
        window: Number of events before its own that a layer sees.
        levels: Levels of the quantiles of the gap that are predicted.
    """

    n_marks: int = 3
    n_layers: int = 2
    width: int = 32
    n_heads: int = 4
    feedforward: int = 64
    window: int = 64
    levels: tuple[float, ...] = LEVELS

    def __post_init__(self) -> None:
        require_sizes(self)
        if self.width // self.n_heads % 2:
            raise ValueError(f"width / n_heads is {self.width // self.n_heads}, must be even")


class Thp(EventModel):
    """Predicts the next event by pre-norm layers of attention and feed-forward over a window.

    State: per layer k `keys_k` and `values_k` (B, H, R, D/H) of the last R events, where R is the
    window, and their times `ticks_seen` (B, R), in all of which the newest entry replaces the
    oldest; `ticks` (B,), the present time; `n_events` (B,); and `intensity` (B, K), the output for
    the last event, by which the next one is scored.
    """

    name = "thp"
    presets: ClassVar[Mapping[str, ThpConfig]] = {
        "small": ThpConfig(),
        "paper": ThpConfig(n_layers=4, width=64, feedforward=256, window=512),
    }
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "small": {"steps": 1000, "learning_rate": 3e-3, "warmup": 100}
    }
    swap: Tensor
    sign: Tensor

    def __init__(self, config: ThpConfig):
        super().__init__(config.n_marks, config.levels)
        self.config = config
        width, n_heads, layers = config.width, config.n_heads, range(config.n_layers)
        head = width // n_heads
        self.gap_layer, self.token_layer = Linear(1, width), Linear(width, width)
        self.mark_layer = nn.Embedding(config.n_marks, width)
        self.attention = nn.ModuleList(Attention(width, n_heads, cross=False) for _ in layers)
        self.ff = nn.ModuleList(FeedForward(width, config.feedforward) for _ in layers)
        low, high = (math.log(rate) for rate in RATES)
        self.log_rates = nn.Parameter(torch.linspace(low, high, n_heads).repeat(len(layers), 1))
        self.times = EventTimes(width // 2)
        self.head_norm, self.head = LayerNorm(width), Linear(width, config.n_marks)
        self.start = nn.Parameter(torch.zeros(config.n_marks))  # intensities before any event
        self.intensity = SoftplusIntensity(config.n_marks, config.levels)
        sign = torch.tensor([-1.0, 1.0]).repeat_interleave(head // 2)
        self.register_buffer("sign", sign, persistent=False)
        self.register_buffer("swap", torch.arange(head).roll(head // 2), persistent=False)
        self.rings = {
            f"{name}_{k}": Ring(axis=2, counter="n_events")
            for k in layers
            for name in ("keys", "values")
        } | {"ticks_seen": Ring(axis=1, counter="n_events")}

    def initial_state(self, n_streams: int = 1) -> State:
        c, like = self.config, self.start
        row = (n_streams, c.n_heads, c.window, c.width // c.n_heads)
        zero = torch.zeros(n_streams, dtype=torch.int64, device=like.device)
        return {name: like.new_zeros(row) for name in self.rings if name != "ticks_seen"} | {
            "ticks_seen": zero[:, None].repeat(1, c.window),
            "ticks": zero,
            "n_events": zero.clone(),
            "intensity": self.start.detach().expand(n_streams, -1).contiguous(),
        }

    def tokens(self, gap: Tensor, mark: Tensor) -> Tensor:
        """Embed events of these gaps and marks, (...): return (..., D)."""
        log_gap = gap.clamp(min=LEAST_GAP).log()[..., None]
        hidden = torch.relu(self.gap_layer(log_gap) + self.mark_layer(mark))
        token: Tensor = self.token_layer(hidden)
        return token

    def turned(self, ticks: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and signed sines that rotate queries and keys of times (B, N).

        Both are (B, H, N, D/H); each head has periods of its own. Times are in ticks.
        """
        angles = self.times.angles(ticks).unflatten(-1, (-1, self.config.n_heads))
        angles = angles.permute(0, 3, 1, 2).repeat(1, 1, 1, 2)
        return angles.cos(), angles.sin() * self.sign

    def attended(
        self, k: int, hidden: Tensor, turns: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return layer k's queries, keys and values of N events, each (B, H, N, D/H).

        The events are the rows `hidden` (B, N, D). Queries and keys are rotated by `turns`, the
        cosines and sines that `turned` returns.
        """
        layer = cast(Attention, self.attention[k])
        query, (key, value) = layer.queries(hidden), layer.keys_values(hidden)
        cosines, sines = turns
        query, key = (t * cosines + t.index_select(-1, self.swap) * sines for t in (query, key))
        return query, key, value

    def behind(self, k: int, hidden: Tensor, scores: Tensor, *values: Tensor) -> Tensor:
        """Return the rows of events after layer k, (B, N, D).

        Args:
            k: Number of the layer.
            hidden: Rows of the events before the layer, (B, N, D).
            scores: Scores of all n events that are attended to, (B, H, N, n).
            values: Values of these n events, (B, H, n, D/H), in one tensor or in several that
                follow each other along the events' axis.
        """
        silent = torch.zeros_like(scores[..., :1])
        weights = torch.softmax(torch.cat([scores, silent], -1), -1)
        parts = weights.split([*(value.shape[2] for value in values), 1], -1)
        attended = sum(part @ value for part, value in zip(parts, values, strict=False))
        assert isinstance(attended, Tensor)
        layer = cast(Attention, self.attention[k])
        hidden = hidden + layer.out(join_heads(attended))
        following: Tensor = hidden + self.ff[k](hidden)
        return following

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Read one event of each stream, x (B, 2): (gap, mark); predict the next: `NextEvent`."""
        gap, mark, possible = self.read(x)
        came = self.intensity.log_density(state["intensity"], gap, mark)
        gap, n_events = gap.clamp(max=LONGEST_GAP), state["n_events"]
        ticks = self.times.after(state["ticks"], gap)
        ages = (ticks[:, None] - state["ticks_seen"]).float() / TICKS  # (B, R)
        reached = torch.arange(self.config.window, device=x.device) < n_events[:, None]
        turns = self.turned(ticks[:, None])
        written: State = {}
        hidden = self.tokens(gap, mark)[:, None]
        for k in range(self.config.n_layers):
            query, key, value = self.attended(k, hidden, turns)
            aged = ages[:, None] * self.log_rates[k].exp()[:, None]  # (B, H, R)
            past = query @ state[f"keys_{k}"].mT - aged[:, :, None]
            past = torch.where(reached[:, None, None], past, HIDDEN_SCORE)
            own = (query * key).sum(-1, keepdim=True)
            scores = torch.cat([past, own], -1)
            hidden = self.behind(k, hidden, scores, state[f"values_{k}"], value)
            written |= {f"keys_{k}": key, f"values_{k}": value}
        left = self.head(self.head_norm(hidden[:, 0]))
        gaps, probabilities = self.intensity(left)
        prediction = {
            "gap_quantiles": gaps[..., None],
            "mark_probabilities": probabilities,
            "log_likelihood": came[:, None],
        }
        return {
            **written,
            "ticks_seen": ticks[:, None],
            "ticks": ticks,
            "n_events": n_events + 1,
            "intensity": left,
            FINITE: self.finite(possible),
        }, prediction

    def event_log_likelihood(self, events: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the log density (B, N), in nats, of events (B, N, 2), each given those before.

        The columns are gap and mark. `mask` is not used: real events come first in a row, and none
        depends on later ones.
        """
        gap, mark, _ = self.read(events)
        seen = gap[:, :-1].clamp(max=LONGEST_GAP)
        ticks = self.times.along(seen)
        turns, hidden = self.turned(ticks), self.tokens(seen, mark[:, :-1])
        for k in range(self.config.n_layers):
            hidden = self._along(k, hidden, turns, ticks)
        left = self.head(self.head_norm(hidden))
        start = self.start.expand(len(gap), 1, -1)
        return self.intensity.log_density(torch.cat([start, left], 1), gap, mark)

    def _along(self, k: int, hidden: Tensor, turns: tuple[Tensor, Tensor], ticks: Tensor) -> Tensor:
        """Return the rows `hidden` (B, N, D) of whole sequences after layer k, chunk by chunk.

        `turns` are the cosines and sines from `turned`, which rotate queries and keys; `ticks` (B,
        N) are the times of the events.
        """
        query, key, value = self.attended(k, hidden, turns)
        rates, n_events = self.log_rates[k].exp()[:, None, None], hidden.shape[1]
        number, chunks = torch.arange(n_events, device=hidden.device), []
        for start in range(0, n_events, CHUNK):
            now = slice(start, start + CHUNK)
            past = slice(max(0, start - self.config.window), start + CHUNK)
            ages = (ticks[:, now, None] - ticks[:, None, past]).float() / TICKS
            scores = query[:, :, now] @ key[:, :, past].mT - ages[:, None] * rates
            back = number[now, None] - number[past]
            unseen = (back < 0) | (back > self.config.window)
            scores = scores.masked_fill(unseen, HIDDEN_SCORE)
            chunks.append(self.behind(k, hidden[:, now], scores, value[:, :, past]))
        return torch.cat(chunks, 1) if chunks else hidden

    @property
    def summary(self) -> str:
        c = self.config
        return f"THP, {c.n_layers} layers, {c.width} wide, window {c.window}"
