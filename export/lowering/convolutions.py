"""Convolutions over a few positions as matrix products.

A streaming model convolves a few positions a step, for which the kernels of convolutions are slow:
onnxruntime takes 22 µs for 128 channels, 3 taps and 4 positions, and 9 µs for the same as a product
of rows. So one-dimensional convolutions with at most `MOST` output positions become products, and
what lies between two of them stays in rows, one for each position:

    (B, C, T) ──> rows (B*T, C) ──> windows (B*T', taps*C) ──> Gemm ──> rows ──> ... ──> (B, C', T')

From about 16 positions on, a convolution is as fast, and small weights are not worth the way into
rows and back (`LEAST`). Taps that only ever read padding are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.static_graph import (
    Shape,
    attribute,
    constants_of,
    copied,
    rebuilt,
    shapes_of,
)

MOST = 16
LEAST = 8192
"""Elements of a weight. A network of three convolutions took 1.3 times as long with 16 channels
(up to 1280 elements), and 0.9 times with 64 (from 8192 on)."""
ONE_SUM = 256
"""onnxruntime's products add up to so many numbers one by one, and beyond that sums of so many. Its
convolutions of more than one output position always add one by one."""
UNARY, BINARY = having("unary"), having("binary")
PADDING = -1  # in place of a position

Indices = NDArray[np.int64]


def as_products(model: onnx.ModelProto, reorder_sums: bool = True) -> onnx.ModelProto:
    """The graph with its short convolutions as products.

    Args:
        model: A graph with fixed shapes.
        reorder_sums: Whether sums may be added in another order than a convolution does, which
            rounds otherwise. Else few convolutions qualify: those of one channel.
    """
    rewriter = _Rewriter(model, reorder_sums)
    for node in model.graph.node:
        rewriter.visit(node)
    return rebuilt(model, rewriter.nodes, rewriter.constants)


class _Rewriter:
    """Copies nodes, and makes a second form of some values in rows, from which the first follows.

    Whichever form nobody reads is removed afterwards.
    """

    def __init__(self, model: onnx.ModelProto, reorder_sums: bool):
        self._reorder_sums = reorder_sums
        self.nodes: list[NodeProto] = []
        self.constants = constants_of(model)
        self._shapes = shapes_of(model)
        self._rows: dict[str, str] = {}

    def visit(self, node: NodeProto) -> None:
        inputs = self._inputs_in_rows(node)
        if self._is_short(node):
            made = [self._product(node)]
        elif inputs is not None:
            made = [f"rows/{name}" for name in node.output]
            self.nodes.append(copied(node, inputs))
            self.nodes[-1].output[:] = made
        else:
            self.nodes.append(node)
            return
        for name, rows in zip(node.output, made, strict=True):
            self._rows[name] = rows
            batch, channels, length = self._shapes[name]
            split = self._reshape(rows, (batch, length, channels))
            self.nodes.append(helper.make_node("Transpose", [split], [name], name, perm=[0, 2, 1]))

    def _is_short(self, node: NodeProto) -> bool:
        if node.op_type != "Conv" or not {*node.input[1:]} <= {*self.constants}:
            return False
        shape, weight = self._shapes[node.output[0]], self.constants[node.input[1]]
        padding = attribute(node, "auto_pad", b"NOTSET")
        if len(shape) != 3 or attribute(node, "group", 1) != 1 or padding != b"NOTSET":
            return False
        worth = shape[2] == 1 or weight.size >= LEAST or node.input[0] in self._rows
        in_order = weight.shape[1] == 1 and weight.shape[2] <= ONE_SUM and shape[2] > 1
        return worth and shape[2] <= MOST and (in_order or self._reorder_sums)

    def _inputs_in_rows(self, node: NodeProto) -> list[str] | None:
        """Inputs with which a node works on rows; None where it cannot, or has no rows to read."""
        if not any(name in self._rows for name in node.input):
            return None
        if any(len(self._shapes[name]) != 3 for name in node.output):
            return None
        if node.op_type in UNARY or (node.op_type == "Split" and attribute(node, "axis", 0) == 1):
            return [self._rows[node.input[0]], *node.input[1:]]
        axes = self.constants.get(node.input[3]) if len(node.input) > 3 else None
        if node.op_type == "Slice" and axes is not None and axes.tolist() == [1]:
            return [self._rows[node.input[0]], *node.input[1:]]
        if node.op_type == "Concat" and attribute(node, "axis", 0) == 1:
            found = [self._rows.get(name) for name in node.input]
        elif node.op_type in BINARY:
            found = [self._operand(name, self._shapes[node.output[0]]) for name in node.input]
        else:
            return None
        return None if None in found else [name for name in found if name is not None]

    def _operand(self, name: str, out: Shape) -> str | None:
        """An operand of an element-wise node: rows, one number, or one number for each channel."""
        if name in self._rows and self._shapes[name] == out:
            return self._rows[name]
        array = self.constants.get(name)
        if array is None or array.size not in (1, out[1]):
            return None
        if (1,) * (3 - array.ndim) + array.shape != (1, array.size, 1):
            return None
        return self._constant(array.reshape(-1))

    def _product(self, node: NodeProto) -> str:
        """The convolution as a product of windows."""
        x = node.input[0]
        batch, channels, length = self._shapes[x]
        positions, weight = self._used(node)
        if x not in self._rows and positions.tolist() == [list(range(length))]:
            windows = self._reshape(x, (batch, channels * length))  # it reads everything, as it is
            taps = weight.transpose(1, 2, 0)
        else:
            if x not in self._rows:
                moved = self._add("Transpose", [x], perm=[0, 2, 1])
                self._rows[x] = self._reshape(moved, (batch * length, channels))
            windows = self._windows(self._rows[x], positions, self._shapes[x])
            taps = weight.transpose(2, 1, 0)
        held = self._constant(taps.reshape(-1, len(weight)))
        return self._add("Gemm", [windows, held, *node.input[2:]])

    def _used(self, node: NodeProto) -> tuple[Indices, NDArray[Any]]:
        """Positions (T', taps) and weight (C', C, taps) without taps that only read padding."""
        weight, length = self.constants[node.input[1]], self._shapes[node.input[0]][2]
        positions = _positions(node, weight.shape[2], length, self._shapes[node.output[0]][2])
        used = (positions != PADDING).any(axis=0)
        return positions[:, used], weight[:, :, used]

    def _windows(self, rows: str, positions: Indices, shape: Shape) -> str:
        """Rows (B*T, C) -> (B*T', taps*C), what each output position reads."""
        batch, channels, length = shape
        block = _block(positions, length)
        starts = positions[:, ::block]
        found = np.vstack(
            [np.where(starts < 0, starts, (starts + b * length) // block) for b in range(batch)]
        )
        n_rows = batch * length // block
        rows = self._reshape(rows, (n_rows, channels * block))
        if (found < 0).any():  # one row of zeros at the end stands for padding
            rows = self._add("Pad", [rows, self._constant(np.array([0, 0, 1, 0]))])
            found = np.where(found < 0, n_rows, found)
        if found.ravel().tolist() != list(range(n_rows)):
            rows = self._add("Gather", [rows, self._constant(found)], axis=0)
        return self._reshape(rows, (len(found), positions.shape[1] * channels))

    def _reshape(self, value: str, shape: Shape) -> str:
        """A value in another shape; where it had that shape already, a later pass removes it."""
        return self._add("Reshape", [value, self._constant(np.array(shape))])

    def _constant(self, array: NDArray[Any]) -> str:
        name = f"rows/constant_{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array)
        return name

    def _add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"rows/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name


def _positions(node: NodeProto, n_taps: int, length: int, n_out: int) -> Indices:
    """(T', taps): the input position that each tap of each output reads."""
    (step,), (dilation,) = (attribute(node, name, [1]) for name in ("strides", "dilations"))
    first = np.arange(n_out)[:, None] * step - attribute(node, "pads", [0, 0])[0]
    found: Indices = first + np.arange(n_taps) * dilation
    return np.where((found >= 0) & (found < length), found, PADDING)


def _block(positions: Indices, length: int) -> int:
    """The most neighbouring rows that are only ever read together, so that they can be one row."""
    n_taps = positions.shape[1]
    for block in range(math.gcd(length, n_taps), 1, -1):
        starts = positions[:, ::block]
        together = (starts[:, :, None] + np.arange(block)).reshape(len(starts), -1)
        whole = length % block == n_taps % block == 0 and not (starts % block).any()
        if whole and (together == positions).all():
            return block
    return 1
