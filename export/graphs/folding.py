"""Make an ONNX graph static: compute in advance all that depends only on constants and shapes.

onnxscript evaluates constants, decides and inlines branches, and removes nodes that nobody reads.
A graph is refused if something dynamic is left (loops, undecided branches, random numbers, shapes
that depend on values) or an operator outside the ONNX standard.
"""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer, rewriter

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
PASS_ERRORS = (ir.passes.PassError, ir.passes.InvariantError)
MOST_FOLDED_BYTES = 1 << 26
"""A node whose result has more bytes than this, and than each of its inputs, is not folded.

So a large weight is transposed in advance, and nodes that repeat a constant cannot fill the memory.
"""
MOST_BYTES = 1 << 28
"""A graph that computes a value of more bytes than this is refused, as is a state or an input.

It is far more than the memory of small machines; constants may be larger.
"""
UNLIMITED = 1 << 40  # onnxscript's own limits are small; `_is_folded` decides
MOST_PAIRED_NODES = 3000
"""Largest number of nodes of a graph in which onnxscript looks for pairs of nodes.

Its rules whose pattern ends in several nodes walk through the whole graph at each node, so that
their time grows with the square: some 20 s for so many nodes.
"""


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
    try:
        _optimize(model)
    except (*PASS_ERRORS, onnx.shape_inference.InferenceError) as error:
        reason = error.__cause__ or error
        raise ExportError(f"the graph cannot be folded: {reason}") from error
    common.ClearMetadataAndDocStringPass()(model)
    for node in model.graph:
        if node.domain not in ("", "ai.onnx"):
            _refuse(node, f"belongs to {node.domain}, not to the ONNX standard")
        if node.op_type in REASONS:
            _refuse(node, REASONS[node.op_type])
        if (n_bytes := max(map(_n_bytes, node.outputs), default=0)) > MOST_BYTES:
            _refuse(node, f"gives a value of {n_bytes >> 20} MiB, more than {MOST_BYTES >> 20}")
    try:
        checked = EditableGraph(model).checked()
    except (
        *(onnx.shape_inference.InferenceError, onnx.checker.ValidationError),
        ir.serde.SerdeError,
    ) as error:
        first: BaseException = error
        while first.__cause__ is not None:  # of errors in writing, it says what is wrong
            first = first.__cause__
        raise ExportError(f"the folded graph is not valid ONNX: {first}") from error
    shapes, dtypes = shapes_of(checked), dtypes_of(checked)
    for node in model.graph:
        for name in (str(value.name) for value in node.outputs if value.name):
            if not all(shapes.get(name, (0,))):
                _refuse(node, "gives a value whose shape depends on data")
            if str(dtypes.get(name)) not in DTYPES:
                _refuse(node, f"computes in {dtypes.get(name)}; known are {', '.join(DTYPES)}")
    return checked


def _optimize(model: ir.Model) -> None:
    """Run onnxscript's optimiser as `optimize_ir` does, in large graphs without rules for pairs.

    Those rules join two slices of a tensor; a graph with fewer than two has nothing for them.
    """
    rules = rewriter._DEFAULT_REWRITE_RULES
    n_slices = sum(node.op_type == "Slice" for node in model.graph)
    if n_slices < 2 or len(model.graph) > MOST_PAIRED_NODES:
        rules = tuple(r for r in rules if r._matcher.pattern.has_single_output_node)
    common.InlinePass()(model)
    folding = optimizer._constant_folding.FoldConstantsPass(
        shape_inference=True,
        input_size_limit=UNLIMITED,
        output_size_limit=UNLIMITED,
        should_fold=_is_folded,
    )
    rounds = ir.passes.PassManager(
        [
            folding,
            rewriter.RewritePass(rules),
            common.RemoveUnusedNodesPass(),
            common.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
            common.RemoveUnusedOpsetsPass(),
        ],
        steps=8,
        early_stop=True,
    )
    ends = (
        common.RemoveUnusedNodesPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )
    ir.passes.Sequential(rounds, *ends)(model)


def _is_folded(node: ir.Node) -> bool:
    """Return whether a node of constants is computed in advance; False if the result is large."""
    most = max(MOST_FOLDED_BYTES, *map(_n_bytes, node.inputs), 0)
    return node.op_type not in KEPT and max(map(_n_bytes, node.outputs), default=0) <= most


def _n_bytes(value: ir.Value | None) -> int:
    """Return the number of bytes of a value; 0 if its shape is not known."""
    if value is None or value.shape is None or not value.shape.is_static():
        return 0
    width = value.dtype.itemsize if value.dtype is not None else 8
    return int(math.prod(value.shape.numpy()) * width)


def _refuse(node: ir.Node, reason: str) -> None:
    raise ExportError(f"the node {node.op_type} ({node.name or node.outputs[0].name}) {reason}.")
