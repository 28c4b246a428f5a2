"""Write convolutions over a few positions as matrix products.

In a step, a streaming model convolves a few positions, for which the kernels of convolutions are
slow: onnxruntime takes 22 µs for 128 channels, 3 taps and 4 positions, and 9 µs for the same as a
product of rows. So one-dimensional convolutions with at most `MOST` output positions become
products, and the nodes between two of them work on rows, one row for each position:

    (B, C, T) ──> rows (B*T, C) ──> windows (B*T', taps*C) ──> Gemm ──> rows ──> ... ──> (B, C', T')

From about 16 positions on, a convolution is as fast, and for small weights the reshaping into rows
and back costs more than it saves (`LEAST`). Taps that only ever read padding are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import EditableGraph, Shape, attribute, constant, shape_of

MOST = 16
LEAST = 8192
"""Smallest number of elements of a weight for which a product is used. With products, a network of
three convolutions took 1.3 times as long with 16 channels (up to 1280 elements), and 0.9 times with
64 (from 8192 on)."""
ONE_SUM = 256
"""Largest number of terms that onnxruntime's products add one by one; longer sums are made of parts
of this length. Its convolutions of more than one output position always add one by one."""
UNARY, BINARY = having("unary"), having("binary")
PADDING = -1  # in place of a position

Indices = NDArray[np.int64]


def as_products(model: onnx.ModelProto, reorder_sums: bool = True) -> onnx.ModelProto:
    """Return a graph whose short convolutions are written as products.

    Args:
        model: A graph with fixed shapes.
        reorder_sums: Whether sums may be added in another order than in a convolution, so that
            rounding differs. If not, only the few convolutions of one channel are changed.
    """
    graph = EditableGraph.of(model)
    converter = _RowConverter(graph, reorder_sums)
    for node in list(graph.ir):
        converter.visit(node)
    return graph.checked()


class _RowConverter:
    """Rewrites nodes to work on rows, one row for each position of a batch, (B*T, C).

    Nodes that make the old shape from the rows are added; the graph's check removes unread ones.
    """

    def __init__(self, graph: EditableGraph, reorder_sums: bool):
        self._graph, self._reorder_sums = graph, reorder_sums
        self._rows: dict[ir.Value, ir.Value] = {}
        self._node: ir.Node  # the one in front of which nodes are inserted

    def visit(self, node: ir.Node) -> None:
        """Rewrite a node to work on rows, if it can."""
        self._node = node
        if self._is_short(node):
            results = [self._product(node)]
        elif (inputs := self._inputs_in_rows(node)) is not None:
            names, settings = [None] * len(node.outputs), _settings(node)
            results = [*self._graph.insert(node, node.op_type, inputs, names, **settings)]
        else:
            return
        for out, rows in zip(list(node.outputs), results, strict=True):
            batch, channels, length = shape_of(out)
            split = self._reshape(rows, (batch, length, channels))
            turned = self._add("Transpose", [split], perm=[0, 2, 1])
            self._graph.take_over(out, turned)
            self._rows[turned] = rows

    def _is_short(self, node: ir.Node) -> bool:
        arrays = [constant(value) for value in node.inputs[1:]]
        if node.op_type != "Conv" or not arrays or any(array is None for array in arrays):
            return False
        shape, weight = shape_of(node.outputs[0]), arrays[0]
        padding = attribute(node, "auto_pad", "NOTSET")
        if weight is None or len(shape) != 3 or padding != "NOTSET":
            return False
        worth = shape[2] == 1 or weight.size >= LEAST or node.inputs[0] in self._rows
        in_order = weight.shape[1] == 1 and weight.shape[2] <= ONE_SUM and shape[2] > 1
        joined = attribute(node, "group", 1) == 1
        return joined and worth and shape[2] <= MOST and (in_order or self._reorder_sums)

    def _inputs_in_rows(self, node: ir.Node) -> list[ir.Value | None] | None:
        """Return a node's inputs with rows (B*T, C) in place of each (B, C, T).

        None is returned if the node cannot work on rows, or no input is known as rows.
        """
        first, *others = node.inputs
        if not any(value in self._rows for value in node.inputs):
            return None
        if any(len(shape_of(value)) != 3 for value in node.outputs):
            return None
        axes = constant(others[2]) if len(others) > 2 else None
        is_cut = node.op_type == "Split" and attribute(node, "axis", 0) == 1
        is_cut = is_cut or (node.op_type == "Slice" and axes is not None and axes.tolist() == [1])
        if node.op_type in UNARY or is_cut:
            assert first is not None
            return [self._rows[first], *others]
        operands: list[ir.Value | None]
        if node.op_type == "Concat" and attribute(node, "axis", 0) == 1:
            operands = [self._rows.get(value) for value in node.inputs if value is not None]
        elif node.op_type in BINARY:
            out = shape_of(node.outputs[0])
            operands = [self._operand(value, out) for value in node.inputs if value is not None]
        else:
            return None
        return None if None in operands else operands

    def _operand(self, value: ir.Value, out: Shape) -> ir.Value | None:
        """Return an operand of a node over shape `out` (B, C, T) as it stands in a node over rows.

        It is rows (B*T, C), or a constant of one number or one a channel; None if it is neither.
        """
        if value in self._rows and shape_of(value) == out:
            return self._rows[value]
        array = constant(value)
        if array is None or array.size not in (1, out[1]):
            return None
        if (1,) * (3 - array.ndim) + array.shape != (1, array.size, 1):
            return None
        return self._constant(array.reshape(-1))

    def _product(self, node: ir.Node) -> ir.Value:
        """Insert the product of windows that replaces a convolution; return its rows (B*T', C')."""
        x, weight = node.inputs[0], constant(node.inputs[1])
        assert x is not None and weight is not None
        batch, channels, length = shape_of(x)
        positions = _positions(node, weight.shape[2], length, shape_of(node.outputs[0])[2])
        used = (positions != PADDING).any(axis=0)  # without taps that only read padding
        positions, weight = positions[:, used], weight[:, :, used]
        if x not in self._rows and positions.tolist() == [list(range(length))]:
            windows = self._reshape(x, (batch, channels * length))  # it reads everything, as it is
            taps = weight.transpose(1, 2, 0)
        else:
            if x not in self._rows:
                turned = self._add("Transpose", [x], perm=[0, 2, 1])
                self._rows[x] = self._reshape(turned, (batch * length, channels))
            windows = self._windows(self._rows[x], positions, shape_of(x))
            taps = weight.transpose(2, 1, 0)
        factor = self._constant(np.ascontiguousarray(taps).reshape(-1, len(weight)))
        return self._add("Gemm", [windows, factor, *node.inputs[2:]])

    def _windows(self, rows: ir.Value, positions: Indices, shape: Shape) -> ir.Value:
        """Gather from rows (B*T, C) what each output reads at `positions`: (B*T', taps*C)."""
        batch, channels, length = shape
        block = _block(positions, length)
        starts = positions[:, ::block]
        places = np.vstack(
            [np.where(starts < 0, starts, (starts + b * length) // block) for b in range(batch)]
        )
        n_rows = batch * length // block
        rows = self._reshape(rows, (n_rows, channels * block))
        if (places < 0).any():  # one row of zeros at the end stands for padding
            rows = self._add("Pad", [rows, self._constant(np.array([0, 0, 1, 0]))])
            places = np.where(places < 0, n_rows, places)
        if places.ravel().tolist() != list(range(n_rows)):
            rows = self._add("Gather", [rows, self._constant(places)], axis=0)
        return self._reshape(rows, (len(places), positions.shape[1] * channels))

    def _reshape(self, value: ir.Value, shape: Shape) -> ir.Value:
        """Insert a Reshape and return its value; a later pass removes it if it changes nothing."""
        return self._add("Reshape", [value, self._constant(np.array(shape))])

    def _constant(self, array: NDArray[Any]) -> ir.Value:
        return self._graph.constant(array, f"rows/constant_{len(self._graph.ir.initializers)}")

    def _add(self, kind: str, inputs: Sequence[ir.Value | None], **settings: Any) -> ir.Value:
        return self._graph.insert(self._node, kind, inputs, **settings)[0]


def _settings(node: ir.Node) -> dict[str, Any]:
    return {name: setting.value for name, setting in node.attributes.items()}


def _positions(node: ir.Node, n_taps: int, length: int, n_out: int) -> Indices:
    """Return the input position that each of n_out outputs reads by each tap, (n_out, n_taps).

    The position is PADDING (-1) where a tap reads padding.
    """
    (step,), (dilation,) = (attribute(node, name, [1]) for name in ("strides", "dilations"))
    first = np.arange(n_out)[:, None] * step - attribute(node, "pads", [0, 0])[0]
    positions: Indices = first + np.arange(n_taps) * dilation
    return np.where((positions >= 0) & (positions < length), positions, PADDING)


def _block(positions: Indices, length: int) -> int:
    """Return the largest number of rows that can be merged into one wider row for `positions`.

    All outputs of positions (T', taps) then read whole merged rows; 1 if nothing can be merged.
    """
    n_taps = positions.shape[1]
    for block in range(math.gcd(length, n_taps), 1, -1):
        starts = positions[:, ::block]
        together = (starts[:, :, None] + np.arange(block)).reshape(len(starts), -1)
        whole = length % block == n_taps % block == 0 and not (starts % block).any()
        if whole and (together == positions).all():
            return block
    return 1
