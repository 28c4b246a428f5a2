"""Turn a step graph into a program of C statements: the rule of its operator lowers each node.

Before that, the later use of each value decides where it is written: into an output of the graph,
into its part of a concatenation, or with its axes in the order that the next operation needs. So
most nodes that only move elements cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.static_graph import attribute, constants_of, dtypes_of, shapes_of
from edgefold.export.native.program.c_loops import IN_SUMS, OUTER
from edgefold.export.native.program.c_words import C_TYPES, c_identifier
from edgefold.export.native.program.constants import Constants, number_text
from edgefold.export.native.program.coverage import UncoveredError, UncoveredNode
from edgefold.export.native.program.statements import INDICES, Program
from edgefold.export.native.program.values import (
    Apply,
    Buffer,
    Literal,
    Shape,
    Value,
    View,
    apply,
    leaves,
    row_major,
)

Array = NDArray[Any]
LARGEST_EXPRESSION = 40
"""Largest number of nodes of an expression; a larger one is written to memory."""
FREE = 1
"""Largest cost of an element, in additions, that is computed again rather than stored and read."""
VIEWS = having("views")


@dataclass(frozen=True, slots=True)
class NarrowWeights:
    """Holds weights of 8 bits, (K, N), and the factor of each column, (N,)."""

    weights: Array
    scales: Array


@dataclass(slots=True)
class Lowering:
    """Holds a graph that is being lowered; the rules of operators read and write it.

    Attributes:
        program: The statements so far.
        constants: The weights so far.
        arrays: The graph's constants by name.
        shapes, dtypes: Shapes and element types of the graph's values by name.
        values: The values of the nodes that are lowered, by name.
        uses: Number of times that each value is read; an output of the graph counts as one.
        places: Memory that is already chosen for values, by name.
        narrow: Constants that products read with 8 bits, by name.
        orders: Order in which the axes of a value should lie in memory, by name.
        node: The node that is being lowered.
    """

    program: Program
    constants: Constants
    arrays: dict[str, Array]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, np.dtype[Any]]
    values: dict[str, Value] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    places: dict[str, Value] = field(default_factory=dict)
    narrow: dict[str, NarrowWeights] = field(default_factory=dict)
    orders: dict[str, Shape] = field(default_factory=dict)
    node: onnx.NodeProto = field(default_factory=onnx.NodeProto)

    # Methods by which a rule reads the node.

    def refuse(self, reason: str) -> UncoveredError:
        """Return the error for a node that native code does not cover, with the reason."""
        name = self.node.name or self.node.output[0]
        return UncoveredError([UncoveredNode(self.node.op_type, name, reason)])

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node, or the default if the node does not have it."""
        setting = attribute(self.node, name, default)
        return setting.decode() if isinstance(setting, bytes) else setting

    def has(self, index: int) -> bool:
        """Return whether the node has input number `index`; optional ones may be left out."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def value(self, index: int) -> Value:
        """Return input number `index` of the node as a value."""
        return self.named(self.node.input[index])

    def constant(self, index: int) -> Array:
        """Return the numbers of an input that must be constant; raises UncoveredError if not."""
        name = self.node.input[index]
        if name not in self.arrays:
            raise self.refuse(f"its input {name!r} is not a constant")
        return self.arrays[name]

    def is_constant(self, index: int) -> bool:
        return self.has(index) and self.node.input[index] in self.arrays

    @property
    def shape(self) -> Shape:
        """Return the shape of the first output."""
        return self.shapes[self.node.output[0]]

    @property
    def dtype(self) -> str:
        """Return the type of the first output, as numpy names it."""
        return self.dtypes[self.node.output[0]].name

    def named(self, name: str) -> Value:
        """Return a value by its name in the graph."""
        if name not in self.values:
            self.values[name] = self.of_array(self.arrays[name], name)
        return self.values[name]

    def of_array(self, array: Array, name: str = "") -> Value:
        """Return an array as a constant value; one repeated number becomes a literal of C.

        `name` is the name in the graph, if it has one.
        """
        if array.size and array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size:
            text = number_text(array.reshape(-1)[0], array.dtype.name)
            dtype = "float32" if array.dtype == np.float16 else array.dtype.name
            return Value(array.shape, dtype, Literal(text))
        return _widened(self.stored(array, name))

    def stored(self, array: Array, name: str = "") -> Value:
        """Store an array among the constants, and return it as a value in memory.

        `name` is the name in the graph, if it has one.
        """
        buffer = self.constants.buffer(array, self.reader, name)
        return Value(array.shape, buffer.dtype, View(buffer, 0, row_major(array.shape)))

    @property
    def reader(self) -> str:
        """Return words for a comment in C that name the node, from its operator and output."""
        outputs = [c_name(name) for name in self.node.output[:1]]
        return " of ".join([c_identifier(self.node.op_type), *outputs])

    def is_read_once(self, index: int) -> bool:
        """Return whether only the node reads input `index`, and no other value lies in its memory.

        A rule may then write the node's result over it.
        """
        name, view = self.node.input[index], self.value(index).view
        if view is None or view.buffer.place != "arena" or self.uses[name] != 1:
            return False
        sharing = (
            other
            for other, value in self.values.items()
            if any(leaf.buffer is view.buffer for leaf in leaves(value.expression))
        )
        return all(other == name for other in sharing)

    # Methods by which a rule writes results.

    def place(self, name: str, shape: Shape, dtype: str) -> Value:
        """Return the memory that is chosen for a value to be computed, or else new memory."""
        if name in self.places:
            return self.places[name]
        order = self.orders.get(name)
        if order is None:
            return self.program.fresh(c_name(name), shape, dtype)
        memory = self.program.fresh(c_name(name), tuple(shape[a] for a in order), dtype)
        return memory.transposed(tuple(order.index(axis) for axis in range(len(order))))

    def define(self, value: Value, output: int = 0) -> None:
        """Set output number `output` of the node to a value.

        The value is first written to memory if memory was chosen for it in `places`, if it is read
        several times and costly to compute again, or if its expression is large.
        """
        name = self.node.output[output]
        text = value.expression.size if isinstance(value.expression, Apply) else 1
        shared = self.uses[name] > 1 and value.cost > FREE
        if name in self.places or shared or text > LARGEST_EXPRESSION:
            into = self.place(name, value.shape, value.dtype)
            if into.expression != value.expression:
                self.program.keep(value, c_name(name), into)
            value = into
        self.values[name] = value

    def computed(self, value: Value, output: int = 0) -> None:
        """Set output number `output` of the node to a value that is in the memory from `place`."""
        self.values[self.node.output[output]] = value

    def leave_out(self) -> None:
        """Define the outputs of a node that is not covered as memory that nothing writes.

        Nodes that read them are lowered, too, so that those which are not covered are found.
        """
        for name in filter(None, self.node.output):
            self.values[name] = self.place(name, self.shapes[name], self.dtypes[name].name)

    def in_memory(self, index: int) -> Value:
        """Return input number `index` as a value in memory; later nodes also read a copy of it."""
        name = self.node.input[index]
        value = self.value(index)
        if value.view is None:
            into = self.place(name, value.shape, value.dtype) if name not in self.arrays else None
            value = self.values[name] = self.program.keep(value, c_name(name), into)
        return value


Rule = Callable[[Lowering], None]
KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while asm sqrtf fabsf ceilf fmodf"
)
RESERVED = {*KEYWORDS.split(), *C_TYPES.values(), *INDICES, OUTER, "arena", "mode", *IN_SUMS}
"""Names that a value cannot have in C, because the language or the function's text uses them."""


def c_name(name: str) -> str:
    """Return a name of a graph as a C identifier that means nothing else in the function's text."""
    text = c_identifier(name)
    text = text if text[:1].isalpha() else f"v{text}"
    reserved = (
        text in RESERVED or text.startswith("edgefold_") or text.isupper()
    )  # macros are upper
    return f"{text}_" if reserved else text


def lowered(
    model: onnx.ModelProto,
    arguments: Mapping[str, Buffer],
    constants: Constants,
    rules: Mapping[str, Rule],
) -> Program:
    """Return the program of a graph.

    Args:
        model: The graph, with its weights inside.
        arguments: Buffers of the inputs and outputs by name.
        constants: Collects the weights.
        rules: The rule of each operator that is covered.

    Raises:
        UncoveredError: The graph has operators, or forms of them, that are not covered; it names
            every such node.
    """
    program = Program()
    arrays = constants_of(model)
    shapes, dtypes = shapes_of(model), dtypes_of(model)
    dtypes = {n: np.dtype("float32") if d == np.float16 else d for n, d in dtypes.items()}
    lowering = Lowering(program, constants, arrays, shapes, dtypes)
    outputs = {info.name for info in model.graph.output}
    for name, buffer in arguments.items():
        program.reserve(buffer.name)
        value = Value(shapes[name], buffer.dtype, View(buffer, 0, row_major(shapes[name])))
        if name not in outputs:
            lowering.values[name] = _widened(value)
        elif buffer.dtype != "float16":
            lowering.places[name] = value
    lowering.uses.update(name for node in model.graph.node for name in node.input)
    lowering.uses.update(info.name for info in model.graph.output)
    _choose_places(lowering, model)
    errors: list[UncoveredError] = []
    for node in model.graph.node:
        lowering.node = node
        try:
            _lower_node(lowering, rules)
        except UncoveredError as error:
            errors.append(error)
            lowering.leave_out()
    if errors:
        nodes = [node for error in errors for node in error.nodes]
        raise UncoveredError(nodes) from errors[0].__cause__
    for name in sorted(outputs):
        _finish(lowering, name, arguments[name])
    return program


def _lower_node(lowering: Lowering, rules: Mapping[str, Rule]) -> None:
    """Apply the rule of the lowering's node; raises UncoveredError if none covers it."""
    node = lowering.node
    if node.op_type not in rules or node.domain not in ("", "ai.onnx"):
        raise lowering.refuse("there is no rule for this operator")
    try:
        rules[node.op_type](lowering)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise lowering.refuse(f"its form is not expected ({error!r})") from error


def _widened(value: Value) -> Value:
    """Return a value in the type in which it is computed: float16 becomes float32."""
    if value.dtype != "float16":
        return value
    return Value(value.shape, "float32", apply("edgefold_of_half({0})", 2, value.expression))


def _finish(lowering: Lowering, name: str, buffer: Buffer) -> None:
    """Write an output of the graph to its buffer, if it does not already lie there."""
    value = lowering.named(name)
    place = Value(value.shape, buffer.dtype, View(buffer, 0, row_major(value.shape)))
    if buffer.dtype == "float16":
        value = Value(value.shape, "float16", apply("edgefold_to_half({0})", 2, value.expression))
    if value.expression != place.expression:
        lowering.program.keep(value, buffer.name, place)


def _choose_places(lowering: Lowering, model: onnx.ModelProto) -> None:
    """Choose memory for values that can be written where a later node needs them, without a copy.

    It is an output of the graph or a part of a concatenation, and is added to `lowering.places`; a
    wanted order of axes is added to `lowering.orders`. The last node is visited first.
    """
    results = {name for node in model.graph.node for name in node.output}
    places, shapes = lowering.places, lowering.shapes
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in reversed(model.graph.node):
        output, source = node.output[0], node.input[0] if node.input else ""
        free = source in results and source not in places
        lowering.node = node
        if node.op_type == "Concat":
            _place_parts(lowering, node, results)
        elif node.op_type in VIEWS and output in places and free:
            place = places[output].reshaped(shapes[source])
            if place is not None:
                places[source] = place
        elif node.op_type == "Transpose" and free:
            axes = lowering.attribute("perm", list(range(len(shapes[source])))[::-1])
            if output in places:
                places[source] = places[output].transposed(
                    [axes.index(a) for a in range(len(axes))]
                )
            elif len(readers[source]) == 1 and axes[-1] == len(axes) - 1:
                after = readers.get(output, [])
                if len(after) == 1 and after[0].op_type in VIEWS:
                    lowering.orders[source] = tuple(axes)


def _place_parts(lowering: Lowering, node: onnx.NodeProto, results: set[str]) -> None:
    """Choose the memory of a concatenation's result and, inside of it, of the parts.

    Both are added to `lowering.places`. Parts that are not in `results`, the names of all nodes'
    outputs, are copied later.
    """
    output, shapes, places = node.output[0], lowering.shapes, lowering.places
    if output not in places:
        dtype = lowering.dtypes[output].name
        places[output] = lowering.program.fresh(c_name(output), shapes[output], dtype)
    axis, start = lowering.attribute("axis") % len(shapes[output]), 0
    for name in node.input:
        n = shapes[name][axis]
        if name in results and name not in places and list(node.input).count(name) == 1:
            places[name] = places[output].sliced(axis, start, 1, n)
        start += n


def elementwise(template: str, cost: int) -> Rule:
    """Return the rule of an operator that computes each element from those at the same place.

    `template` is C text in which `{k}` stands for argument k; one that it names twice is computed
    once. `cost` is counted in additions.
    """
    twice = {index for index in range(3) if template.count(f"{{{index}}}") > 1}

    def rule(lowering: Lowering) -> None:
        shape = lowering.shape
        arguments = []
        for index in range(len(lowering.node.input)):
            value = lowering.value(index)
            if value.cost > FREE and (index in twice or value.size < np.prod(shape)):
                value = lowering.in_memory(index)
            arguments.append(value.broadcast(shape).expression)
        lowering.define(Value(shape, lowering.dtype, apply(template, cost, *arguments)))

    return rule
