"""Define CMHP, the constant-memory Hawkes process (Feng et al., ICML 2024, appendix C.1).

Constant-memory attention blocks read a stream of events. Their last latents, flattened, give a
mixture of log-normal distributions for the time to the next event, and its mark. The published form
weighs all events alike, for ever. Ours forgets with time (`decayed_attention`), at rates that are
learned: then the order of events matters, no sum grows, and the newest event always counts.

A token is the embedding of an event's gap and mark; with forgetting, each event's age is in its
score. The published form embeds the mark and the time, as sines and cosines (`tokens`). The time
and the periods are whole numbers of ticks, so that every angle is exact however long the stream is.

The device's form, `CmhpOnDevice`, does as little as possible and predicts the same.

Letters of shapes: B streams, N events, K marks (or blocks, in attention), L latents, H heads, D
width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import FINITE, Prediction, State, StreamingModel
from edgefold.train.layers.attention import (
    Attention,
    FeedForward,
    LayerNorm,
    Linear,
    Residual,
    join_heads,
)
from edgefold.train.layers.device_layers import Affine, exact, normalise
from edgefold.train.models.constant_memory.cmab import CmabModel, CmabOnDevice
from edgefold.train.models.events.event_model import LEVELS, EventModel
from edgefold.train.models.events.event_times import LONGEST_GAP, EventTimes, PublishedTimes
from edgefold.train.models.events.lognormal_mixture import (
    LEAST_GAP,
    MarkedLogNormals,
    Mixture,
    log_density,
    next_event,
    sought,
)
from edgefold.train.settings import SizedConfig
from edgefold.train.states.decayed_attention import (
    DecayedAttentionOnDevice,
    attend_along,
    attend_next,
    beside_a_silent_one,
)
from edgefold.train.states.running_attention import (
    RunningAttentionOnDevice,
    empty_attention,
    scores_values,
)
from edgefold.train.states.running_sums import CONSOLIDATE_EVERY

RATES = (0.02, 20.0)
"""Lowest and highest rate of forgetting at the start of training, for a unit of scaled time: they
remember for 50 units to 0.05 units."""

LEAST_RATE = 1e-4
"""Lowest rate that can be learned: below it sums of many thousands of events lose digits."""
Tokens = Literal["gap", "time"]
"""Form of an event's embedding: of its gap and mark, or the sum of its mark's row and of the
encoding of its time, as in THP, whose layers the published model replaces (Zuo et al. 2020)."""


@dataclass(frozen=True, slots=True)
class CmhpConfig(SizedConfig):
    """Holds the settings of a CMHP.

    Attributes:
        n_marks: K, the number of marks.
        n_blocks, width, n_heads, n_latents, feedforward: Sizes of the blocks; L_B and L_I (`cmab`)
            have `n_latents` rows each.
        n_components: Number of log-normal distributions in the mixture.
        forgetting: Whether events weigh less with their age; False is the published form.
        dependent_marks: Whether the probabilities of the marks depend on the gap; False is the
            published form. More than `MOST_DEPENDENT_MARKS` never do.
        levels: Levels of the quantiles of the gap that are predicted.
        tokens: Form of an event's embedding, described at `Tokens`; "time" is the published one.
        residual: Form of the blocks' layers, described at `attention.Residual`.
    """

    n_marks: int = 3
    n_blocks: int = 2
    width: int = 32
    n_heads: int = 4
    n_latents: int = 4
    feedforward: int = 64
    n_components: int = 64
    forgetting: bool = True
    dependent_marks: bool = True
    levels: tuple[float, ...] = LEVELS
    tokens: Tokens = "gap"
    residual: Residual = "input"

    def __post_init__(self) -> None:
        SizedConfig.__post_init__(self)
        if self.tokens == "time" and self.forgetting:
            raise ValueError("tokens 'time' needs forgetting false: only that form keeps the time")
        if self.tokens == "time" and self.width % 2:
            raise ValueError(f"width is {self.width}, must be even with tokens 'time'")


PRESETS = {
    "small": CmhpConfig(),
    "paper": CmhpConfig(
        n_blocks=6,
        width=64,
        n_latents=128,
        feedforward=128,
        forgetting=False,
        dependent_marks=False,
        tokens="time",
        residual="normalised",
    ),
}
"""Settings by name: `small` trains on two cores in minutes. The paper states only the mixture and
the embedding of this model; `paper` has the sizes and the layers of its neural processes."""


class MixtureModel(EventModel):
    """Keeps the mixture that it predicted last, to score the next event by it; a base class."""

    sought: Tensor

    def attend(self, state: State, gap: Tensor, mark: Tensor) -> State:
        """Return the state of the running attention after an event with gap and mark (B,)."""
        raise NotImplementedError

    def predicted(self, state: State) -> Mixture:
        """Predict the next event of each stream from its running attention: return the mixture."""
        raise NotImplementedError

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Read one event of each stream, x (B, 2): (gap, mark); predict the next: `NextEvent`."""
        gap, mark, possible = self.read(x)
        came = log_density(state, gap, mark)
        gap = gap.clamp(max=LONGEST_GAP)
        attention = self.attend(state, gap, mark)
        mixture = self.predicted(state | attention)
        prediction = next_event(mixture, self.sought, came)
        return {**attention, **mixture, FINITE: self.finite(possible)}, prediction


class Cmhp(CmabModel, MixtureModel):
    """Predicts the next event by K constant-memory attention blocks and a mixture of log-normals.

    State, per stream: `attended` (B, K, H, L, D/H), the average of the events' values that each
    latent attends to, and `log_count` (B, K, H, L, 1), the logarithm of its sum of weights; the
    mixture that was predicted last, by which the coming event is scored; in the published form
    `ticks` (B,), the present time.
    """

    name = "cmhp"
    presets: ClassVar[Mapping[str, CmhpConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "small": {"steps": 1000, "learning_rate": 3e-3, "warmup": 100}
    }

    def __init__(self, config: CmhpConfig):
        super().__init__(config.n_marks, config.levels)
        self.config = config
        n_blocks, n_latents, width = config.n_blocks, config.n_latents, config.width
        if config.tokens == "gap":
            self.gap_layer, self.token_layer = Linear(1, width), Linear(width, width)
        self.mark_layer = nn.Embedding(config.n_marks, width)

        def attention(cross: bool, stack: tuple[int, ...]) -> Attention:
            heads, residual = config.n_heads, config.residual
            return Attention(width, heads, cross=cross, stack=stack, residual=residual)

        self._add_blocks(
            torch.randn(n_blocks, n_latents, width),
            torch.randn(n_latents, width),
            lambda stack: FeedForward(width, config.feedforward, stack, config.residual),
            attention,
        )
        if config.forgetting:
            # Neighbours in the order of rates lie in different blocks.
            low, high = (math.log(rate) for rate in RATES)
            rates = torch.linspace(low, high, n_blocks * n_latents * config.n_heads)
            shape = (n_blocks, config.n_heads, n_latents)
            self.log_rates = nn.Parameter(rates.view(-1, n_blocks).mT.reshape(shape))
            self.count_layer = Linear(config.n_heads, width, bias=False, stack=(n_blocks,))
        elif config.tokens == "time":
            self.times: EventTimes = PublishedTimes(width // 2)
        else:
            self.times = EventTimes(width // 2)
            self.time_layer = Linear(width // 2 * 2, width, bias=False)
        self.head_norm = LayerNorm(width)
        self.head = MarkedLogNormals(
            n_latents * width, config.n_marks, config.n_components, config.dependent_marks
        )
        self.register_buffer("sought", sought(self.levels), persistent=False)

    def initial_state(self, n_streams: int = 1) -> State:
        c = self.config
        shape = (n_streams, c.n_blocks, c.n_heads, c.n_latents, c.width // c.n_heads)
        state = empty_attention(self.block_latents, *shape)
        with torch.no_grad():
            state |= {name: tensor.contiguous() for name, tensor in self.predicted(state).items()}
        if not c.forgetting:
            state["ticks"] = torch.zeros(
                n_streams, dtype=torch.int64, device=self.block_latents.device
            )
        return state

    @property
    def rates(self) -> Tensor:
        """Return the rates of forgetting, (K, H, L), for a unit of scaled time.

        They are 0 without forgetting.
        """
        if self.config.forgetting:
            return self.log_rates.clamp(min=math.log(LEAST_RATE)).exp()
        c = self.config
        return self.block_latents.new_zeros(c.n_blocks, c.n_heads, c.n_latents)

    def tokens(self, gap: Tensor, mark: Tensor, ticks: Tensor | None) -> Tensor:
        """Embed events of these gaps and marks, (...): return (..., D).

        Without forgetting `ticks` (...) are their times; else it is None.
        """
        if self.config.tokens == "time":
            assert ticks is not None
            return self.mark_layer(mark) + self.times.waves(ticks)
        hidden = self.gap_layer(gap.clamp(min=LEAST_GAP).log()[..., None]) + self.mark_layer(mark)
        if ticks is not None:
            hidden = hidden + self.time_layer(self.times.waves(ticks))
        token: Tensor = self.token_layer(torch.relu(hidden))
        return token

    def predicted(self, state: State) -> Mixture:
        attended = state["attended"]
        if self.config.forgetting:
            attended, count = beside_a_silent_one(state)
            counted = self.count_layer(count[..., 0].permute(1, 0, 3, 2))  # (K, B, L, D)
        joined = self.context_attention.out(join_heads(attended.transpose(0, 1)))
        *_, hidden = self.block_outputs(joined + counted if self.config.forgetting else joined)
        mixture: Mixture = self.head(self.head_norm(hidden).flatten(1))
        return mixture

    def attend(self, state: State, gap: Tensor, mark: Tensor) -> State:
        clock: State = {}
        if not self.config.forgetting:
            clock["ticks"] = self.times.after(state["ticks"], gap)
        token = self.tokens(gap, mark, clock.get("ticks"))
        pair = scores_values(self.context_attention, self.block_latents, token[:, None], None)
        aged = gap[:, None, None, None, None] * self.rates[..., None]
        return attend_next(state, *pair, aged) | clock

    def event_log_likelihood(self, events: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the log density (B, N), in nats, of events (B, N, 2), each given those before.

        The columns are gap and mark. `mask` is not used: real events come first in a row, and none
        depends on later ones.
        """
        gap, mark, _ = self.read(events)
        aged = gap.clamp(max=LONGEST_GAP)
        ticks = None if self.config.forgetting else self.times.along(aged)
        token = self.tokens(aged, mark, ticks)[:, :-1]
        pair = scores_values(self.context_attention, self.block_latents, token, None)
        after = attend_along(*pair, aged[:, :-1].double().cumsum(1), self.rates)
        before = {name: part[:, : gap.shape[1]].flatten(0, 1) for name, part in after.items()}
        mixture = self.predicted(before)
        return log_density(mixture, gap.flatten(), mark.flatten()).view_as(gap)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        device = CmhpOnDevice if self.config.forgetting else PublishedCmhpOnDevice
        return device(self, n_streams)

    @property
    def summary(self) -> str:
        c = self.config
        blocks = f"{c.n_blocks} block{'s'[: c.n_blocks > 1]}"
        return f"CMHP, {blocks}, {c.width} wide, {c.n_latents} latents"


class CmhpOnDevice(MixtureModel):
    """Runs a CMHP that forgets on a device, for a fixed number of streams."""

    running: RunningAttentionOnDevice
    gap_weight: Tensor
    mark_rows: Tensor

    @torch.no_grad()
    def __init__(self, model: Cmhp, n_streams: int):
        super().__init__(model.n_marks, model.config.levels)
        c = self.config = model.config
        self.n_streams = n_streams
        self._add_attention(model)
        self._add_tokens(model)
        outs = self._context_out(model)
        blocks = (
            CmabOnDevice(model, k, outs[k], n_streams, torch.float32) for k in range(c.n_blocks)
        )
        self.blocks = cast("list[CmabOnDevice]", nn.ModuleList(blocks))
        # The norm of each latent in front of the head, folded into it.
        weight, bias = exact(model.head.linear)
        by_latent = weight.unflatten(0, (c.n_latents, -1))  # (L, D, numbers)
        bias = bias + torch.einsum("i,lio->o", model.head_norm.bias.double(), by_latent)
        by_latent = by_latent * model.head_norm.weight.double()[:, None]
        self.head_numbers, self.head = Affine((by_latent.flatten(0, 1), bias)), model.head
        self.register_buffer("sought", model.sought)

    def _add_attention(self, model: Cmhp) -> None:
        latents, rates = model.block_latents, model.rates
        self.running = DecayedAttentionOnDevice(model.context_attention, latents, rates)

    def _add_tokens(self, model: Cmhp) -> None:
        rows = model.mark_layer.weight
        if model.config.tokens == "gap":
            weight, bias = exact(model.gap_layer)
            self.register_buffer("gap_weight", weight.float())  # (1, D)
            self.token_layer = Affine(exact(model.token_layer))
            rows = rows + bias
        self.register_buffer("mark_rows", rows.detach().float())  # (K, D)

    @staticmethod
    def _context_out(model: Cmhp) -> Tensor:
        """Return the weights of each block's output layer of attention, (K, H * (D/H + 1), D).

        They read D/H averages of each head and, by the head's last row, the logarithm of the
        head's sum of attention weights.
        """
        by_head = exact(model.context_attention.out)[0].unflatten(1, (model.config.n_heads, -1))
        counts = model.count_layer.weight.double()[:, :, None]  # (K, H, 1, D)
        return torch.cat([by_head, counts], 2).flatten(1, 2)

    def initial_state(self, n_streams: int = 1) -> State:
        state = self.running.initial_state(n_streams)
        with torch.no_grad():
            return state | {name: t.contiguous() for name, t in self.predicted(state).items()}

    def predicted(self, state: State) -> Mixture:
        attended, hidden = self.running.attended(state), None
        for block, heads in zip(self.blocks, attended.split(self.config.n_heads, 1), strict=True):
            rows = heads.flatten(1, 2).mT  # (B, L, features)
            hidden = block(rows.reshape(-1, rows.shape[-1]), hidden)
        assert hidden is not None
        features = normalise(hidden).view(self.n_streams, -1)
        return self.head.mixture(self.head_numbers(features))

    def attend(self, state: State, gap: Tensor, mark: Tensor) -> State:
        assert isinstance(self.running, DecayedAttentionOnDevice)
        return self.running.after(state, self._token(self._embedded(gap, mark)), gap)

    def _embedded(self, gap: Tensor, mark: Tensor) -> Tensor:
        log_gap = gap.clamp(min=LEAST_GAP).log()[:, None]
        return log_gap * self.gap_weight + self.mark_rows.index_select(0, mark)

    def _token(self, hidden: Tensor) -> Tensor:
        return normalise(self.token_layer(torch.relu(hidden)))

    def event_log_likelihood(self, events: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError("a device takes one event after the other")


class PublishedCmhpOnDevice(CmhpOnDevice):
    """Runs a CMHP that weighs all events alike on a device; `consolidate` keeps its sums exact."""

    consolidate_every = CONSOLIDATE_EVERY
    time_weight: Tensor

    def _add_attention(self, model: Cmhp) -> None:
        self.running = RunningAttentionOnDevice(model.context_attention, model.block_latents)
        self.times = model.times
        if model.config.tokens == "gap":
            self.register_buffer("time_weight", model.time_layer.weight.detach())

    @staticmethod
    def _context_out(model: Cmhp) -> Tensor:
        return exact(model.context_attention.out)[0]

    def initial_state(self, n_streams: int = 1) -> State:
        zero = torch.zeros(n_streams, dtype=torch.int64)
        return super().initial_state(n_streams) | {"ticks": zero}

    def attend(self, state: State, gap: Tensor, mark: Tensor) -> State:
        ticks = self.times.after(state["ticks"], gap)
        waves = self.times.waves(ticks)
        if self.config.tokens == "time":
            normal = normalise(self.mark_rows.index_select(0, mark) + waves)
        else:
            normal = self._token(self._embedded(gap, mark) + waves @ self.time_weight)
        return self.running.update(state, normal) | {"ticks": ticks}

    def consolidate(self, state: State) -> State:
        return self.running.consolidate(state)
