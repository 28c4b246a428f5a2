"""Narrow precisions on a model that knows nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.precision.accuracy_loss import log_likelihoods
from edgefold.runtime import Categorical, Stream
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.golden import check_bundle
from edgefold.runtime.errors import ExportError
from edgefold.train.batch import Batch
from edgefold.train.contract import Prediction, State, StreamingModel
from edgefold.train.tasks.contract import Episode, TaskStreams

OPERATORS = {"float16": "Cast", "int8": "QuantizeLinear"}


class Average(StreamingModel):
    """A moving average of points, and layers that read it; one has no bias."""

    n_inputs = 2

    def __init__(self) -> None:
        super().__init__()
        self.point, self.first = nn.Linear(3, 16), nn.Linear(16, 24)
        self.second, self.own = nn.Linear(24, 16, bias=False), nn.Linear(2, 16)
        self.last = nn.Linear(16, 2)

    def initial_state(self, n_streams: int = 1) -> State:
        return {"mean_point": torch.zeros(n_streams, 16)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        point = torch.tanh(self.point(torch.cat([x, y], -1)))
        return {"mean_point": 0.9 * state["mean_point"] + 0.1 * point}

    def query(self, cache: State, x: Tensor) -> Prediction:
        seen = self.second(F.gelu(self.first(cache["mean_point"])))[:, None]
        mean, spread = self.last(torch.relu(seen + self.own(x))).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}


class Filter(StreamingModel):
    """A filter without a product."""

    def initial_state(self, n_streams: int = 1) -> State:
        return {"sum": torch.zeros(n_streams, 1)}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        total = state["sum"] + x
        return {"sum": total}, {"mean": total, "std": torch.ones_like(total)}


class Scores(StreamingModel):
    """A filter: a moving average of tokens, which two layers read; the second one is the last."""

    n_inputs, prediction = 2, Categorical(3)

    def __init__(self) -> None:
        super().__init__()
        self.token, self.mix = nn.Linear(2, 16), nn.Linear(16, 16)
        self.first, self.last = nn.Linear(16, 24), nn.Linear(24, 3)

    def initial_state(self, n_streams: int = 1) -> State:
        return {"mean": torch.zeros(n_streams, 16)}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        token = torch.tanh(self.token(x) + self.mix(state["mean"]))
        mean = 0.9 * state["mean"] + 0.1 * token
        return {"mean": mean}, {"scores": self.last(F.gelu(self.first(mean)))}


def windows(seed: int) -> Iterator[Episode]:
    random = np.random.default_rng(seed)
    while True:
        x = random.normal(size=(12, 2))
        yield Episode(x, random.integers(0, 3, (12, 1)).astype(float), n_context=8)


@pytest.mark.parametrize("precision", OPERATORS)
def test_any_model_is_narrowed_and_passes_its_check(tmp_path: Path, precision: str) -> None:
    torch.manual_seed(0)
    config = ExportConfig(8, 4, parity_steps=60, precision=precision)
    report = export_bundle(Average().eval(), {"name": "untrained"}, tmp_path / "b", config)
    assert 0 < report.precision["parity"]["worst"] < 0.02
    assert check_bundle(tmp_path / "b").passed
    for graph in load_manifest(tmp_path / "b").graphs.values():
        model = onnx.load(tmp_path / "b" / graph.file, load_external_data=False)
        narrow = graph.step == "query"
        assert graph.precision == (precision if narrow else "float32")
        assert (OPERATORS[precision] in {node.op_type for node in model.graph.node}) == narrow


@pytest.mark.parametrize("precision", OPERATORS)
def test_a_filter_without_a_product_is_not_narrowed(tmp_path: Path, precision: str) -> None:
    config = ExportConfig(8, 4, parity_steps=60, precision=precision)
    with pytest.raises(ExportError, match="step"):
        export_bundle(Filter().eval(), {"name": "untrained"}, tmp_path / "b", config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.one_case
@pytest.mark.parametrize("n_streams", [1, 2])
@pytest.mark.parametrize("precision", OPERATORS)
def test_a_filter_is_narrowed_behind_its_state_and_judged_on_its_task(
    tmp_path: Path, precision: str, n_streams: int
) -> None:
    torch.manual_seed(0)
    config = ExportConfig(8, 4, n_streams, 60, precision=precision)
    streams = TaskStreams(list(islice(windows(0), 3)), {"held out": windows(1)}, "some", "others")
    path = tmp_path / "b"
    report = export_bundle(Scores().eval(), {"name": "mine"}, path, config, streams=streams)
    assert 0 < report.precision["parity"]["worst"] < 0.05
    assert abs(report.precision["log_likelihood_change"]["held out"]) < 0.01
    assert check_bundle(path).passed
    (graph,) = load_manifest(path).graphs.values()
    assert graph.precision == precision
    assert {t.dtype for t in (*graph.inputs, *graph.outputs)} == {"float32"}
    nodes = onnx.load(path / graph.file, load_external_data=False).graph.node
    assert OPERATORS[precision] in {node.op_type for node in nodes}
    written = {t.name for t in graph.outputs if t.role == "state"}
    for node in reversed(nodes):  # what the state is made of has no narrow node before it
        if written.intersection(node.output):
            assert node.op_type not in OPERATORS.values()
            written.update(node.input)


def test_a_filters_bundle_scores_the_tokens_that_pytorch_scores(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, episode = Scores().eval(), next(windows(2))
    export_bundle(model, {"name": "mine"}, tmp_path / "b", ExportConfig(8, 4, parity_steps=60))
    x, y = (torch.tensor(part).float()[None] for part in (episode.x, episode.y))
    with torch.no_grad():
        batch = Batch(x[:, :8], y[:, :8], x[:, 8:], y[:, 8:])
        expected = model.log_likelihood(batch)[0].numpy()
    with Stream.open(tmp_path / "b", backend="onnxruntime") as stream:
        found = log_likelihoods(stream, episode)
    assert np.allclose(found, expected, atol=1e-5)  # float32 over 12 tokens
