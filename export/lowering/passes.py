"""Clean-up of step graphs: what torch's exporter leaves that costs a device time.

    flatten    what keeps the bytes in order (Squeeze, Unsqueeze, a Transpose of axes of length 1)
               becomes a Reshape, and Reshapes in a row become one
    absorb     a Reshape behind a graph's points, or before its prediction, moves into the graph's
               interface: who binds buffers by address sees the same bytes
    sink       a Reshape to two axes moves behind what works on the last axis alone, so that rows
               stay rows from one product to the next
    gemm       products with constants become Gemm, with the bias inside and the weight not
               transposed
    scale      a constant factor moves into the product before it
    gelu       the order of nodes that onnxruntime recognises (6 % of CMANP's refresh)

None knows a model. All shapes are static. The result depends on the graph alone: constants are
named by what they hold, values by their place.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

from edgefold.export.lowering.graphs import IR_VERSION
from edgefold.export.lowering.trace import reads
from edgefold.runtime.manifest import Tensor

Array = NDArray[Any]

ELEMENTWISE = (
    *("Abs", "Add", "Cast", "Clip", "Cos", "Div", "Erf", "Exp", "LeakyRelu", "Log", "Max", "Min"),
    *("Mul", "Neg", "Pow", "Reciprocal", "Relu", "Sigmoid", "Sin", "Softplus", "Sqrt", "Sub"),
    *("Tanh", "Where"),
)
LAST_AXIS = frozenset(("LayerNormalization", "Softmax", "Split"))
VIEWS = (
    *("Squeeze", "Unsqueeze", "Flatten", "Transpose", "Reshape", "Expand", "Identity"),
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"),
)
"""These may keep the bytes: a reduction does over axes of length 1."""
REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin")
"""What took its axes as an attribute before version 18."""

INTERFACE = ("points.x", "points.y", "targets.x", "prediction")
"""Roles of tensors whose shape in a graph may be any that has their bytes."""


class Declared(Protocol):
    """The name, inputs and outputs that a graph is to have."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[Tensor, ...]: ...
    @property
    def outputs(self) -> tuple[Tensor, ...]: ...


def constant_name(array: Array) -> str:
    """The name of a constant, by what it holds: equal ones are one."""
    data = array.tobytes()
    return "c_" + hashlib.sha256(f"{array.dtype}{array.shape}".encode() + data).hexdigest()[:16]


class Graph:
    """A graph under rewriting: shapes, constants, and nodes that replace others.

    Each output is an Identity, so that every other value can be replaced.
    """

    def __init__(self, model: ir.Model):
        self.model, self.graph = model, model.graph

    def nodes(self, *kinds: str) -> Iterator[ir.Node]:
        for node in list(self.graph):
            if node.op_type in kinds and node.graph is not None and not self.is_result(node):
                yield node

    def is_result(self, node: ir.Node) -> bool:
        return any(value.is_graph_output() for value in node.outputs)

    @staticmethod
    def constant(value: ir.Value | None) -> Array | None:
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        array: Array = value.const_value.numpy()
        return array

    @staticmethod
    def shape(value: ir.Value) -> tuple[int, ...]:
        assert value.shape is not None, value
        return tuple(int(n) for n in value.shape)  # type: ignore[arg-type]

    def new_constant(self, array: Array) -> ir.Value:
        name = constant_name(array)
        if name not in self.graph.initializers:
            tensor = ir.tensor(np.asarray(array, order="C"), name=name)
            value = ir.Value(
                name=name,
                const_value=tensor,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(tensor.dtype),
            )
            self.graph.register_initializer(value)
        return self.graph.initializers[name]

    def add(
        self,
        before: ir.Node,
        op: str,
        inputs: list[Any],
        like: ir.Value,
        *shape: int,
        **settings: Any,
    ) -> ir.Value:
        """A node with one output of the type of another value."""
        node = ir.node(op, inputs, attributes=settings)
        node.outputs[0].shape, node.outputs[0].type = ir.Shape(shape), like.type
        self.graph.insert_before(before, node)
        return node.outputs[0]

    def reshape(self, before: ir.Node, x: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        if self.shape(x) == shape:
            return x
        return self.add(
            before, "Reshape", [x, self.new_constant(np.array(shape, np.int64))], x, *shape
        )

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let every reader of a value read another; its node goes if nobody reads it."""
        ir.convenience.replace_all_uses_with(old, new)
        node = old.producer()
        if node is not None and not any(v.uses() or v.is_graph_output() for v in node.outputs):
            self.graph.remove(node, safe=True)

    @staticmethod
    def readers(value: ir.Value) -> list[ir.Node]:
        return [use.node for use in value.uses()]


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def made_by(value: ir.Value | None, *kinds: str) -> ir.Node | None:
    """The node of some kinds that makes a value."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type in kinds else None


# The passes; each says whether it changed something ---------------------------------------------


def flatten(g: Graph) -> bool:
    changed = False
    for node in g.nodes(*VIEWS):
        x, out = node.inputs[0], node.outputs[0]
        assert x is not None
        before, after = g.shape(x), g.shape(out)
        if math.prod(before) != math.prod(after) or g.constant(x) is not None:
            continue
        if node.op_type == "Transpose":
            order = [axis for axis in attribute(node, "perm", ()) if before[axis] != 1]
            if order != sorted(order):
                continue
        source = x
        while (earlier := made_by(source, "Reshape")) is not None:
            assert earlier.inputs[0] is not None
            source = earlier.inputs[0]
        if node.op_type == "Reshape" and source is x and before != after:
            continue
        g.replace(out, g.reshape(node, source, after))
        changed = True
    return changed


def sink(g: Graph) -> bool:
    changed = False
    for node in g.nodes(*ELEMENTWISE, *LAST_AXIS):
        given = [value for value in node.inputs if value is not None]
        if node.op_type in LAST_AXIS:
            if attribute(node, "axis", -1) not in (-1, len(g.shape(given[0])) - 1):
                continue
            given = given[:1]
        shape = g.shape(node.outputs[0])
        rows = (
            math.prod(shape[:-1]),
            g.shape(given[0])[-1] if node.op_type == "Split" else shape[-1],
        )
        found = [_as_rows(g, value, shape, rows) for value in given]
        if len(shape) < 3 or (node.op_type != "Split" and None in found) or "rows" not in found:
            continue
        inputs: list[ir.Value | None] = list(node.inputs)
        for index, (value, kind) in enumerate(zip(given, found, strict=True)):
            if kind == "constant":
                array = g.constant(value)
                assert array is not None
                inputs[index] = g.new_constant(array.reshape(array.shape[-1:]))
            elif kind == "rows":
                inputs[index] = made_by(value, "Reshape").inputs[0]  # type: ignore[union-attr]
            else:
                inputs[index] = g.reshape(node, value, rows)
        settings = {name: found.value for name, found in node.attributes.items()}
        if node.op_type in LAST_AXIS:
            settings["axis"] = -1
        new = ir.node(node.op_type, inputs, attributes=settings, num_outputs=len(node.outputs))
        g.graph.insert_before(node, new)
        for old, value in zip(list(node.outputs), new.outputs, strict=True):
            value.shape, value.type = ir.Shape((rows[0], *g.shape(old)[-1:])), old.type
            g.replace(old, g.reshape(node, value, g.shape(old)))
        changed = True
    return changed


def _as_rows(
    g: Graph, value: ir.Value, shape: tuple[int, ...], rows: tuple[int, ...]
) -> str | None:
    """How an operand of shape (..., D) becomes one of (rows, D); None if it cannot."""
    own = g.shape(value)
    reshaped = made_by(value, "Reshape")
    if g.constant(value) is not None:
        return "constant" if math.prod(own[:-1]) == 1 else None
    if reshaped is not None and own[:-1] == shape[:-1]:
        assert reshaped.inputs[0] is not None
        if g.shape(reshaped.inputs[0]) == rows:
            return "rows"
    return "value" if own == shape else None


def gemm(g: Graph) -> bool:
    changed = False
    for node in g.nodes("Gemm"):
        weight = g.constant(node.inputs[1])
        if weight is not None and attribute(node, "transB", 0):
            node.replace_input_with(1, g.new_constant(weight.T))
            del node.attributes["transB"]
            changed = True
    for node in g.nodes("MatMul"):
        x, out = node.inputs[0], node.outputs[0]
        weight, readers = g.constant(node.inputs[1]), g.readers(out)
        if x is None or weight is None or weight.ndim != 2 or g.constant(x) is not None:
            continue
        add = readers[0] if len(readers) == 1 and readers[0].op_type == "Add" else None
        bias = _row_constant(g, add, out, weight.shape[1]) if add is not None else None
        if add is None or bias is None:
            continue
        shape = g.shape(out)
        rows = g.reshape(add, x, (math.prod(shape[:-1]), weight.shape[0]))
        inputs = [rows, g.new_constant(weight), g.new_constant(bias)]
        product = g.add(add, "Gemm", inputs, out, *g.shape(rows)[:1], weight.shape[1])
        g.replace(add.outputs[0], g.reshape(add, product, g.shape(add.outputs[0])))
        changed = True
    return changed


def _row_constant(g: Graph, add: ir.Node, beside: ir.Value, width: int) -> Array | None:
    """The bias (D,) that an Add gives to a value."""
    other = add.inputs[1] if add.inputs[0] is beside else add.inputs[0]
    array = g.constant(other)
    if array is None or array.size != width or g.shape(add.outputs[0]) != g.shape(beside):
        return None
    return array.reshape(width) if array.shape[-1:] == (width,) else None


def scale(g: Graph) -> bool:
    changed = False
    for node in g.nodes("Mul", "Div"):
        for index in (0, 1) if node.op_type == "Mul" else (0,):
            factor, value = g.constant(node.inputs[1 - index]), node.inputs[index]
            if factor is None or factor.size != 1 or value is None:
                continue
            if g.shape(value) != g.shape(node.outputs[0]):
                continue
            product = _only_product(value)
            if product is None or any(g.constant(v) is None for v in product.inputs[1:]):
                continue
            number = factor.astype(np.float64).reshape(())
            number = number if node.op_type == "Mul" else 1 / number
            for place in range(1, len(product.inputs)):
                array = g.constant(product.inputs[place])
                assert array is not None
                product.replace_input_with(
                    place, g.new_constant((array.astype(np.float64) * number).astype(array.dtype))
                )
            g.replace(node.outputs[0], value)
            changed = True
            break
    return changed


def _only_product(value: ir.Value) -> ir.Node | None:
    """The product that a value is, through moves of its elements; None if others read it."""
    node = value.producer()
    while node is not None and len(value.uses()) == 1 and not value.is_graph_output():
        if node.op_type in ("Gemm", "MatMul"):
            return node
        if node.op_type not in ("Reshape", "Transpose"):
            return None
        assert node.inputs[0] is not None
        value = node.inputs[0]
        node = value.producer()
    return None


def gelu(g: Graph) -> bool:
    """`x * (0.5 * (1 + erf))` as `(x * (1 + erf)) * 0.5`."""
    changed = False
    for erf in g.nodes("Erf"):
        divided = made_by(erf.inputs[0], "Div", "Mul")
        one = _only_reader(erf, "Add")
        half = _only_reader(one, "Mul")
        last = _only_reader(half, "Mul")
        if divided is None or one is None or half is None or last is None:
            continue
        x, constants = divided.inputs[0], [g.constant(value) for value in half.inputs]
        if x not in last.inputs or not any(c is not None and np.all(c == 0.5) for c in constants):
            continue
        out, number = last.outputs[0], next(c for c in constants if c is not None)
        inner = g.add(last, "Mul", [x, one.outputs[0]], out, *g.shape(out))
        outer = g.add(last, "Mul", [inner, g.new_constant(number)], out, *g.shape(out))
        g.replace(out, outer)
        changed = True
    return changed


def _only_reader(node: ir.Node | None, kind: str) -> ir.Node | None:
    readers = Graph.readers(node.outputs[0]) if node is not None else []
    return readers[0] if len(readers) == 1 and readers[0].op_type == kind else None


def absorb(g: Graph, step: Declared) -> bool:
    changed = False
    roles = {declared.name: declared.role for declared in (*step.inputs, *step.outputs)}
    for value in g.graph.inputs:
        readers = g.readers(value)
        shapes = {g.shape(node.outputs[0]) for node in readers}
        if roles[_declared_name(value)] not in INTERFACE or len(shapes) != 1:
            continue
        if all(node.op_type == "Reshape" for node in readers) and shapes != {g.shape(value)}:
            value.shape = ir.Shape(shapes.pop())
            for node in readers:
                g.replace(node.outputs[0], value)
            changed = True
    for result in g.graph.outputs:
        end = result.producer()
        assert end is not None
        reshaped = made_by(end.inputs[0], "Reshape")
        source = reshaped.inputs[0] if reshaped is not None else None
        if roles[_declared_name(result)] not in INTERFACE or made_by_nobody(source):
            continue
        assert source is not None
        end.replace_input_with(0, source)
        result.shape = ir.Shape(g.shape(source))
        changed = True
    return changed


def made_by_nobody(value: ir.Value | None) -> bool:
    return value is None or value.producer() is None


PASSES: tuple[Callable[[Graph], bool], ...] = (flatten, gemm, sink, scale, gelu)

# The whole --------------------------------------------------------------------------------------


def simplify(proto: onnx.ModelProto, step: Declared) -> onnx.ModelProto:
    """A traced graph as it goes into a bundle: clean, checked, and named deterministically."""
    proto = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    model = ir.from_proto(proto)
    g = Graph(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    _share_constants(g)
    changed = True
    while changed:
        changed = any([one(g) for one in PASSES] + [absorb(g, step)])
        common.RemoveUnusedNodesPass()(model)
        common.CommonSubexpressionEliminationPass()(model)
    _drop_what_passes_through(g, step)
    _settle_results(g)
    common.RemoveUnusedNodesPass()(model)
    _name_everything(g, step)
    made = ir.to_proto(model)
    del made.graph.value_info[:]
    made.ir_version, made.producer_name, made.producer_version = IR_VERSION, "edgefold", ""
    older = onnx.ModelProto()
    older.CopyFrom(made)
    try:
        return _checked(_as_opset_17(older))
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return _checked(made)


def _checked(model: onnx.ModelProto) -> onnx.ModelProto:
    onnx.checker.check_model(model, full_check=True)
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _as_opset_17(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same nodes as an older version has them; what it does not have stays and is refused.

    In version 18 some operators became functions of others, Relu among them. Where onnxruntime has
    no kernel for a type, it runs the parts: 9 % of CMANP's query in float16.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        settings = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type in REDUCTIONS and len(node.input) == 2 and node.input[1] in constants:
            axes = onnx.numpy_helper.to_array(constants[node.input.pop()]).tolist()
            node.attribute.append(onnx.helper.make_attribute("axes", axes))
        if node.op_type == "Split" and "num_outputs" in settings:
            node.attribute.remove(settings["num_outputs"])
    read = {name for node in model.graph.node for name in reads(node)}
    unread = [tensor for tensor in model.graph.initializer if tensor.name not in read]
    for tensor in unread:
        model.graph.initializer.remove(tensor)
    model.opset_import[0].version = 17
    return model


def _share_constants(g: Graph) -> None:
    for value in list(g.graph.initializers.values()):
        array = g.constant(value)
        assert array is not None
        if value.name != constant_name(array):
            ir.convenience.replace_all_uses_with(value, g.new_constant(array))
            del g.graph.initializers[value.name]


def _declared_name(value: ir.Value) -> str:
    assert value.name is not None
    return value.name.split(".", 1)[1]


def _drop_what_passes_through(g: Graph, step: Declared) -> None:
    """Outputs that are their own input, and inputs that nobody reads."""
    inputs = {declared.name: declared for declared in step.inputs}
    outputs = {declared.name: declared for declared in step.outputs}
    for result in list(g.graph.outputs):
        end = result.producer()
        assert end is not None
        source, declared = end.inputs[0], outputs[_declared_name(result)]
        if declared.role == "state" and source is not None and source.is_graph_input():
            given = inputs[_declared_name(source)]
            if (given.role, given.of) == ("state", declared.of):
                g.graph.outputs.remove(result)
                g.graph.remove(end, safe=True)
    common.RemoveUnusedNodesPass()(g.model)
    for value in list(g.graph.inputs):
        if not value.uses():
            g.graph.inputs.remove(value)


def _settle_results(g: Graph) -> None:
    """Take the Identity before an output away where a node of its own makes the value.

    A large constant that is one number is made by a node, so that no file holds it.
    """
    results = list(g.graph.outputs)
    for index, result in enumerate(results):
        end = result.producer()
        assert end is not None and end.inputs[0] is not None
        source = end.inputs[0]
        array = g.constant(source)
        if source.producer() is not None and not source.is_graph_output():
            source.name, result.name = result.name, None
            g.graph.outputs[index] = source
            ir.convenience.replace_all_uses_with(result, source)
            g.graph.remove(end, safe=True)
        elif array is not None and array.size > 64 and np.all(array == array.flat[0]):
            shape = g.new_constant(np.array(array.shape, np.int64))
            number = g.new_constant(array.reshape(-1)[0])
            end.replace_input_with(0, g.add(end, "Expand", [number, shape], source, *array.shape))
            made = end.inputs[0]
            made.name, result.name = result.name, None
            g.graph.outputs[index] = made
            g.graph.remove(end, safe=True)


def _name_everything(g: Graph, step: Declared) -> None:
    """Names that depend on the graph alone; nothing of where it was traced."""
    common.ClearMetadataAndDocStringPass()(g.model)
    ends = [*g.graph.inputs, *g.graph.outputs]
    for value in ends:
        value.name = _declared_name(value)
    taken = {value.name for value in ends}
    for index, node in enumerate(ir.traversal.RecursiveGraphIterator(g.graph)):
        node.version = None
        if node.op_type == "Gemm":
            for name in ("alpha", "beta", "transA", "transB"):
                if attribute(node, name, None) == (0 if name.startswith("trans") else 1):
                    del node.attributes[name]
        for place, value in enumerate(node.outputs):
            if value not in ends:
                name = f"{node.op_type.lower()}_{index}" + (f"_{place}" if place else "")
                while name in taken:
                    name += "_"
                value.name = name
        node.name = node.outputs[0].name
    g.graph.name, g.model.producer_name, g.model.producer_version = step.name, "edgefold", None
    g.graph.doc_string = None
