"""Rewrite ONNX graphs: look at values and nodes, and put new nodes in the place of others."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

from edgefold.export.graphs.static_graph import checked

Array = NDArray[Any]
Shape = tuple[int, ...]
IR_VERSION = 8  # as old as opset 18, the oldest that torch writes: onnxruntime 1.18 reads up to 10


def constant_name(array: Array) -> str:
    """Return a name for a constant from its content, so that equal constants share one name."""
    form = f"{array.dtype}{array.shape}".encode()
    return "c_" + hashlib.sha256(form + array.tobytes()).hexdigest()[:16]


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """Return the value of a node's attribute, or the default if the node does not have it."""
    setting = node.attributes.get(name)
    return default if setting is None else setting.value


def made_by(value: ir.Value | None, kind: str) -> ir.Node | None:
    """Return the node that makes a value if its operator is `kind`, else None."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == kind else None


def readers(value: ir.Value) -> list[ir.Node]:
    """Return the nodes that read a value."""
    return [use.node for use in value.uses()]


def only_reader(node: ir.Node | None, kind: str) -> ir.Node | None:
    """Return the only reader of a node's first output if its operator is `kind`, else None."""
    nodes = readers(node.outputs[0]) if node is not None else []
    return nodes[0] if len(nodes) == 1 and nodes[0].op_type == kind else None


def shape_of(value: ir.Value) -> Shape:
    """Return the shape of a value; all lengths must be fixed."""
    assert value.shape is not None, value
    return tuple(int(n) for n in value.shape)  # type: ignore[arg-type]


def constant(value: ir.Value | None) -> Array | None:
    """Return the numbers of a constant value; None if the value is not constant."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    array: Array = value.const_value.numpy()
    return array


class EditableGraph:
    """Holds an ONNX graph whose nodes can be replaced; `ir` is the graph."""

    def __init__(self, model: ir.Model):
        self._model, self.ir = model, model.graph

    @classmethod
    def of(cls, model: onnx.ModelProto) -> EditableGraph:
        """Return a graph to rewrite that is read from a model; the model stays as it is."""
        return cls(ir.from_proto(model))

    def to_proto(self) -> onnx.ModelProto:
        """Return the graph as an ONNX model without the shapes of inner values."""
        proto = ir.to_proto(self._model)
        del proto.graph.value_info[:]
        proto.ir_version, proto.producer_name, proto.producer_version = IR_VERSION, "edgefold", ""
        return proto

    def checked(self) -> onnx.ModelProto:
        """Remove nodes that no output needs; return the checked graph as a model with shapes."""
        common.RemoveUnusedNodesPass()(self._model)
        return checked(self.to_proto())

    def nodes(self, *kinds: str) -> Iterator[ir.Node]:
        """Yield the nodes whose operator is one of `kinds` and whose shapes are all known.

        Nodes that were replaced meanwhile are left out, and nodes that make an output of the graph.
        A node whose result an Identity copies to the output is not left out.
        """
        for node in list(self.ir):
            if node.op_type in kinds and node.graph is not None:
                values = [value for value in (*node.inputs, *node.outputs) if value is not None]
                if all(v.shape is not None and v.shape.is_static() for v in values) and not any(
                    v.is_graph_output() for v in values
                ):
                    yield node

    def nodes_before(self, outputs: Collection[str], stop: Collection[str] = ()) -> set[ir.Node]:
        """Return all nodes on which the outputs named in `outputs` depend.

        Nodes whose operator is in `stop` are returned, but their own inputs are not followed.
        """
        wanted = {value for value in self.ir.outputs if value.name in outputs}
        nodes = set()
        for node in reversed(self.ir):
            if wanted.intersection(node.outputs):
                nodes.add(node)
                if node.op_type not in stop:
                    wanted.update(value for value in node.inputs if value is not None)
        return nodes

    def constant(self, array: Array, name: str = "") -> ir.Value:
        """Return the graph's constant `name`; if there is none yet, `array` is added.

        Without a name, one is made from the content, so that equal arrays share one constant.
        """
        name = name or constant_name(array)
        if name not in self.ir.initializers:
            tensor = ir.tensor(np.asarray(array, order="C"), name=name)
            value = ir.Value(
                name=name,
                const_value=tensor,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(tensor.dtype),
            )
            self.ir.register_initializer(value)
        return self.ir.initializers[name]

    def insert(
        self,
        before: ir.Node | None,
        kind: str,
        inputs: Sequence[ir.Value | None],
        names: Sequence[str | None] = (None,),
        node_name: str | None = "",
        **settings: Any,
    ) -> Sequence[ir.Value]:
        """Insert a node before another, and return its outputs, which lack shapes.

        Args:
            before: The other node; None for the end of the graph.
            kind: Operator of the new node.
            inputs: Values that it reads; None for an optional one that is left out.
            names: Name of each output; None to have one made.
            node_name: Name of the node; None to have one made.
            settings: Its attributes by name.
        """
        outputs = [ir.Value(name=name) for name in names]
        node = ir.node(kind, inputs, attributes=settings, outputs=outputs, name=node_name)
        if before is None:
            self.ir.append(node)
        else:
            self.ir.insert_before(before, node)
        return node.outputs

    def add(
        self,
        before: ir.Node,
        kind: str,
        inputs: Sequence[ir.Value | None],
        like: Sequence[ir.Value],
        shapes: Sequence[Shape],
        **settings: Any,
    ) -> Sequence[ir.Value]:
        """Insert a node with operator `kind` before another, and return its outputs.

        Output i has the element type of the value like[i], and the shape shapes[i].
        """
        outputs = self.insert(before, kind, inputs, [None] * len(like), None, **settings)
        for output, other, shape in zip(outputs, like, shapes, strict=True):
            output.shape, output.type = ir.Shape(shape), other.type
        return outputs

    def reshape(self, before: ir.Node, x: ir.Value, shape: Shape) -> ir.Value:
        """Return a value in another shape, by a new Reshape before a node if the shape differs."""
        if shape_of(x) == shape:
            return x
        wanted = self.constant(np.array(shape, np.int64))
        return self.add(before, "Reshape", [x, wanted], [x], [shape])[0]

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let every reader of `old` read `new`; remove the node of `old` if it has no reader."""
        ir.convenience.replace_all_uses_with(old, new)
        node = old.producer()
        if node is not None and not any(v.uses() or v.is_graph_output() for v in node.outputs):
            self.ir.remove(node, safe=True)

    def take_over(self, old: ir.Value, new: ir.Value) -> None:
        """Give `new` the name and the readers of `old`, and its place among the graph's outputs."""
        new.name, new.type, new.shape = old.name, old.type, old.shape
        for index, output in enumerate(self.ir.outputs):
            if output is old:
                self.ir.outputs[index] = new
        self.replace(old, new)
