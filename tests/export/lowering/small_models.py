"""Small models on the contract, and what runs their graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.predictions import Raw
from edgefold.train.contract import Ring, State, StreamingModel

Array = NDArray[Any]
N_STREAMS = 2


class Gru(StreamingModel):
    """A recurrent model with one matrix of state and a dense head."""

    n_inputs, n_outputs = 2, 1

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.cell = nn.GRUCell(self.n_inputs + self.n_outputs, width)
        self.head = nn.Sequential(nn.Linear(width + self.n_inputs, 5), nn.SiLU(), nn.Linear(5, 2))
        self.width = width

    def initial_state(self, n_streams: int = 1) -> State:
        return {"hidden": torch.zeros(n_streams, self.width)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return {"hidden": self.cell(torch.cat([x, y], -1), state["hidden"])}

    def query(self, cache: State, x: Tensor) -> State:
        hidden = cache["hidden"][:, None].expand(-1, x.shape[1], -1)
        mean, spread = self.head(torch.cat([hidden, x], -1)).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}


class Window(StreamingModel):
    """The mean of the last points, in a ring with a counter."""

    n_inputs, n_outputs = 0, 2
    length = 4
    rings: Mapping[str, Ring] = {"past": Ring(1, "n_points")}

    def initial_state(self, n_streams: int = 1) -> State:
        return {
            "past": torch.zeros(n_streams, self.length, self.n_outputs),
            "n_points": torch.zeros(n_streams, dtype=torch.int64),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        assert x.shape == (len(y), 0)
        return {"past": y[:, None], "n_points": state["n_points"] + 1}

    def query(self, cache: State, x: Tensor) -> State:
        seen = cache["n_points"].clamp(1, self.length)[:, None, None]
        mean = cache["past"].sum(1, keepdim=True) / seen
        return {"mean": mean, "std": torch.ones_like(mean)}


class Welford(StreamingModel):
    """Mean and variance, in tensors that are named like a prediction; consolidated now and then."""

    n_inputs, n_outputs = 1, 1
    consolidate_every = 8

    def initial_state(self, n_streams: int = 1) -> State:
        names = ("x", "mean", "recent", "mask")
        state = {name: torch.zeros(n_streams, 1) for name in names}
        return {**state, "never_written": torch.full((n_streams, 3), 7.0)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return {"recent": state["recent"] + y, "x": state["x"] + 1, "mask": state["mask"]}

    def consolidate(self, state: State) -> State:
        return {
            "mean": state["mean"] + state["recent"],
            "recent": torch.zeros_like(state["recent"]),
        }

    def refresh(self, state: State) -> State:
        total = state["mean"] + state["recent"]
        return {"mean": total / state["x"].clamp(min=1), "offset": state["never_written"] * 2}

    def query(self, cache: State, x: Tensor) -> State:
        mean = cache["mean"][:, None].expand(-1, x.shape[1], -1)
        return {"mean": mean, "std": cache["offset"][:, None, :1].expand_as(mean)}


class Filter(StreamingModel):
    """A delay line: each answer is the input of two steps ago."""

    n_inputs, n_outputs = 3, 0
    prediction = Raw({"delayed": (3,)})

    def initial_state(self, n_streams: int = 1) -> State:
        return {"older": torch.zeros(n_streams, 3), "newer": torch.zeros(n_streams, 3)}

    def step(self, state: State, x: Tensor) -> tuple[State, State]:
        return {"older": state["newer"], "newer": x}, {"delayed": state["older"]}


def run(graph: StepGraph | onnx.ModelProto, values: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph by name; values that it has no input for are left out."""
    model = graph.model if isinstance(graph, StepGraph) else graph
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {t.name: values[t.name].reshape(t.shape) for t in session.get_inputs()}
    names = [tensor.name for tensor in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def run_step(
    made: StepGraphs, name: str, held: Mapping[str, Array], **given: Array
) -> dict[tuple[str, str], Array]:
    """The outputs of a step by role and name.

    Args:
        made: All graphs.
        name: Of the graph.
        held: State or cache, by name.
        given: x, y and mask.
    """
    graph = next(graph for graph in made.steps if graph.name == name)
    found = run(
        graph,
        {t.name: held[t.of] if t.role in ("state", "cache") else given[t.of] for t in graph.inputs},
    )
    return {(tensor.role, tensor.of): found[tensor.name] for tensor in graph.outputs}


def normal(*shape: int, seed: int = 0) -> Array:
    """Random numbers as a device gets them."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Shelves(StreamingModel):
    """Keeps each point on a shelf of its sign and a place of its size: two rings, two slots.

    A stream whose y is above 9 asks for a place that the shelf lacks.
    """

    n_inputs, n_outputs = 0, 1
    length = 10
    rings: Mapping[str, Ring] = {"low": Ring(1, slot="place"), "high": Ring(2, slot="other")}

    def initial_state(self, n_streams: int = 1) -> State:
        return {
            "low": torch.zeros(n_streams, self.length, 1),
            "high": torch.zeros(n_streams, 2, self.length + 1),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        place = y[:, 0].abs().floor().long()
        return {
            "low": y[:, None],
            "high": torch.stack([y, -y], 1),
            "place": place,
            "other": self.length - place,
        }

    def query(self, cache: State, x: Tensor) -> State:
        mean = cache["low"].sum(1) + 10 * cache["high"][:, 0].amax(1, keepdim=True)
        return {"mean": mean[:, None], "std": torch.ones_like(mean)[:, None]}


class Bounded(Window):
    """Keeps so many points in whole, and has a seed that shifts what it predicts."""

    def __init__(self, capacity: int = 6, when_full: str = "refuse") -> None:
        super().__init__()
        self.capacity, self.when_full = capacity, when_full

    def initial_state(self, n_streams: int = 1) -> State:
        seed = torch.zeros(n_streams, dtype=torch.int64)
        return super().initial_state(n_streams) | {"seed": seed}

    def query(self, cache: State, x: Tensor) -> State:
        found = super().query(cache, x)
        return found | {"mean": found["mean"] + cache["seed"][:, None, None]}
