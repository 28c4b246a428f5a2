"""A graph that is being rewritten: what its values are, and nodes that take the place of others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

Array = NDArray[Any]


def constant_name(array: Array) -> str:
    """The name of a constant, by what it holds: equal ones are one."""
    form = f"{array.dtype}{array.shape}".encode()
    return "c_" + hashlib.sha256(form + array.tobytes()).hexdigest()[:16]


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """The value of a node's attribute."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def made_by(value: ir.Value | None, kind: str) -> ir.Node | None:
    """The node that makes a value, if it is of a kind."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == kind else None


def readers(value: ir.Value) -> list[ir.Node]:
    """The nodes that read a value."""
    return [use.node for use in value.uses()]


def only_reader(node: ir.Node | None, kind: str) -> ir.Node | None:
    """The node that alone reads what a node makes, if it is of a kind."""
    found = readers(node.outputs[0]) if node is not None else []
    return found[0] if len(found) == 1 and found[0].op_type == kind else None


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The shape of a value; all shapes are static."""
    assert value.shape is not None, value
    return tuple(int(n) for n in value.shape)  # type: ignore[arg-type]


def constant(value: ir.Value | None) -> Array | None:
    """What a constant holds; None for other values."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    array: Array = value.const_value.numpy()
    return array


class Graph:
    """A graph whose nodes can be replaced.

    Each output is made by an Identity, so that every other value can be replaced.
    """

    def __init__(self, graph: ir.Graph):
        self.ir = graph

    def nodes(self, *kinds: str) -> Iterator[ir.Node]:
        """Nodes of some kinds, all shapes known, that have not been replaced meanwhile."""
        for node in list(self.ir):
            if node.op_type in kinds and node.graph is not None:
                values = [value for value in (*node.inputs, *node.outputs) if value is not None]
                if all(v.shape is not None and v.shape.is_static() for v in values) and not any(
                    v.is_graph_output() for v in values
                ):
                    yield node

    def constant(self, array: Array) -> ir.Value:
        name = constant_name(array)
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

    def add(
        self,
        before: ir.Node,
        kind: str,
        inputs: Sequence[ir.Value | None],
        like: Sequence[ir.Value],
        shapes: Sequence[tuple[int, ...]],
        **settings: Any,
    ) -> Sequence[ir.Value]:
        """The outputs of a new node, with the types of other values and with shapes."""
        node = ir.node(kind, inputs, attributes=settings, num_outputs=len(like))
        for output, other, shape in zip(node.outputs, like, shapes, strict=True):
            output.shape, output.type = ir.Shape(shape), other.type
        self.ir.insert_before(before, node)
        return node.outputs

    def reshape(self, before: ir.Node, x: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        if shape_of(x) == shape:
            return x
        wanted = self.constant(np.array(shape, np.int64))
        return self.add(before, "Reshape", [x, wanted], [x], [shape])[0]

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let every reader of a value read another; its node goes if nobody reads it."""
        ir.convenience.replace_all_uses_with(old, new)
        node = old.producer()
        if node is not None and not any(v.uses() or v.is_graph_output() for v in node.outputs):
            self.ir.remove(node, safe=True)
