"""Narrow graphs to int8 by static quantisation: matrix products of values rounded to a grid.

    x ──> QuantizeLinear ──> DequantizeLinear ──┐
                     int8 W ──> DequantizeLinear ┴─> MatMul ──> Sum with the bias (float32)

A grid is the multiples of one step, from -127 to 127 of them, to which int8 rounds numbers.
A backend that has int8 products fuses MatMul with the nodes in front of it; any other computes the
same numbers in float32. Products that read the same value (a layer's q, k and v) become one, which
a Split takes apart again: onnxruntime runs a product in int8 only if no other shares its input, and
fewer are faster (refresh at the paper's size on one x86-64 core: 7.5 ms apart, 4.8 ms as one, 5.8
ms in float32). Both grids are symmetric (zero point 0), as TensorRT demands:
one scale a tensor for x, one a column for W. Biases stay float32, because TensorRT's parser takes
no int32 DequantizeLinear.

Products of a value and a constant matrix are quantised. The last one before each prediction, and in
a filter's step the last one before each state tensor that it writes, stay float32, as with float16.
So do products that read x before any normalisation, because one grid would have to fit all that
callers give. So do products of two values, as inside an attention: on gp-small they would double
the loss (0.015 to 0.030 nats under RBF), and save no weight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import EditableGraph, constant, made_by, readers, shape_of
from edgefold.export.graphs.step_graphs import StepGraphs
from edgefold.runtime.bundle.manifest import WRITTEN, Tensor
from edgefold.runtime.errors import ExportError

PRODUCTS, NORMALISING, MOVES = having("product"), having("normalises"), having("scaled")
CALLERS = ("points.x", "points.y", "targets.x")
"""Roles of the graph inputs that come from the caller."""
LEVELS = 127  # -128 is left out, so that the grid is symmetric
MAX_ERROR = 0.06
"""Largest error that int8 may make in a product, relative to each row of its result; a product with
a larger one stays float32 (three of 63 in gp-small)."""
EXPONENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MOST_ROWS = 1024  # of the samples that choose a grid
TINY = 1e-6  # stands for zero where something is divided by it

Array = NDArray[np.floating[Any]]
Samples = Mapping[str, NDArray[np.float32]]
"""Rows (n, D_in) of values in a graph as they came along streams, by the name of the value."""


def quantised_products(graph: EditableGraph, tensors: Iterable[Tensor]) -> list[ir.Node]:
    """List the products of a graph that may run in int8, in order.

    Args:
        graph: A float32 step graph; its weights need not be loaded.
        tensors: Its inputs and outputs with their roles.
    """
    tensors = list(tensors)
    exact = [t.name for t in tensors if t.role in ("prediction", *WRITTEN)]
    last = graph.nodes_before(exact, PRODUCTS)
    unfit = _values_of_callers(graph, {t.name for t in tensors if t.role in CALLERS})
    return [
        node
        for node in graph.ir
        if _is_plain_product(node)
        and _is_weight(node.inputs[1])
        and not _is_constant(node.inputs[0])
        and node.inputs[0] not in unfit
        and node not in last
    ]


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None


def _is_weight(value: ir.Value | None) -> bool:
    matrix = value is not None and len(shape_of(value)) == 2
    return matrix and value is not None and value.dtype == ir.DataType.FLOAT


def _is_plain_product(node: ir.Node) -> bool:
    """Return whether a node is a product with constants that has no attributes."""
    plain = node.op_type in ("Gemm", "MatMul") and not node.attributes
    return plain and all(map(_is_constant, node.inputs[1:]))


def _values_of_callers(graph: EditableGraph, names: Collection[str]) -> set[ir.Value]:
    """Return the values that hold numbers from a caller which no node has normalised.

    Such a value is computed from only the inputs `names`, or has such numbers in some columns.
    """
    pure = {value for value in graph.ir.inputs if value.name in names}
    mixed: set[ir.Value] = set()
    for node in graph.ir:
        values = {v for v in node.inputs if v is not None and not _is_constant(v)}
        if node.op_type not in NORMALISING and values and values <= pure:
            pure.update(node.outputs)
        elif node.op_type in MOVES and values & (pure | mixed):
            mixed.update(node.outputs)
    return pure | mixed


def quantised_inputs(model: onnx.ModelProto, tensors: Iterable[Tensor]) -> list[str]:
    """List the names of the values that a graph's quantised products read, each once, in order."""
    products = quantised_products(EditableGraph.of(model), tensors)
    return list(dict.fromkeys(str(_input(node).name) for node in products))


def quantise(
    model: onnx.ModelProto, tensors: Iterable[Tensor], samples: Samples
) -> onnx.ModelProto:
    """Return a step graph in which products run in int8 where the error of int8 is small.

    Args:
        model: A float32 step graph with its weights loaded.
        tensors: Its inputs and outputs with their roles.
        samples: Samples of the values in `quantised_inputs`; a product that reads another value
            stays float32.
    """
    graph = EditableGraph.of(model)
    quantiser = _Quantiser(graph, quantised_products(graph, tensors), samples)
    for node in list(graph.ir):
        quantiser.visit(node)
    return graph.checked()


def narrowed(graphs: StepGraphs, samples: Mapping[str, Samples]) -> StepGraphs:
    """Return the graphs with int8 products in those for which there are samples.

    Args:
        graphs: Step graphs in float32.
        samples: Samples by the name of the graph, and then by the name of the value.

    Raises:
        ExportError: No product can run in int8 with a small error.
    """
    steps = []
    for step in graphs.steps:
        if step.name in samples:
            model = quantise(step.model, (*step.inputs, *step.outputs), samples[step.name])
            if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
                step = replace(step, model=model, precision="int8")
        steps.append(step)
    if not any(step.precision == "int8" for step in steps):
        raise ExportError(
            "no product of refresh, query or step bears int8: there is none but the last, or the "
            f"grid would move each by more than {MAX_ERROR:.0%}; take a wider --precision."
        )
    return replace(graphs, steps=tuple(steps))


def _input(node: ir.Node) -> ir.Value:
    """Return the value that a product reads."""
    assert node.inputs[0] is not None
    return node.inputs[0]


def _constants(node: ir.Node) -> list[Array]:
    """Return the weight of a product, and its bias where it has one."""
    return [array for value in node.inputs[1:] if (array := constant(value)) is not None]


class _Quantiser:
    """Replaces all products that read one value by one int8 product, in the place of the first.

    Args:
        graph: The step graph, which is changed.
        products: Products that may run in int8.
        samples: Samples of the values that they read.
    """

    def __init__(self, graph: EditableGraph, products: Iterable[ir.Node], samples: Samples):
        self._graph = graph
        self._readers: dict[ir.Value, list[ir.Node]] = defaultdict(list)
        for node in products:
            if _input(node).name in samples:
                self._readers[_input(node)].append(node)
        self._grids: dict[ir.Value, Grid] = {}
        self._divided: dict[ir.Node, NDArray[np.float32]] = {}
        for x, nodes in self._readers.items():
            weight = np.hstack([_constants(node)[0] for node in nodes])
            gate = self._gate(x)
            grid = choose_grid(_thinned(samples[str(x.name)]), weight, gate is not None)
            if grid.error <= MAX_ERROR:
                self._grids[x] = grid
                if gate is not None:
                    self._divided[gate] = grid.factors

    def _gate(self, x: ir.Value) -> ir.Node | None:
        """Return a product whose result is only read as a factor of x.

        If its columns are divided by some numbers, the columns of x are divided by the same ones.
        Return None where x is not such a gated value, or where other nodes read x too.
        """
        gated = made_by(x, "Mul")
        others = [node for node in readers(x) if node not in self._readers[x]]
        if gated is None or others or x.is_graph_output():
            return None
        for value in gated.inputs:
            source = value.producer() if value is not None else None
            if (
                value is not None
                and source is not None
                and _is_plain_product(source)
                and readers(value) == [gated]
                and shape_of(value) == shape_of(x)
            ):
                return source
        return None

    def visit(self, node: ir.Node) -> None:
        """Replace a product by one in int8, or divide its weights, or leave the node as it is."""
        x = next((x for x in self._grids if node in self._readers[x]), None)
        if x is not None:
            if node is self._readers[x][0]:
                self._join(x)
        elif node in self._divided:
            weight, bias = self._weights(node)
            for index, array in enumerate((weight, bias), 1):
                if array is not None:
                    node.replace_input_with(index, self._graph.constant(array))

    def _weights(self, node: ir.Node) -> tuple[Array, Array | None]:
        """Return a product's weight and bias; columns are divided by a grid's factors, if any."""
        by_column = self._divided.get(node, np.float32(1))
        weight, *bias = (array / by_column for array in _constants(node))
        return weight, bias[0] if bias else None

    def _join(self, x: ir.Value) -> None:
        """Replace all products that read x by one int8 product."""
        graph, grid, nodes = self._graph, self._grids[x], self._readers[x]
        outs = [node.outputs[0] for node in nodes]
        names, first = [str(out.name) for out in outs], nodes[0]
        parts = [self._weights(node) for node in nodes]
        weight = np.hstack([weight for weight, _ in parts]) * grid.factors[:, None]
        values, scales = column_grid(weight)
        factor_parts = [graph.constant(a) for a in (values, scales, np.zeros(len(scales), np.int8))]
        step, zero = np.array(grid.step, np.float32), np.array(0, np.int8)
        grid_of_x = [graph.constant(step), graph.constant(zero)]
        whole = f"{x.name}_all" if len(outs) > 1 else names[0]
        has_bias = any(bias is not None for _, bias in parts)

        def add(
            kind: str, inputs: list[ir.Value], *names: str, **settings: int
        ) -> Sequence[ir.Value]:
            return graph.insert(first, kind, inputs, names, names[0], **settings)

        (on_levels,) = add("QuantizeLinear", [x, *grid_of_x], f"{x.name}_int8")
        (on_grid,) = add("DequantizeLinear", [on_levels, *grid_of_x], f"{x.name}_on_grid")
        (factor,) = add("DequantizeLinear", factor_parts, f"{x.name}_weight", axis=1)
        results = add("MatMul", [on_grid, factor], f"{x.name}_product" if has_bias else whole)
        if has_bias:
            # Sum, not Add: onnxruntime makes a float32 Gemm of MatMul and Add before it looks for
            # quantised products, and then runs none (a query of 16 targets: 660 against 460 µs).
            biases = [np.zeros(w.shape[1], w.dtype) if b is None else b for w, b in parts]
            rows = np.broadcast_shapes(*(bias.shape[:-1] for bias in biases))
            biases = [
                np.broadcast_to(b, (*rows, w.shape[1]))
                for b, (w, _) in zip(biases, parts, strict=True)
            ]
            bias = graph.constant(np.concatenate(biases, axis=-1))
            results = add("Sum", [results[0], bias], whole)
        if len(outs) > 1:
            widths = graph.constant(np.array([weight.shape[1] for weight, _ in parts], np.int64))
            results = add("Split", [results[0], widths], *names, axis=-1)
        for out, result in zip(outs, results, strict=True):
            graph.take_over(out, result)


@dataclass(frozen=True, slots=True)
class Grid:
    """Describes how a value (n, D_in) is rounded to int8.

    Attributes:
        factors: Numbers by which the columns are divided before they are rounded, (D_in,).
        step: Step of the grid that all columns then share.
        error: Error of the product of the rounded value and its weights: the root of the mean over
            rows of the squared error relative to the row.
    """

    factors: NDArray[np.float32]
    step: float
    error: float


def choose_grid(values: Array, weight: Array, evened: bool) -> Grid:
    """Choose the grid to which values are rounded, by its error in `values @ weight`.

    Errors are relative to the row, because rows differ: after a reset some are ten times those of a
    full state, and in absolute terms a few such rows would choose a grid too coarse for all others.
    Clipping the largest values is often cheaper than a coarse grid.

    Args:
        values: Samples of the values, (n, D_in).
        weight: Weights of all products that read the values, (D_in, D_out).
        evened: Whether columns may have factors, which are put into the weights before and after
            the values at no cost in the graph. Hidden values behind a gate differ by 50 times from
            column to column, so that one grid would leave the small ones only a few steps. An
            exponent decides how much of this spread moves from the values to the weights, as in
            SmoothQuant (Xiao et al. 2023, eq. 4).
    """
    exact = values @ weight
    largest = np.maximum(np.abs(values).max(axis=0), TINY)
    heaviest = np.maximum(np.abs(weight).max(axis=1), TINY)

    def product_error(even: Array, factors: Array, step: float) -> float:
        rounded, scales = column_grid(weight * factors[:, None])
        return relative_error(on_grid(even, step) @ (rounded * scales), exact)

    if not evened:
        factors = np.ones_like(largest)
        step = min(_steps(values), key=lambda s: relative_error(on_grid(values, s), values))
        return Grid(factors, step, math.sqrt(product_error(values, factors, step)))
    grids = []
    for exponent in EXPONENTS:
        factors = (largest**exponent / heaviest ** (1 - exponent)).astype(np.float32)
        even = values / factors
        grids += [
            Grid(factors, s, math.sqrt(product_error(even, factors, s))) for s in _steps(even)
        ]
    return min(grids, key=lambda grid: grid.error)


def _thinned(rows: Array) -> Array:
    return rows[:: -(-len(rows) // MOST_ROWS)]


def _steps(values: Array) -> list[float]:
    """Return steps of 17 grids to choose from; a grid ends at 0.2 to 1 times the largest value."""
    largest = max(float(np.abs(values).max()), TINY)
    return [largest * share / LEVELS for share in np.linspace(0.2, 1, 17).tolist()]


def on_grid(values: Array, step: float) -> Array:
    """Round values to the grid of a step, as int8 does, and return them as floats."""
    rounded: Array = np.clip(np.rint(values / step), -LEVELS, LEVELS) * step
    return rounded


def relative_error(values: Array, exact: Array) -> float:
    """Return the mean over rows of a row's mean squared error divided by its exact mean square."""
    size = np.square(exact).mean(axis=1, keepdims=True)
    floor = TINY + 1e-6 * float(size.max())
    return float((np.square(values - exact) / (size + floor)).mean())


def column_grid(weight: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round a weight (D_in, D_out) to int8; return it and the scale of each column, (D_out,).

    A column of zeros has scale 1.

    Two neighbours in a column never sum to more than 128. On x86-64 without VNNI instructions
    onnxruntime adds the products of two neighbours in 16 bits (its pull request 12088), which 255
    times 128 does not overflow. With weights up to 127 each, an emulated AVX2 processor was off by
    0.14 on series-co2, where others were by 0.05; now they agree. Seven bits for every weight would
    do as well, and lose 0.047 nats on gp-small instead of 0.029.
    """
    size = np.abs(np.pad(weight, ((0, len(weight) % 2), (0, 0))))
    largest = (size[0::2] + size[1::2]).max(axis=0)
    scale = np.where(largest > 0, largest / LEVELS, 1).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale
