"""Make an ONNX graph static: what depends on constants and shapes alone is computed here, once.

    fold      evaluate constants, decide and inline `If`, leave out what nobody reads (onnxscript)
    simplify  nodes that only give bytes another shape become one Reshape, or none; short
              convolutions become products

What stays dynamic is refused: loops, undecided branches, random numbers, shapes that depend on
values. So are operators outside the ONNX standard, which backends know by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import NodeProto, helper
from onnx_ir.passes import common
from onnxscript import optimizer

from edgefold.export.lowering.convolutions import as_products
from edgefold.export.static_graph import (
    Shape,
    attribute,
    constants_of,
    copied,
    dtypes_of,
    rebuilt,
    shapes_of,
)
from edgefold.runtime.errors import ExportError
from edgefold.runtime.manifest import DTYPES

RANDOM = {"RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"}
RANDOM |= {f"{name}Like" for name in RANDOM}
REASONS = {
    **dict.fromkeys(("Loop", "Scan", "SequenceMap"), "is a loop inside the graph; unroll it"),
    "If": "is decided by data; every step must run the same nodes, so use Where",
    **dict.fromkeys(RANDOM, "draws random numbers, but a step must be repeatable"),
}
KEPT = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
"""Constants behind these stay quantised."""
VIEWS = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand"}
VIEWS |= {f"Reduce{name}" for name in ("Mean", "Sum", "Max", "Min", "Prod")}
"""These give their input's bytes if the output has as many."""
UNLIMITED = 1 << 40


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with fixed shapes everywhere; its inputs' shapes must be fixed.

    Raises:
        ExportError: Something that is dynamic or not standard is left.
    """
    found = ir.from_proto(model)
    for value in found.graph.outputs:
        value.shape = None
    for node in found.graph.all_nodes():
        for value in node.outputs:
            value.shape = None  # declared for inputs of any shape
    optimizer.optimize_ir(
        found,
        num_iterations=8,
        input_size_limit=UNLIMITED,
        output_size_limit=UNLIMITED,
        should_fold=lambda node: node.op_type not in KEPT,
    )
    common.ClearMetadataAndDocStringPass()(found)
    folded = ir.to_proto(found)
    for node in folded.graph.node:
        if node.domain not in ("", "ai.onnx"):
            _refuse(node, f"belongs to {node.domain}, not to the ONNX standard")
        if node.op_type in REASONS:
            _refuse(node, REASONS[node.op_type])
    try:
        checked = rebuilt(folded, folded.graph.node, constants_of(folded))
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise ExportError(f"the folded graph is not valid ONNX: {error}") from error
    _require_static(checked)
    return checked


def _refuse(node: NodeProto, reason: str) -> None:
    raise ExportError(f"the node {node.op_type} ({node.name or node.output[0]}) {reason}.")


def _require_static(model: onnx.ModelProto) -> None:
    """Refuse what has no shape, or an element type that no buffer has."""
    shapes, dtypes = shapes_of(model), dtypes_of(model)
    for node in model.graph.node:
        for name in filter(None, node.output):
            if not all(shapes.get(name, (0,))):
                _refuse(node, "gives a value whose shape depends on data")
            if str(dtypes.get(name)) not in DTYPES:
                _refuse(node, f"computes in {dtypes.get(name)}; known are {', '.join(DTYPES)}")


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with fewer nodes; shapes must be fixed."""
    return join_views(as_products(join_views(model)))


def join_views(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with each chain of views as one Reshape of the chain's source, or as nothing."""
    shapes, constants = shapes_of(model), constants_of(model)
    outputs = {info.name for info in model.graph.output}
    sources: dict[str, str] = {}
    nodes = []
    for node in model.graph.node:
        out = node.output[0]
        if not _is_view(node, shapes):
            same = {name: sources[name] for name in node.input if name in sources}
            same = {name: source for name, source in same.items() if shapes[name] == shapes[source]}
            nodes.append(copied(node, [same.get(name, name) for name in node.input]))
            continue
        source = sources[out] = sources.get(node.input[0], node.input[0])
        if shapes[source] != shapes[out]:
            constants[f"{out}_shape"] = np.array(shapes[out])
            nodes.append(helper.make_node("Reshape", [source, f"{out}_shape"], [out], out))
        elif out in outputs:
            nodes.append(helper.make_node("Identity", [source], [out], out))
    return rebuilt(model, nodes, constants)


def _is_view(node: NodeProto, shapes: dict[str, Shape]) -> bool:
    """Whether a node's output has its input's bytes in the same order."""
    if node.op_type != "Transpose":
        if node.op_type not in VIEWS:
            return False
        return bool(np.prod(shapes[node.input[0]]) == np.prod(shapes[node.output[0]]))
    before = shapes[node.input[0]]
    order: Any = attribute(node, "perm", range(len(before))[::-1])
    moved = [axis for axis in order if before[axis] != 1]
    return moved == sorted(moved)
