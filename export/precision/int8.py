"""int8 by static quantisation: a float32 step graph with its matrix products between grids.

    x ──> QuantizeLinear ──> DequantizeLinear ──┐
                     int8 W ──> DequantizeLinear ┴─> MatMul ──> Sum with the bias (float32)

A backend that has int8 products fuses MatMul with the nodes in front of it; any other computes the
same numbers in float32. Products that read the same value (a layer's q, k and v) become one, which
a Split takes apart again: onnxruntime runs a product in int8 only if no other shares its input, and
fewer are faster (refresh at the paper's size on one x86-64 core: 7.5 ms apart, 4.8 ms as one, 5.8
ms in float32). Both grids are symmetric (zero point 0), as TensorRT demands:
one scale a tensor for x, one a column for W. Biases stay float32, because TensorRT's parser takes
no int32 DequantizeLinear.

Which products: those of a value and a constant matrix. The last one before each prediction, and in
a filter's step the last one before what is written of the state, stays float32, as with float16. So
do those that read x before any normalisation, because one grid would have to fit whatever callers
give. So do products of two values, as inside an attention: on gp-small they would double the loss
(0.015 to 0.030 nats under RBF), and save no weight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import constant_name
from edgefold.export.graphs.static_graph import constants_of, nodes_before, rebuilt, shapes_of
from edgefold.export.graphs.step_graphs import StepGraphs
from edgefold.runtime.bundle.manifest import WRITTEN, Tensor
from edgefold.runtime.errors import ExportError

PRODUCTS = ("Gemm", "MatMul", "Conv")
NORMALISING = ("LayerNormalization", "InstanceNormalization", "Softmax")
MOVES = having("scaled")
CALLERS = ("points.x", "points.y", "targets.x")
"""Roles of what callers give."""
FLOAT = onnx.TensorProto.FLOAT
LEVELS = 127  # -128 is left out, so that the grid is symmetric
MAX_ERROR = 0.06
"""A product that int8 moves by more than this, relative to each row, stays float32: three of 63 in
gp-small."""
EXPONENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MOST_ROWS = 1024  # of the samples that choose a grid
TINY = 1e-6  # stands for zero where something is divided by it

Array = NDArray[np.floating[Any]]
Samples = Mapping[str, NDArray[np.float32]]
"""By value: rows of it as they came along streams, (n, D_in)."""


def quantised_products(model: onnx.ModelProto, tensors: Iterable[Tensor]) -> list[NodeProto]:
    """The products of a graph that may run in int8, in order.

    Args:
        model: A float32 step graph; its weights need not be loaded.
        tensors: Its inputs and outputs with their roles.
    """
    tensors = list(tensors)
    constants = {t.name: t for t in model.graph.initializer}
    weights = {n for n, t in constants.items() if len(t.dims) == 2 and t.data_type == FLOAT}
    exact = ("prediction", *WRITTEN)
    last = nodes_before(model, [t.name for t in tensors if t.role in exact], PRODUCTS)
    unfit = _hold_what_callers_give(model, tensors, constants)
    found = []
    for node in model.graph.node:
        plain = node.op_type in ("Gemm", "MatMul") and not node.attribute
        held = (
            len(node.input) > 1 and node.input[1] in weights and {*node.input[2:]} <= {*constants}
        )
        if plain and held and node.input[0] not in unfit and node.output[0] not in last:
            found.append(node)
    return found


def _hold_what_callers_give(
    model: onnx.ModelProto, tensors: Iterable[Tensor], constants: Collection[str]
) -> set[str]:
    """Constants, and values computed from what callers give alone, or with such columns."""
    alone = {t.name for t in tensors if t.role in CALLERS}
    beside: set[str] = set()
    for node in model.graph.node:
        values = {name for name in node.input if name and name not in constants}
        if node.op_type not in NORMALISING and values and values <= alone:
            alone.update(node.output)
        elif node.op_type in MOVES and values & (alone | beside):
            beside.update(node.output)
    return alone | beside | {*constants}


def quantised_inputs(model: onnx.ModelProto, tensors: Iterable[Tensor]) -> list[str]:
    """Values that a graph's quantised products read, each once, in order."""
    return list(dict.fromkeys(node.input[0] for node in quantised_products(model, tensors)))


def quantise(
    model: onnx.ModelProto, tensors: Iterable[Tensor], samples: Samples
) -> onnx.ModelProto:
    """The graph with int8 products.

    Args:
        model: A float32 step graph with its weights loaded.
        tensors: Its inputs and outputs with their roles.
        samples: Of values in `quantised_inputs`; a product whose input is not among them stays
            float32.
    """
    rewriter = _Rewriter(model, quantised_products(model, tensors), samples)
    nodes = [new for node in model.graph.node for new in rewriter.rewritten(node)]
    return rebuilt(model, nodes, rewriter.constants)


def narrowed(graphs: StepGraphs, samples: Mapping[str, Samples]) -> StepGraphs:
    """The graphs with int8 products in those that have samples.

    Raises:
        ExportError: No product bears it.
    """
    steps = []
    for step in graphs.steps:
        if step.name in samples:
            made = quantise(step.model, (*step.inputs, *step.outputs), samples[step.name])
            if any(node.op_type == "QuantizeLinear" for node in made.graph.node):
                step = replace(step, model=made, precision="int8")
        steps.append(step)
    if not any(step.precision == "int8" for step in steps):
        raise ExportError(
            "no product of refresh, query or step bears int8: there is none but the last, or the "
            f"grid would move each by more than {MAX_ERROR:.0%}; take a wider --precision."
        )
    return replace(graphs, steps=tuple(steps))


class _Rewriter:
    """Replaces the products that read one value by one product, where the first of them was."""

    def __init__(self, model: onnx.ModelProto, products: Iterable[NodeProto], samples: Samples):
        self.constants = constants_of(model)
        self._shapes = shapes_of(model)
        self._made_by = {name: node for node in model.graph.node for name in node.output}
        self._read_by: dict[str, list[NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in node.input:
                self._read_by[name].append(node)
        self._left = {info.name for info in model.graph.output}
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in products:
            if node.input[0] in samples:
                self._readers[node.input[0]].append(node)
        self._first = {readers[0].output[0]: x for x, readers in self._readers.items()}
        found = {
            x: choose_grid(
                _thinned(samples[x]),
                np.hstack([self.constants[node.input[1]] for node in readers]),
                self._gated(x) is not None,
            )
            for x, readers in self._readers.items()
        }
        self._grids = {x: grid for x, grid in found.items() if grid.error <= MAX_ERROR}
        self._divided = {
            value: self._grids[x].factors
            for x, value in ((x, self._gated(x)) for x in self._grids)
            if value is not None
        }
        self._joined = {node.output[0] for x in self._grids for node in self._readers[x]}

    def _gated(self, x: str) -> str | None:
        """A product's result that only serves as a factor of x: dividing its columns divides x's.

        None where x is no such gated value, or where others read it too.
        """
        made = self._made_by.get(x)
        others = [node for node in self._read_by[x] if node not in self._readers[x]]
        if made is None or made.op_type != "Mul" or others or x in self._left:
            return None
        for name in made.input:
            source = self._made_by.get(name)
            if (
                source is not None
                and source.op_type in ("Gemm", "MatMul")
                and not source.attribute
                and all(constant in self.constants for constant in source.input[1:])
                and self._read_by[name] == [made]
                and self._shapes[name] == self._shapes[x]
            ):
                return str(name)
        return None

    def rewritten(self, node: NodeProto) -> list[NodeProto]:
        out = node.output[0]
        if out in self._joined:
            x = self._first.get(out)
            return self._products(x) if x is not None else []
        if out not in self._divided:
            return [node]
        weight, bias = self._weights(node)
        held = [self._constant(a) for a in (weight, bias) if a is not None]
        return [_node(node.op_type, [node.input[0], *held], [out])]

    def _weights(self, node: NodeProto) -> tuple[Array, Array | None]:
        """Weight and bias of a product whose output may be divided column by column."""
        by_column = self._divided.get(node.output[0], np.float32(1))
        weight, *bias = (self.constants[name] / by_column for name in node.input[1:])
        return weight, bias[0] if bias else None

    def _products(self, x: str) -> list[NodeProto]:
        """All products that read x, as one."""
        grid, readers = self._grids[x], self._readers[x]
        outs = [node.output[0] for node in readers]
        own = [self._weights(node) for node in readers]
        weight = np.hstack([weight for weight, _ in own]) * grid.factors[:, None]
        values, scales = column_grid(weight)
        held = [self._constant(a) for a in (values, scales, np.zeros(len(scales), np.int8))]
        grid_of_x = [
            self._constant(np.array(grid.step, np.float32)),
            self._constant(np.array(0, np.int8)),
        ]
        all_of_x = f"{x}_all" if len(outs) > 1 else outs[0]
        has_bias = any(bias is not None for _, bias in own)
        product = f"{x}_product" if has_bias else all_of_x
        nodes = [
            _node("QuantizeLinear", [x, *grid_of_x], [f"{x}_int8"]),
            _node("DequantizeLinear", [f"{x}_int8", *grid_of_x], [f"{x}_on_grid"]),
            _node("DequantizeLinear", held, [f"{x}_weight"], axis=1),
            _node("MatMul", [f"{x}_on_grid", f"{x}_weight"], [product]),
        ]
        if has_bias:
            # Sum, not Add: onnxruntime makes a float32 Gemm of MatMul and Add before it looks for
            # quantised products, and then runs none (a query of 16 targets: 660 against 460 µs).
            biases = [np.zeros(w.shape[1], w.dtype) if b is None else b for w, b in own]
            rows = np.broadcast_shapes(*(bias.shape[:-1] for bias in biases))
            biases = [
                np.broadcast_to(b, (*rows, w.shape[1]))
                for b, (w, _) in zip(biases, own, strict=True)
            ]
            bias = self._constant(np.concatenate(biases, axis=-1))
            nodes.append(_node("Sum", [product, bias], [all_of_x]))
        if len(outs) > 1:
            widths = self._constant(np.array([weight.shape[1] for weight, _ in own], np.int64))
            nodes.append(_node("Split", [all_of_x, widths], outs, axis=-1))
        return nodes

    def _constant(self, array: NDArray[Any]) -> str:
        name = constant_name(array)
        self.constants[name] = array
        return name


@dataclass(frozen=True, slots=True)
class Grid:
    """How a value (n, D_in) is rounded.

    Attributes:
        factors: (D_in,), what its columns were divided by beforehand.
        step: Of the grid that all columns then share.
        error: Of the product with its weights: the root of the mean over rows of the squared error
            relative to the row.
    """

    factors: NDArray[np.float32]
    step: float
    error: float


def choose_grid(values: Array, weight: Array, evened: bool) -> Grid:
    """A grid for values, and how far it moves `values @ weight`.

    Errors are relative to the row, because rows differ: after a reset some are ten times those of a
    full state, and in absolute terms a few such rows would choose a grid too coarse for all others.
    Clipping the largest values is often cheaper than a coarse grid.

    Args:
        values: (n, D_in).
        weight: (D_in, D_out), of all products that read the values.
        evened: Whether columns may have factors, which move into the weights on both sides at no
            cost in the graph. Hidden values behind a gate differ by 50 times from column to column,
            and one grid leaves the small ones a few steps. The exponent shares the spread between
            values and weights, as in SmoothQuant (Xiao et al. 2023, eq. 4).
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
    """Steps to choose from: grids up to a fifth of the largest value, and up to all of it."""
    largest = max(float(np.abs(values).max()), TINY)
    return [largest * share / LEVELS for share in np.linspace(0.2, 1, 17).tolist()]


def on_grid(values: Array, step: float) -> Array:
    """Values rounded to int8 and back."""
    rounded: Array = np.clip(np.rint(values / step), -LEVELS, LEVELS) * step
    return rounded


def relative_error(found: Array, exact: Array) -> float:
    """Mean over rows of the squared error relative to the row."""
    size = np.square(exact).mean(axis=1, keepdims=True)
    floor = TINY + 1e-6 * float(size.max())
    return float((np.square(found - exact) / (size + floor)).mean())


def _node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs, outputs[0], **attributes)


def column_grid(weight: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A weight (D_in, D_out) as int8 and a scale for each column; a column of zeros has scale 1.

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
