"""Attention alone: what the continual encoders do at a token, without the layers around it.

A core takes a query, a key and a value (the query is scaled already: scores are plain products) and
gives what the heads find. It is the form that a device model runs, with the projection replaced by
the identity. Of Nystrom attention the value has a 1 behind it, which on a device is a part of the
projection's bias; `WithOnes` appends it where a stream gives plain tokens. Where landmarks are
fixed, the products with them are folded into the projection on a device: a core of the kind "...
folded" therefore takes scores instead of a query and a key, and the other makes the products.

Its kinds, and what they answer:

    single                   the newest token's softmax attention
    retroactive              that of all tokens in the window
    nystrom fixed            the newest token's Nystrom attention to fixed landmarks
    nystrom fixed folded     the same, from scores
    nystrom means            the same to means over segments of a grid over the stream
    hopping                  to fixed landmarks, over a window of whole blocks
    hopping folded           the same, from scores
    nystrom ... retroactive  that of all tokens in the window
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime.predictions import Raw
from edgefold.train.contract import Prediction, State, StreamingModel
from edgefold.train.layers.nystrom_attention import exact_inverse
from edgefold.train.layers.postnorm_layers import PostNormLayer
from edgefold.train.models.ordered.continual_attention import Retroactive, SingleOutput
from edgefold.train.models.ordered.continual_nystrom_device import (
    NystromRetroactive,
    NystromSingle,
    mixed,
)
from edgefold.train.models.ordered.hopping_nystrom import HoppingDevice, HoppingNystrom
from edgefold.train.models.ordered.window_encoder import WindowEncoder
from edgefold.train.models.ordered.window_nystrom import WindowNystrom
from edgefold.train.models.registry import create_model

KINDS = (
    *("single", "retroactive", "nystrom fixed", "nystrom fixed folded", "nystrom means"),
    *("nystrom fixed retroactive", "nystrom means retroactive", "hopping", "hopping folded"),
)
Form = SingleOutput | Retroactive | NystromSingle


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a core; those of Carreto Picon et al., Table III, unless told.

    Attributes:
        window: n. width: D. n_heads: H. n_landmarks: m.
    """

    window: int = 120
    width: int = 192
    n_heads: int = 16
    n_landmarks: int = 4

    @property
    def head_width(self) -> int:
        """D / H."""
        return self.width // self.n_heads


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Constant landmarks, queries (scaled) and keys, each (H, m, D/H)."""

    queries: Tensor
    keys: Tensor

    @property
    def inverse(self) -> Tensor:
        """The pseudo-inverse of their attention to each other, (H, m, m)."""
        return exact_inverse(self.queries, self.keys)


def drawn_landmarks(shape: Shape, seed: int = 0) -> Landmarks:
    """Landmarks of standard deviation 1, for what does not depend on their values."""
    generator = torch.Generator().manual_seed(seed)
    size = shape.n_heads, shape.n_landmarks, shape.head_width
    queries = torch.randn(size, generator=generator) / shape.head_width**0.5
    return Landmarks(queries, torch.randn(size, generator=generator))


class WithOnes(nn.Module):
    """In place of a projection: a token's numbers (B, X) with H ones behind them."""

    def __init__(self, n_heads: int):
        super().__init__()
        self.register_buffer("ones", torch.ones(1, n_heads))

    def forward(self, row: Tensor) -> Tensor:
        return torch.cat([row, self.get_buffer("ones").expand(len(row), -1)], 1)


class Product(nn.Module):
    """In place of `FixedLandmarks`: the same from a query, a key and a value with a 1 behind it."""

    inverse: Tensor

    def __init__(self, landmarks: Landmarks, shape: Shape):
        super().__init__()
        self.shape = shape
        self.project: nn.Module = nn.Identity()
        self.register_buffer("keys", landmarks.keys.permute(1, 2, 0).contiguous())  # (m, d, H)
        self.register_buffer("queries", landmarks.queries.permute(1, 2, 0).contiguous())
        self.register_buffer("inverse", landmarks.inverse.permute(1, 2, 0).contiguous())

    def forward(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d, h = self.shape.head_width, self.shape.n_heads
        query, key, value = (
            part.unflatten(1, (1, -1, h))
            for part in self.project(row).split([d * h, d * h, (d + 1) * h], 1)
        )
        of_query = (self.get_buffer("keys") * query).sum(2, keepdim=True)
        score = (self.get_buffer("queries") * key).sum(2, keepdim=True)
        return mixed(of_query, self.inverse), score, value


class Core(StreamingModel):
    """The attention of a device model, its projection replaced."""

    name, n_outputs = "attention-core", 0

    def __init__(self, form: Form, shape: Shape, n_inputs: int, n_found: int | None = None):
        super().__init__()
        self.form, self.n_inputs = form, n_inputs
        self.rings = form.rings
        found = (shape.n_heads, shape.head_width)
        if n_found is not None:
            found = (shape.n_heads, n_found, shape.head_width)  # type: ignore[assignment]
        self.prediction = Raw({"found": found})
        self.register_buffer("like", torch.zeros(1))

    def initial_state(self, n_streams: int = 1) -> State:
        state = self.form.initial_state(self.get_buffer("like"), n_streams)
        return {**state, "n_tokens": torch.zeros(n_streams, dtype=torch.int64)}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        written, found = self.form.step(state, x)
        finite = found.flatten(1).sum(-1)
        following = {**written, "n_tokens": state["n_tokens"] + 1, "finite": finite}
        return following, {"found": found}


class ConsolidatingCore(Core):
    """The same of a form that consolidates."""

    form: NystromSingle

    def __init__(self, form: NystromSingle, shape: Shape, n_inputs: int, n_found: int | None):
        super().__init__(form, shape, n_inputs, n_found)
        self.consolidate_every = form.period

    def consolidate(self, state: State) -> State:
        return self.form.consolidate(state)


class HoppingCore(HoppingDevice):
    """The hopping window's attention, without embedding, positions and feed-forward layers."""

    def __init__(self, model: HoppingNystrom, shape: Shape, n_inputs: int):
        super().__init__(model)
        self.name, self.n_inputs, self.n_outputs = "hopping-core", n_inputs, 0
        self.prediction = Raw({"scores": (shape.n_heads, shape.head_width)})
        # The layer around the attention is taken away: rows go in and what is found comes out.
        model.embed = nn.Identity()  # type: ignore[assignment]
        model.encoding = nothing_added  # type: ignore[method-assign]
        layer: Any = model.layers[0]
        layer.finish = found_alone
        model.scores = nn.Identity()  # type: ignore[assignment]

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        written, answer = super().step(state, x)
        return {**written, "finite": answer["scores"].flatten(1).sum(-1)}, answer


def nothing_added(positions: Tensor) -> Tensor:
    """In place of a positional encoding."""
    return torch.zeros(1)


def found_alone(rows: Tensor, found: Tensor) -> Tensor:
    """In place of a layer's end: what the heads found (B, H, 1, d) as (B, 1, H, d)."""
    return found.transpose(1, 2)


def our_core(
    kind: str, shape: Shape, landmarks: Landmarks | None = None, with_ones: bool = False
) -> Core | HoppingCore:
    """One of `KINDS`; `with_ones` where tokens come as `rows_of` gives them without ones."""
    landmarks = landmarks or drawn_landmarks(shape)
    many = kind.endswith("retroactive")
    settings: dict[str, Any] = {"window": shape.window, "width": shape.width}
    settings |= {"n_heads": shape.n_heads, "n_layers": 1}
    n_found = shape.window if many else None
    if kind in ("single", "retroactive"):
        model = create_model("continual-transformer", settings)
        assert isinstance(model, WindowEncoder)
        layer = model.layers[0]
        assert isinstance(layer, PostNormLayer)
        exact = Retroactive(layer, shape.window) if many else SingleOutput(layer, shape.window)
        exact.heads.project = nn.Identity()  # type: ignore[assignment]
        return Core(exact, shape, 3 * shape.width, n_found)
    settings["n_landmarks"] = shape.n_landmarks
    wide = shape.width if with_ones else shape.width + shape.n_heads  # of the value
    folded = kind.endswith("folded")
    n_inputs = wide + 2 * (shape.n_landmarks * shape.n_heads if folded else shape.width)

    def replaced(own: nn.Module) -> nn.Module:
        """Return the module that takes a token instead of a layer's projection `own`."""
        new = own if folded or "means" in kind else Product(landmarks, shape)
        new.project = WithOnes(shape.n_heads) if with_ones else nn.Identity()
        return new

    if kind.startswith("hopping"):
        hopping = with_landmarks(create_model("hopping-nystrom", settings), landmarks)
        assert isinstance(hopping, HoppingNystrom)
        core = HoppingCore(hopping, shape, n_inputs)
        core.landmarks[0] = replaced(core.landmarks[0])
        return core
    settings["landmarks"] = "fixed" if "fixed" in kind else "means"
    chosen = create_model("continual-nystrom", settings)
    assert isinstance(chosen, WindowNystrom)
    if chosen.is_fixed:
        with_landmarks(chosen, landmarks)
    form = NystromRetroactive(chosen) if many else NystromSingle(chosen)
    form.landmarks = replaced(form.landmarks)
    return ConsolidatingCore(form, shape, n_inputs, n_found)


def with_landmarks(model: StreamingModel, landmarks: Landmarks) -> WindowNystrom:
    """A model of one layer with these landmarks."""
    assert isinstance(model, WindowNystrom)
    with torch.no_grad():
        model.landmark_queries[0] = landmarks.queries
        model.landmark_keys[0] = landmarks.keys
        model.inverses[0] = landmarks.inverse
    return model


Arrays = NDArray[np.float32]


def rows_of(kind: str, queries: Arrays, keys: Arrays, values: Arrays) -> Arrays:
    """Tokens as a core with `with_ones` takes them: (N, X) of queries, keys, values (N, H, d)."""
    parts = [queries, keys, values]
    if kind not in ("single", "retroactive"):  # heads lie innermost
        parts = [part.swapaxes(1, 2) for part in parts]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], 1, dtype=np.float32)


class SelfConsolidating(StreamingModel):
    """A core that consolidates by itself in PyTorch, with which its bundle is compared."""

    def __init__(self, core: Core | HoppingCore):
        super().__init__()
        self.core, self.name, self.prediction = core, core.name, core.prediction
        self.n_inputs, self.n_outputs, self.rings = core.n_inputs, 0, core.rings

    def initial_state(self, n_streams: int = 1) -> State:
        return self.core.initial_state(n_streams)

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        n_tokens, period = int(state["n_tokens"][0]), self.core.consolidate_every
        is_due = period and n_tokens and n_tokens % period == 0
        made = self.core.consolidate(state) if is_due else {}
        written, found = self.core.step({**state, **made}, x)
        return {**made, **written}, found

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return self.core


def write_bundle(core: Core | HoppingCore, folder: Path) -> None:
    """Export a core; its golden stream is compared with PyTorch as for any bundle."""
    config = ExportConfig(parity_steps=256)
    export_bundle(SelfConsolidating(core).eval(), {"name": "attention"}, folder, config)
