"""Make an ONNX graph static: compute in advance all that depends only on constants and shapes.

onnxscript evaluates constants, decides and inlines branches, and removes nodes that nobody reads.
A graph is refused if something dynamic is left (loops, undecided branches, random numbers, shapes
that depend on values) or an operator outside the ONNX standard.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

from edgefold.export.graphs.rewriting import EditableGraph
from edgefold.export.graphs.static_graph import dtypes_of, shapes_of
from edgefold.runtime.bundle.manifest import DTYPES
from edgefold.runtime.errors import ExportError

RANDOM = {"RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"}
RANDOM |= {f"{name}Like" for name in RANDOM}
REASONS = {
    **dict.fromkeys(("Loop", "Scan", "SequenceMap"), "is a loop inside the graph; unroll it"),
    "If": "is decided by data; every step must run the same nodes, so use Where",
    **dict.fromkeys(RANDOM, "draws random numbers, but a step must be repeatable"),
}
KEPT = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
"""Operators that are not computed in advance, so that quantised constants stay quantised."""
UNLIMITED = 1 << 40


def fold(model: ir.Model) -> onnx.ModelProto:
    """Fold a graph whose inputs have fixed shapes, and return it with fixed shapes everywhere.

    Raises:
        ExportError: The folded graph is not valid, or has something dynamic or not standard.
    """
    for value in model.graph.outputs:
        value.shape = None
    for node in model.graph.all_nodes():
        for value in node.outputs:
            value.shape = None  # declared for inputs of any shape
    optimizer.optimize_ir(
        model,
        num_iterations=8,
        input_size_limit=UNLIMITED,
        output_size_limit=UNLIMITED,
        should_fold=lambda node: node.op_type not in KEPT,
    )
    common.ClearMetadataAndDocStringPass()(model)
    for node in model.graph:
        if node.domain not in ("", "ai.onnx"):
            _refuse(node, f"belongs to {node.domain}, not to the ONNX standard")
        if node.op_type in REASONS:
            _refuse(node, REASONS[node.op_type])
    try:
        checked = EditableGraph(model).checked()
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise ExportError(f"the folded graph is not valid ONNX: {error}") from error
    shapes, dtypes = shapes_of(checked), dtypes_of(checked)
    for node in model.graph:
        for name in (str(value.name) for value in node.outputs if value.name):
            if not all(shapes.get(name, (0,))):
                _refuse(node, "gives a value whose shape depends on data")
            if str(dtypes.get(name)) not in DTYPES:
                _refuse(node, f"computes in {dtypes.get(name)}; known are {', '.join(DTYPES)}")
    return checked


def _refuse(node: ir.Node, reason: str) -> None:
    raise ExportError(f"the node {node.op_type} ({node.name or node.outputs[0].name}) {reason}.")
