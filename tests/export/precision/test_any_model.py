"""Narrow precisions on a model that knows nothing of them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime.errors import ExportError
from edgefold.runtime.golden import check_bundle
from edgefold.runtime.manifest_file import load_manifest
from edgefold.train.models.contract import Prediction, State, StreamingModel

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
    """A model of the filtering kind."""

    def initial_state(self, n_streams: int = 1) -> State:
        return {"sum": torch.zeros(n_streams, 1)}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        total = state["sum"] + x
        return {"sum": total}, {"mean": total, "std": torch.ones_like(total)}


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
def test_a_model_of_the_filtering_kind_is_not_narrowed(tmp_path: Path, precision: str) -> None:
    config = ExportConfig(8, 4, parity_steps=60, precision=precision)
    with pytest.raises(ExportError, match="export it in float32"):
        export_bundle(Filter().eval(), {"name": "untrained"}, tmp_path / "b", config)
    assert list(tmp_path.iterdir()) == []
