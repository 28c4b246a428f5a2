"""LSTM, GRU and RNN of one time are written by their formulas, and give the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from edgefold.export.bundle import export_bundle
from edgefold.export.graphs.loops import without_loops
from edgefold.export.graphs.recurrences import RECURRENT
from edgefold.export.graphs.static_graph import inferred
from edgefold.export.native.generator import refusal
from edgefold.train.contract import Prediction, State, StreamingModel

B, D, H = 2, 3, 4
FORMS = ["LSTM", "GRU", "GRU linear_before_reset = 1", "RNN"]


def a_recurrence(form: str, n_times: int = 1, bias: bool = True) -> onnx.ModelProto:
    """A graph of one operator with random weights."""
    kind, _, setting = form.partition(" ")
    cell = (", float[1,2,4] c", ", float[1,2,4] yc", ", c") if kind == "LSTM" else ("", "", "")
    settings = ", ".join(filter(None, [f"hidden_size = {H}", setting]))
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{n_times},{B},{D}] x, float[1,{B},{H}] h{cell[0]})
        => (float[{n_times},1,{B},{H}] y, float[1,{B},{H}] yh{cell[1]})
        {{ y, yh{", yc" if kind == "LSTM" else ""} = {kind} <{settings}>
          (x, w, r, {"b" if bias else ""}, , h{cell[2]}) }}"""
    model = onnx.parser.parse_model(text)
    gates, random = RECURRENT[kind], np.random.default_rng(0)
    shapes = {"w": (1, gates * H, D), "r": (1, gates * H, H), "b": (1, 2 * gates * H)}
    for name, shape in shapes.items():
        if name != "b" or bias:
            array = random.normal(size=shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return inferred(model)


def run(model: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    random = np.random.default_rng(1)
    values = {
        value.name: random.normal(size=value.shape).astype(np.float32)
        for value in session.get_inputs()
    }
    return list(session.run(None, values))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_one_time_is_the_same_by_the_formulas(form: str, bias: bool) -> None:
    model = a_recurrence(form, bias=bias)
    made = without_loops(model)
    assert not RECURRENT.keys() & {node.op_type for node in made.graph.node}
    for found, expected in zip(run(made), run(model), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)  # float32 of some units


@pytest.mark.parametrize("form", FORMS)
def test_several_times_stay_as_they_are(form: str) -> None:
    kinds = {node.op_type for node in without_loops(a_recurrence(form, n_times=2)).graph.node}
    assert kinds == {form.split()[0]}


class Recurrent(StreamingModel):
    """The torch.nn modules as a user writes them: whole sequences of one time."""

    n_inputs, n_outputs = 0, 1

    def __init__(self, kind: str):
        super().__init__()
        self.cells = getattr(nn, kind)(1, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def initial_state(self, n_streams: int = 1) -> State:
        return {"hidden": torch.zeros(n_streams, 4), "cell": torch.zeros(n_streams, 4)}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        hidden, cell = (state[name][None] for name in ("hidden", "cell"))
        if isinstance(self.cells, nn.LSTM):
            _, (hidden, cell) = self.cells(y[:, None], (hidden, cell))
        else:
            _, hidden = self.cells(y[:, None], hidden)
        return {"hidden": hidden[0], "cell": cell[0]}

    def query(self, cache: State, x: Tensor) -> Prediction:
        mean, spread = self.head(cache["hidden"])[:, None].chunk(2, -1)
        return {
            "mean": mean.expand(-1, x.shape[1], -1),
            "std": nn.functional.softplus(spread).expand(-1, x.shape[1], -1) + 1e-3,
        }


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_modules_of_torch_become_c(kind: str, tmp_path: Path) -> None:
    export_bundle(Recurrent(kind).eval(), {"name": "none"}, tmp_path / "bundle")
    assert not refusal(tmp_path / "bundle")
