"""Turn LSTM, GRU and RNN over several times into C, one time after the other, in each direction.

    LSTM   i, o, f = sigmoid, g = tanh of the gates; c' = f c + i g; h' = o tanh(c')
    GRU    z, r = sigmoid of the gates; n = tanh(W x + r (R h + b)), or with R (r h) where
           linear_before_reset is 0; h' = n + z (h - n)
    RNN    h' = tanh(W x + R h + b), or max(0, W x + R h + b)

The product of all times with W is one. `edgefold.export.graphs.recurrences` writes recurrences of
one time in operators, so that they do not come here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgefold.export.native.program.constants import Array
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, c_name
from edgefold.export.native.program.values import Expression, Literal, Value, apply
from edgefold.export.native.rules.signals import Named, dense

SIGMOID, TANH = "edgefold_sigmoid({0})", "edgefold_tanh({0})"
SQUASH = 10
"""Cost of a sigmoid or tanh, in additions."""


@dataclass(slots=True)
class _Direction:
    """Holds one direction of a recurrence that is being lowered.

    Attributes:
        lowering: The graph and the node.
        name: Beginning of the names of memory in C.
        recurrent: R of all gates, transposed, (H, G H).
        biases: Biases of the products with W and with R, (2, G H).
        hidden: The hidden state, (B, H).
        cell: The cell of an LSTM, (B, H).
    """

    lowering: Lowering
    name: str
    recurrent: Array
    biases: Array
    hidden: Value
    cell: Value

    @property
    def size(self) -> int:
        return len(self.recurrent)

    def back(self, left: Value, first: int, n: int, bias: Named | None = None) -> Value:
        """Return the product of (B, H) with R of n gates from number `first` on, plus a bias."""
        weights = self.recurrent[:, first * self.size : (first + n) * self.size]
        named = Named(weights, self.lowering.node.input[2])
        return dense(self.lowering, left, named, bias, f"{self.name}_back")

    def gate(self, value: Value, k: int) -> Expression:
        return value.sliced(1, k * self.size, 1, self.size).expression

    def keep(self, expression: Expression, word: str, into: Value | None = None) -> Value:
        value = Value(self.hidden.shape, "float32", expression)
        return self.lowering.program.keep(value, f"{self.name}_{word}", into)


def _squashed(function: str, driven: Expression, back: Expression) -> Expression:
    return apply(function, SQUASH, apply("({0} + {1})", 1, driven, back))


def _lstm_step(one: _Direction, driven: Value, into: Value) -> None:
    back = one.back(one.hidden, 0, 4)
    i, o, f = (_squashed(SIGMOID, one.gate(driven, k), one.gate(back, k)) for k in range(3))
    g = _squashed(TANH, one.gate(driven, 3), one.gate(back, 3))
    memory = apply("({0} * {1} + {2} * {3})", 3, f, one.cell.expression, i, g)
    one.cell = one.keep(memory, "cell")
    answer = apply("({0} * edgefold_tanh({1}))", SQUASH + 1, o, one.cell.expression)
    one.hidden = one.keep(answer, "hidden", into)


def _gru_step(one: _Direction, driven: Value, into: Value) -> None:
    reset_last = one.lowering.attribute("linear_before_reset", 0)
    both = one.back(one.hidden, 0, 3, _last_bias(one)) if reset_last else None
    back = both or one.back(one.hidden, 0, 2)
    z, r = (
        one.keep(_squashed(SIGMOID, one.gate(driven, k), one.gate(back, k)), word).expression
        for k, word in enumerate(("update", "reset"))
    )
    if both is not None:
        read: Expression = apply("({0} * {1})", 1, r, one.gate(both, 2))
    else:
        shown = one.keep(apply("({0} * {1})", 1, r, one.hidden.expression), "shown")
        read = one.gate(one.back(shown, 2, 1), 0)
    new = one.keep(_squashed(TANH, one.gate(driven, 2), read), "new").expression
    answer = apply("({0} + {1} * ({2} - {0}))", 3, new, z, one.hidden.expression)
    one.hidden = one.keep(answer, "hidden", into)


def _last_bias(one: _Direction) -> Named | None:
    """Return the bias that a GRU adds to R h, which is 0 but for the last gate."""
    if not one.lowering.has(3):
        return None
    bias = one.biases[1].copy()
    bias[: 2 * one.size] = 0
    return Named(bias, one.lowering.node.input[3])


def _rnn_step(one: _Direction, driven: Value, into: Value) -> None:
    relu = one.lowering.attribute("activations", [b"Tanh"])[0] == b"Relu"
    function = "edgefold_max({0}, 0.0f)" if relu else TANH
    back = one.back(one.hidden, 0, 1)
    answer = _squashed(function, one.gate(driven, 0), one.gate(back, 0))
    one.hidden = one.keep(answer, "hidden", into)


def _driven_bias(one: _Direction) -> Array:
    """Return the bias that is added to W x: all of it, but for what a GRU adds to R h."""
    bias: Array = one.biases.sum(0)
    is_gru = one.lowering.node.op_type == "GRU"
    if is_gru and one.lowering.attribute("linear_before_reset", 0):
        bias[2 * one.size :] = one.biases[0, 2 * one.size :]
    return bias


Step = Callable[[_Direction, Value, Value], None]


def _recurrence(step: Step, activations: Sequence[Sequence[bytes]]) -> Rule:
    """Return the rule of a recurrence.

    `step` lowers one time of one direction, `activations` are the lists of activations that it
    covers.
    """

    def rule(lowering: Lowering) -> None:
        node, sequence = lowering.node, lowering.value(0)
        steps, n_streams, _ = sequence.shape
        size, n_ways = lowering.constant(2).shape[2], len(lowering.constant(2))
        asked = lowering.attribute("activations", list(activations[0]) * n_ways)
        if asked not in [list(each) * n_ways for each in activations]:
            raise lowering.refuse(f"its activations are {[each.decode() for each in asked]}")
        name = c_name(node.output[0] or node.output[1])
        flat = (steps * n_streams, sequence.shape[2])
        tokens = sequence.reshaped(flat) or lowering.program.keep(sequence, name).reshaped(flat)
        assert tokens is not None
        all_steps = (steps, n_ways, n_streams, size)
        outputs = lowering.program.fresh(f"{name}_all", all_steps, "float32")
        ways = []
        for way in range(n_ways):
            one = _direction(lowering, name, way, (n_streams, size))
            weights = Named(lowering.constant(1)[way].astype(np.float32).T, node.input[1])
            bias = Named(_driven_bias(one), node.input[3]) if lowering.has(3) else None
            driven = dense(lowering, tokens, weights, bias, f"{name}_driven")
            backwards = way == 1 or lowering.attribute("direction", "forward") == "reverse"
            for at in reversed(range(steps)) if backwards else range(steps):
                into = outputs.sliced(0, at, 1, 1).sliced(1, way, 1, 1)
                into_rows = into.reshaped((n_streams, size))
                assert into_rows is not None
                step(one, driven.sliced(0, at * n_streams, 1, n_streams), into_rows)
            ways.append(one)
        last = [way.hidden for way in ways], [way.cell for way in ways]
        for output, values in enumerate(([outputs], *last)):
            if output < len(node.output) and node.output[output]:
                _define(lowering, values, output)

    return rule


def _direction(lowering: Lowering, name: str, way: int, shape: tuple[int, int]) -> _Direction:
    """Return direction number `way` with its weights and its initial state, (B, H)."""
    recurrent = lowering.constant(2)[way].astype(np.float32).T
    n = recurrent.shape[1]
    flat = lowering.constant(3)[way] if lowering.has(3) else np.zeros(2 * n)
    initial = []
    for index in (5, 6):
        value: Value | None = Value((), "float32", Literal("0.0f")).broadcast(shape)
        if lowering.has(index):
            value = lowering.in_memory(index).sliced(0, way, 1, 1).reshaped(shape)
        assert value is not None
        initial.append(value)
    biases = flat.reshape(2, n).astype(np.float32)
    return _Direction(lowering, name, recurrent, biases, *initial)


def _define(lowering: Lowering, values: Sequence[Value], output: int) -> None:
    """Set an output to one value of its size, or to the values of both directions, one by one."""
    shape = lowering.shapes[lowering.node.output[output]]
    if len(values) == 1:
        whole = values[0].reshaped(shape)
        assert whole is not None
        lowering.define(whole, output)
        return
    target = lowering.place(lowering.node.output[output], shape, "float32")
    for way, value in enumerate(values):
        part = value.reshaped((1, *value.shape))
        assert part is not None
        lowering.program.keep(part, f"last_{way}", target.sliced(0, way, 1, 1))
    lowering.computed(target, output)


LSTM_DEFAULT, GRU_DEFAULT = [b"Sigmoid", b"Tanh", b"Tanh"], [b"Sigmoid", b"Tanh"]
DIRECTIONS = ("forward", "reverse", "bidirectional")
RECURRENT: dict[str, Rule] = {
    "GRU": limited(
        _recurrence(_gru_step, [GRU_DEFAULT]),
        constants=(1, 2, 3),
        absent=(4,),
        others=("`activations` Sigmoid and Tanh",),
        clip=(0.0,),
        direction=DIRECTIONS,
        layout=(0,),
    ),
    "LSTM": limited(
        _recurrence(_lstm_step, [LSTM_DEFAULT]),
        constants=(1, 2, 3),
        absent=(4, 7),
        others=("`activations` Sigmoid, Tanh and Tanh",),
        clip=(0.0,),
        direction=DIRECTIONS,
        input_forget=(0,),
        layout=(0,),
    ),
    "RNN": limited(
        _recurrence(_rnn_step, [[b"Tanh"], [b"Relu"]]),
        constants=(1, 2, 3),
        absent=(4,),
        others=("`activations` Tanh or Relu",),
        clip=(0.0,),
        direction=DIRECTIONS,
        layout=(0,),
    ),
}
"""Rules of recurrences, which are computed in single precision only."""
