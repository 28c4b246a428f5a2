"""Write LSTM, GRU and RNN of one time by their formulas, as the operators of ONNX define them.

    LSTM   i, o, f = sigmoid, g = tanh of the gates; c' = f c + i g; h' = o tanh(c')
    GRU    z, r = sigmoid of the gates; n = tanh(W x + r (R h + b)), or with R (r h) where
           linear_before_reset is 0 (PyTorch writes 1); h' = (1 - z) n + z h = n + z (h - n)
    RNN    h' = tanh(W x + R h + b)

Gates that read x and h alike are one product of both with the weights of both. TensorRT up to 10.7
makes a loop of each of these operators, which a CUDA graph cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto

from edgefold.export.graphs.comparisons import NodeWriter
from edgefold.export.graphs.static_graph import Array, attribute

RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Recurrent operators, and how many gates each has."""
PLAIN = {"direction": b"forward", "layout": 0, "input_forget": 0}
"""Attributes with which a recurrence is written by its formulas."""


def write_one_time(
    node: NodeProto,
    writer: NodeWriter,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
) -> bool:
    """Write a recurrence of one time by its formulas; return whether its form allows this."""
    x, w, r, b, lengths, h, c, peep = [*node.input, *[""] * 8][:8]
    odd = {name for name in ("activations", "clip") if attribute(node, name, None)}
    odd |= {name for name, value in PLAIN.items() if attribute(node, name, value) != value}
    constant = w in arrays and r in arrays and (not b or b in arrays)
    started = h and (c or node.op_type != "LSTM")
    if odd or lengths or peep or shapes[x][0] != 1 or not constant or not started:
        return False
    biases = arrays[b][0] if b else np.zeros(2 * arrays[w].shape[1], arrays[w].dtype)
    step = _OneTime(writer, node.output[0] or node.output[1], arrays[w][0], arrays[r][0], biases)
    rows = shapes[x][1]
    x, h = (step.add("Reshape", value, writer.integers(rows, -1)) for value in (x, h))
    cell = ""
    if node.op_type == "LSTM":
        hidden, cell = step.lstm(x, h, step.add("Reshape", c, writer.integers(rows, -1)))
    elif node.op_type == "GRU":
        hidden = step.gru(x, h, bool(attribute(node, "linear_before_reset", 0)))
    else:
        hidden = step.rnn(x, h)
    # Y (1, 1, B, H), the hidden state and the cell (1, B, H).
    for name, value, ones in zip(node.output, (hidden, hidden, cell), (2, 1, 1), strict=False):
        if name:
            shape = writer.integers(*[1] * ones, rows, step.size)
            writer.add("Reshape", [value, shape], name, last=True)
    return True


class _OneTime:
    """Writes one time of a recurrence with weights (G H, D) and (G H, H), biases (2 G H,)."""

    def __init__(self, writer: NodeWriter, output: str, w: Array, r: Array, biases: Array):
        self._writer, self._output = writer, output
        self._w, self._r, self._biases = w, r, biases.reshape(2, -1)
        self.size = r.shape[1]

    def add(self, kind: str, *inputs: str) -> str:
        return self._writer.add(kind, inputs, self._output)

    def _product(self, x: str, weights: Array, bias: Array) -> str:
        """Write x (B, D) times weights (N, D), plus bias (N,)."""
        constants = (np.ascontiguousarray(weights.T), np.ascontiguousarray(bias))
        return self.add("Gemm", x, *(self._writer.constant(array) for array in constants))

    def _gates(self, x: str, h: str, n: int) -> str:
        """Write the first n gates, (B, n H), as one product of x and h with the weights of both."""
        weights = np.concatenate([self._w, self._r], 1)[: n * self.size]
        both = self._writer.add("Concat", [x, h], self._output, attributes={"axis": 1})
        return self._product(both, weights, self._biases.sum(0)[: n * self.size])

    def _part(self, gates: str, k: int) -> str:
        ends = (k * self.size, (k + 1) * self.size, 1)
        return self.add("Slice", gates, *(self._writer.integers(at) for at in ends))

    def lstm(self, x: str, h: str, c: str) -> tuple[str, str]:
        gates = self._gates(x, h, 4)
        i, o, f = (self.add("Sigmoid", self._part(gates, k)) for k in range(3))
        g = self.add("Tanh", self._part(gates, 3))
        cell = self.add("Add", self.add("Mul", f, c), self.add("Mul", i, g))
        return self.add("Mul", o, self.add("Tanh", cell)), cell

    def gru(self, x: str, h: str, reset_last: bool) -> str:
        gates = self._gates(x, h, 2)
        z, r = (self.add("Sigmoid", self._part(gates, k)) for k in range(2))
        w, u, b = (
            self._w[2 * self.size :],
            self._r[2 * self.size :],
            self._biases[:, 2 * self.size :],
        )
        if reset_last:
            read = self.add("Mul", r, self._product(h, u, b[1]))
        else:
            read = self._product(self.add("Mul", r, h), u, b[1])
        new = self.add("Tanh", self.add("Add", self._product(x, w, b[0]), read))
        return self.add("Add", new, self.add("Mul", z, self.add("Sub", h, new)))

    def rnn(self, x: str, h: str) -> str:
        return self.add("Tanh", self._gates(x, h, 1))
