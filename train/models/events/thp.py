"""Define THP, the transformer Hawkes process (Zuo et al., ICML 2020), on a window of events.

Causal self-attention reads the last events. Its output for the newest one gives the distribution of
the next event, by one of two heads:

    softplus   the intensities of all marks until the next event (`softplus_intensity`)
    mixture    log-normal distributions of the gap, and the mark (`lognormal_mixture`), by which the
               paper of CMHP compares THP with CMHP (Feng et al. 2024, appendix C.1)

Keys and values are kept in rings. With both heads an event is scored by the state before it; the
published code of the intensities evaluates them with a state that has seen the event, so that its
likelihoods are leaks. Before any event, learned numbers take the place of the output.

`encoder` "published" is the paper's: the embedding of a mark, to which the sines and cosines of the
event's time are added before each layer, and post-norm layers (`thp_layers`). Times are whole ticks
(`event_times`), and exact for ever. The encoder "relative" differs from it as follows:

    absolute time    is nowhere: a stream is endless. Queries and keys turn with time (rotary
                     angles, Su et al. 2021), so that scores depend on the age of an event
    forgetting       a head's scores also fall with age, at a learned rate, and a silent event of
                     score 0 and value 0 takes part: else a normalised attention cannot distinguish
                     one recent event from many
    tokens           embed the time since the event before, and the mark
    layers           normalise before attention and before a GEGLU

Letters of shapes: B streams, N events, K marks, H heads, R events of the window, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

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
from edgefold.train.models.events.event_times import (
    LONGEST_GAP,
    TICKS,
    EventTimes,
    PublishedTimes,
)
from edgefold.train.models.events.lognormal_mixture import (
    LEAST_GAP,
    MarkedLogNormals,
    log_density,
    next_event,
    sought,
)
from edgefold.train.models.events.softplus_intensity import SoftplusIntensity
from edgefold.train.models.events.thp_layers import PostNormAttention, PostNormFeedForward
from edgefold.train.settings import require_sizes

CHUNK = 128
"""Number of queries of a sequence that attend at once in training: scores of all would grow as
N^2."""
HIDDEN_SCORE = -1e9
"""Score of events that a query does not see; their weight is exactly 0."""
RATES = (0.02, 5.0)
"""Lowest and highest rate at which heads forget at first, for a unit of scaled time."""
Encoder = Literal["relative", "published"]
Head = Literal["softplus", "mixture"]


@dataclass(frozen=True, slots=True)
class ThpConfig:
    """Holds the settings of a THP.

    Attributes:
        n_marks: K, the number of marks.
        n_layers, width, n_heads, feedforward: Sizes of the transformer; width / n_heads is even.
        window: Number of events before its own that a layer sees.
        levels: Levels of the quantiles of the gap that are predicted.
        encoder: Form of the embedding and of the layers: "relative" is ours.
        head: Kind of the distribution that is predicted.
        n_components: Number of log-normal distributions in a mixture.
        dependent_marks: Whether each component of a mixture has probabilities of the marks of its
            own; False is the published form.
    """

    n_marks: int = 3
    n_layers: int = 2
    width: int = 32
    n_heads: int = 4
    feedforward: int = 64
    window: int = 64
    levels: tuple[float, ...] = LEVELS
    encoder: Encoder = "relative"
    head: Head = "softplus"
    n_components: int = 64
    dependent_marks: bool = True

    def __post_init__(self) -> None:
        require_sizes(self)
        if self.width // self.n_heads % 2:
            raise ValueError(f"width / n_heads is {self.width // self.n_heads}, must be even")


class Thp(EventModel):
    """Predicts the next event by layers of attention and feed-forward over a window of events.

    State: per layer k `keys_k` and `values_k` (B, H, R, D/H) of the last R events, where R is the
    window, of which the newest entry replaces the oldest; `ticks` (B,), the present time;
    `n_events` (B,); and what the next event is scored by, `intensity` (B, K), the output for the
    last event, or the tensors of a mixture. The relative encoder also keeps the events' times in a
    ring, `ticks_seen` (B, R).
    """

    name = "thp"
    presets: ClassVar[Mapping[str, ThpConfig]] = {
        "small": ThpConfig(),
        "paper": ThpConfig(
            n_layers=4,
            width=64,
            feedforward=256,
            window=512,
            encoder="published",
            head="mixture",
            dependent_marks=False,
        ),
    }
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "small": {"steps": 1000, "learning_rate": 3e-3, "warmup": 100}
    }
    swap: Tensor
    sign: Tensor
    sought: Tensor

    def __init__(self, config: ThpConfig):
        super().__init__(config.n_marks, config.levels)
        self.config = config
        self.is_published = config.encoder == "published"
        if self.is_published:
            self._add_published_encoder()
        else:
            self._add_relative_encoder()
        if config.head == "mixture":
            kind = config.n_marks, config.n_components, config.dependent_marks
            self.head: Linear | MarkedLogNormals = MarkedLogNormals(config.width, *kind)
            self.start = nn.Parameter(torch.zeros(config.width))  # output before any event
            self.register_buffer("sought", sought(self.levels), persistent=False)
        else:
            self.head = Linear(config.width, config.n_marks)
            self.start = nn.Parameter(torch.zeros(config.n_marks))  # intensities before any event
            self.intensity = SoftplusIntensity(config.n_marks, config.levels)
        kept = [f"{name}_{k}" for k in range(config.n_layers) for name in ("keys", "values")]
        self.rings = {name: Ring(axis=2, counter="n_events") for name in kept}
        if not self.is_published:
            self.rings["ticks_seen"] = Ring(axis=1, counter="n_events")

    def _add_published_encoder(self) -> None:
        config, layers = self.config, range(self.config.n_layers)
        width, n_heads = config.width, config.n_heads
        self.mark_layer = nn.Embedding(config.n_marks, width)
        self.attention = nn.ModuleList(PostNormAttention(width, n_heads) for _ in layers)
        self.ff = nn.ModuleList(PostNormFeedForward(width, config.feedforward) for _ in layers)
        self.times: EventTimes = PublishedTimes(width // 2)
        self.head_norm: nn.Module = nn.Identity()  # the layers end with a norm

    def _add_relative_encoder(self) -> None:
        config, layers = self.config, range(self.config.n_layers)
        width, n_heads = config.width, config.n_heads
        head = width // n_heads
        self.gap_layer, self.token_layer = Linear(1, width), Linear(width, width)
        self.mark_layer = nn.Embedding(config.n_marks, width)
        self.attention = nn.ModuleList(Attention(width, n_heads, cross=False) for _ in layers)
        self.ff = nn.ModuleList(FeedForward(width, config.feedforward) for _ in layers)
        low, high = (math.log(rate) for rate in RATES)
        self.log_rates = nn.Parameter(torch.linspace(low, high, n_heads).repeat(len(layers), 1))
        self.times = EventTimes(width // 2)
        self.head_norm = LayerNorm(width)
        sign = torch.tensor([-1.0, 1.0]).repeat_interleave(head // 2)
        self.register_buffer("sign", sign, persistent=False)
        self.register_buffer("swap", torch.arange(head).roll(head // 2), persistent=False)

    def initial_state(self, n_streams: int = 1) -> State:
        c, like = self.config, self.start
        row = (n_streams, c.n_heads, c.window, c.width // c.n_heads)
        zero = torch.zeros(n_streams, dtype=torch.int64, device=like.device)
        state = {name: like.new_zeros(row) for name in self.rings if name != "ticks_seen"}
        if not self.is_published:
            state["ticks_seen"] = zero[:, None].repeat(1, c.window)
        with torch.no_grad():
            first = self.scored_by(self.first_output(n_streams))
        state |= {"ticks": zero, "n_events": zero.clone()}
        return state | {name: tensor.contiguous() for name, tensor in first.items()}

    # The head -------------------------------------------------------------------------------------

    def first_output(self, n_streams: int) -> Tensor:
        """Return the output before any event: (B, K) intensities, or (B, 3 C + K) of C components.

        They are intensities with the head "softplus", and the numbers of a mixture with "mixture".
        """
        start = self.start.expand(n_streams, -1)
        return self.head.linear(start) if isinstance(self.head, MarkedLogNormals) else start

    def output(self, hidden: Tensor) -> Tensor:
        """Return the output (..., numbers) for rows (..., D) that passed through all layers."""
        layer = self.head.linear if isinstance(self.head, MarkedLogNormals) else self.head
        numbers: Tensor = layer(self.head_norm(hidden))
        return numbers

    def scored_by(self, output: Tensor) -> State:
        """Return the tensors by which the next event is scored, from the output (..., numbers)."""
        if isinstance(self.head, MarkedLogNormals):
            return self.head.mixture(output)
        return {"intensity": output}

    def log_density(self, scored_by: State, gap: Tensor, mark: Tensor) -> Tensor:
        """Return the log density in nats, (...), of events of these gaps and marks, each (...)."""
        if self.config.head == "mixture":
            return log_density(scored_by, gap, mark)
        return self.intensity.log_density(scored_by["intensity"], gap, mark)

    def predicted(self, scored_by: State, came: Tensor) -> Prediction:
        """Return the prediction of the next event; `came` (B,) is the log density of the last."""
        if self.config.head == "mixture":
            return next_event(scored_by, self.sought, came)
        gaps, probabilities = self.intensity(scored_by["intensity"])
        return {
            "gap_quantiles": gaps[..., None],
            "mark_probabilities": probabilities,
            "log_likelihood": came[:, None],
        }

    # The encoder ----------------------------------------------------------------------------------

    def tokens(self, gap: Tensor, mark: Tensor) -> Tensor:
        """Embed events of these gaps and marks, (...): return (..., D)."""
        if self.is_published:
            return self.mark_layer(mark)
        log_gap = gap.clamp(min=LEAST_GAP).log()[..., None]
        hidden = torch.relu(self.gap_layer(log_gap) + self.mark_layer(mark))
        token: Tensor = self.token_layer(hidden)
        return token

    def turned(self, ticks: Tensor) -> tuple[Tensor, ...]:
        """Return what layers know of the times (B, N) of events, which are in ticks.

        For the relative encoder it is the cosines and signed sines that rotate queries and keys,
        both (B, H, N, D/H); each head has periods of its own. For the published one it is the
        encoding of the times, (B, N, D).
        """
        if self.is_published:
            return (self.times.waves(ticks),)
        angles = self.times.angles(ticks).unflatten(-1, (-1, self.config.n_heads))
        angles = angles.permute(0, 3, 1, 2).repeat(1, 1, 1, 2)
        return angles.cos(), angles.sin() * self.sign

    def attended(
        self, k: int, hidden: Tensor, turns: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the rows that layer k reads, and their queries, keys and values.

        The rows are (B, N, D): `hidden`, the events' rows before the layer, to which the published
        encoder adds the encoding of their times. The others are (B, H, N, D/H); the relative
        encoder rotates queries and keys. `turns` is what `turned` returns.
        """
        layer = cast(Attention, self.attention[k])
        if self.is_published:
            hidden = hidden + turns[0]
            return hidden, layer.queries(hidden), *layer.keys_values(hidden)
        query, (key, value) = layer.queries(hidden), layer.keys_values(hidden)
        cosines, sines = turns
        query, key = (t * cosines + t.index_select(-1, self.swap) * sines for t in (query, key))
        return hidden, query, key, value

    def behind(self, k: int, hidden: Tensor, scores: Tensor, *values: Tensor) -> Tensor:
        """Return the rows of events after layer k, (B, N, D).

        Args:
            k: Number of the layer.
            hidden: Rows that the layer reads, (B, N, D).
            scores: Scores of all n events that are attended to, (B, H, N, n).
            values: Values of these n events, (B, H, n, D/H), in one tensor or in several that
                follow each other along the events' axis.
        """
        lengths = [value.shape[2] for value in values]
        if not self.is_published:
            scores, lengths = (
                torch.cat([scores, torch.zeros_like(scores[..., :1])], -1),
                [*lengths, 1],
            )
        parts = torch.softmax(scores, -1).split(lengths, -1)
        attended = sum(part @ value for part, value in zip(parts, values, strict=False))
        assert isinstance(attended, Tensor)
        layer, ff = self.attention[k], self.ff[k]
        if self.is_published:
            assert isinstance(layer, PostNormAttention) and isinstance(ff, PostNormFeedForward)
            return ff.after(layer.after(hidden, join_heads(attended)))
        hidden = hidden + cast(Attention, layer).out(join_heads(attended))
        following: Tensor = hidden + ff(hidden)
        return following

    def aged(self, k: int, ages: Tensor) -> Tensor:
        """Return how much the scores of layer k fall at ages (B, N, n), (B, H, N, n).

        Ages are in scaled time.
        """
        return ages[:, None] * self.log_rates[k].exp()[:, None, None]

    def ages(self, ticks: Tensor, earlier: Tensor) -> Tensor:
        """Return the scaled time from `earlier` (B, n) to `ticks` (B, N), (B, N, n)."""
        return (ticks[:, :, None] - earlier[:, None]).to(self.start.dtype) / TICKS

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Read one event of each stream, x (B, 2): (gap, mark); predict the next: `NextEvent`."""
        gap, mark, possible = self.read(x)
        came = self.log_density(state, gap, mark)
        gap, n_events = gap.clamp(max=LONGEST_GAP), state["n_events"]
        ticks = self.times.after(state["ticks"], gap)
        reached = torch.arange(self.config.window, device=x.device) < n_events[:, None]
        turns = self.turned(ticks[:, None])
        clock: State = {"ticks": ticks, "n_events": n_events + 1}
        if not self.is_published:
            ages = self.ages(ticks[:, None], state["ticks_seen"])  # (B, 1, R)
            clock = {"ticks_seen": ticks[:, None], **clock}
        written: State = {}
        hidden = self.tokens(gap, mark)[:, None]
        for k in range(self.config.n_layers):
            hidden, query, key, value = self.attended(k, hidden, turns)
            past = query @ state[f"keys_{k}"].mT  # (B, H, 1, R)
            if not self.is_published:
                past = past - self.aged(k, ages)
            past = torch.where(reached[:, None, None], past, HIDDEN_SCORE)
            own = (query * key).sum(-1, keepdim=True)
            scores = torch.cat([past, own], -1)
            hidden = self.behind(k, hidden, scores, state[f"values_{k}"], value)
            written |= {f"keys_{k}": key, f"values_{k}": value}
        following = self.scored_by(self.output(hidden[:, 0]))
        written |= {**clock, **following, FINITE: self.finite(possible)}
        return written, self.predicted(following, came)

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
        outputs = torch.cat([self.first_output(len(gap))[:, None], self.output(hidden)], 1)
        return self.log_density(self.scored_by(outputs), gap, mark)

    def _along(self, k: int, hidden: Tensor, turns: tuple[Tensor, ...], ticks: Tensor) -> Tensor:
        """Return the rows `hidden` (B, N, D) of whole sequences after layer k, chunk by chunk.

        `turns` is what `turned` returns; `ticks` (B, N) are the times of the events.
        """
        hidden, query, key, value = self.attended(k, hidden, turns)
        n_events = hidden.shape[1]
        number, chunks = torch.arange(n_events, device=hidden.device), []
        for start in range(0, n_events, CHUNK):
            now = slice(start, start + CHUNK)
            past = slice(max(0, start - self.config.window), start + CHUNK)
            scores = query[:, :, now] @ key[:, :, past].mT
            if not self.is_published:
                scores = scores - self.aged(k, self.ages(ticks[:, now], ticks[:, past]))
            back = number[now, None] - number[past]
            unseen = (back < 0) | (back > self.config.window)
            scores = scores.masked_fill(unseen, HIDDEN_SCORE)
            chunks.append(self.behind(k, hidden[:, now], scores, value[:, :, past]))
        return torch.cat(chunks, 1) if chunks else hidden

    @property
    def summary(self) -> str:
        c = self.config
        return f"THP, {c.n_layers} layers, {c.width} wide, window {c.window}"
