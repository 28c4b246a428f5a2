"""ONNX files for tests of the importer, and the comparison with what is imported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import parser

from edgefold.export.graphs.step_graphs import StepGraphs
from edgefold.export.importing.onnx_import import Reference, import_onnx, record_reference
from edgefold.export.importing.onnx_interface import ImportConfig
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort

Array = np.ndarray[Any, Any]
LEAKY = """g (float[batch, 3] x, float[batch, 3] h) => (float[batch, 1] y, float[batch, 3] hn) {
    keep = Constant <value_float=0.9> ()
    kept = Mul (h, keep)
    hn = Add (kept, x)
    y = ReduceMax <axes=[1], keepdims=1> (hn)
}"""


def written(folder: Path, text: str, opset: int = 15, ir_version: int = 8) -> Path:
    """A file with a model in the ONNX checker's own notation."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "other" : 1]>'
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(f"{header} {text}"), path)
    return path


def run(graphs: StepGraphs, x: Array) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Predictions (B, N, -1), the last state, and `finite` of all steps, along x (B, N, X)."""
    (step,) = graphs.steps
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        step.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    state, answers, finite = dict(graphs.state), [], []
    for row in np.moveaxis(x, 1, 0):
        feeds = {
            tensor.name: row.reshape(tensor.shape)
            if tensor.role == "points.x"
            else state[tensor.of]
            for tensor in step.inputs
        }
        found = session.run([tensor.name for tensor in step.outputs], feeds)
        for tensor, array in zip(step.outputs, found, strict=True):
            assert array.shape == tensor.shape and str(array.dtype) == tensor.dtype
            if tensor.role == "state":
                state[tensor.of] = array
        by_role = {t.of: a for t, a in zip(step.outputs, found, strict=True) if t.role != "state"}
        finite.append(by_role.pop("finite", None))
        answers.append(by_role)
    n_streams, n_steps = x.shape[:2]
    predictions = {
        name: np.stack([answer[name] for answer in answers])
        .reshape(n_steps, n_streams, -1)
        .swapaxes(0, 1)
        for name in answers[0]
    }
    return predictions, state, np.array(finite)


def require_same(
    path: Path, config: ImportConfig, n_steps: int = 20, atol: float = 1e-6
) -> tuple[StepGraphs, Reference]:
    """Import a file and compare it with itself along a stream."""
    imported = import_onnx(path, config)
    reference = record_reference(path, config, n_steps)
    predictions, state, _ = run(imported.graphs, reference.x)
    assert predictions.keys() == reference.predictions.keys() == imported.prediction.shapes.keys()
    for name, array in reference.predictions.items():
        assert array.shape[2:] == imported.prediction.shapes[name]
        np.testing.assert_allclose(predictions[name].reshape(array.shape), array, atol=atol)
    for name, array in reference.state.items():
        np.testing.assert_allclose(state[name], array, atol=atol)
    return imported.graphs, reference


def operators(graphs: StepGraphs) -> Counter[str]:
    return Counter(node.op_type for node in graphs.steps[0].model.graph.node)
