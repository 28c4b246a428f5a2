"""ConvCNP by its paper's equations, of one stream, in float64 numpy, in one or two dimensions.

Gordon et al. 2020, "Convolutional Conditional Neural Processes", algorithm 1: a SetConv of the
context onto a grid (equation 4, with a density channel and division by it), a UNet over the grid
(appendix on the architectures, ConvCNPXL), and a SetConv from the grid to the targets (section 4).
Along an axis a SetConv has the kernel exp(-d^2 / 2 l^2), with a length l of its own for each
channel.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from tests.reference.neural_processes import softplus
from tests.reference.numpy_layers import Rows, Weights, relu

BEYOND = 0.1
"""Units of x by which the grid goes beyond the points, the targets, -2 and 2."""
LOW, HIGH = -2.0, 2.0


def grid_of(config: Any, *inputs: Rows) -> Rows:
    """Return the nodes of an axis: evenly between the ends, as many as halvings can halve.

    They are rounded to float32, which is a part of the model's form and not an error.
    """
    every = np.concatenate([rows.ravel() for rows in inputs] + [np.array([LOW, HIGH])])
    low, high = every.min() - BEYOND, every.max() + BEYOND
    multiple = 2**config.n_halvings
    n_nodes = math.ceil(config.points_per_unit * (high - low) / multiple) * multiple
    nodes = np.linspace(low, high, n_nodes).astype(np.float32)
    return nodes.astype(np.float64)


def kernels(x: Rows, nodes: Rows, length: float) -> list[Rows]:
    """Return the weights of nodes around the inputs x (N, X): (N, G) of each axis."""
    columns = (x[:, axis : axis + 1] for axis in range(x.shape[1]))
    return [np.exp(-0.5 * (column - nodes) ** 2 / length**2) for column in columns]


def on_grid(x: Rows, values: Rows, nodes: Rows, length: float) -> Rows:
    """Sum values (N,) at inputs x onto the grid, (G,) or (G, G)."""
    weights = kernels(x, nodes, length)
    letters = "gh"[: len(weights)]
    inputs = ",".join(f"n{letter}" for letter in letters)
    return np.asarray(np.einsum(f"n,{inputs}->{letters}", values, *weights))


def at_targets(x: Rows, values: Rows, nodes: Rows, length: float) -> Rows:
    """Sum values of the grid at inputs x: (N,)."""
    weights = kernels(x, nodes, length)
    letters = "gh"[: len(weights)]
    inputs = ",".join(f"n{letter}" for letter in letters)
    return np.asarray(np.einsum(f"{letters},{inputs}->n", values, *weights))


def _slices(offset: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """Return every second place from an offset on, as many as the sizes say."""
    ends = zip(offset, sizes, strict=True)
    return (slice(None), *(slice(first, first + 2 * size - 1, 2) for first, size in ends))


def halved(weights: Weights, x: Rows) -> Rows:
    """Convolve channels (C, *grid) with stride 2: y_o[t] is b_o + sum w_oi[k] x_i[2 t + k - h]."""
    w, n_axes = weights("weight"), x.ndim - 1
    size, half = w.shape[-1], w.shape[-1] // 2
    padded = np.pad(x, [(0, 0), *[(half, half)] * n_axes])
    sizes = tuple(n // 2 for n in x.shape[1:])
    result = np.zeros((len(w), *sizes)) + weights("bias").reshape(-1, *(1,) * n_axes)
    for offset in product(range(size), repeat=n_axes):
        place: Any = (slice(None), slice(None), *offset)
        matrix: Rows = w[place]
        result += np.tensordot(matrix, padded[_slices(offset, sizes)], 1)
    return result


def doubled(weights: Weights, x: Rows) -> Rows:
    """Convolve with the transposed map of `halved`: y_o[2 t + k - h] gets w_io[k] x_i[t]."""
    w, n_axes = weights("weight"), x.ndim - 1
    size, half = w.shape[-1], w.shape[-1] // 2
    sizes = x.shape[1:]
    padded = np.zeros((w.shape[1], *(2 * n + size for n in sizes)))
    for offset in product(range(size), repeat=n_axes):
        place: Any = (slice(None), slice(None), *offset)
        matrix: Rows = w[place]
        part = np.tensordot(matrix.T, x, 1)
        padded[_slices(offset, sizes)] += part
    inside = (slice(None), *(slice(half, half + 2 * n) for n in sizes))
    result: Rows = padded[inside] + weights("bias").reshape(-1, *(1,) * n_axes)
    return result


def unet(weights: Weights, n_halvings: int, hidden: Rows) -> Rows:
    """Halve the grid again and again, then double it, joined with what was on the way down."""
    levels = [hidden]
    for k in range(n_halvings):
        levels.append(relu(halved(weights["down"][k], levels[-1])))
    hidden = levels.pop()
    for k in range(n_halvings):
        hidden = np.concatenate([relu(doubled(weights["up"][k], hidden)), levels.pop()])
    return hidden


def convcnp(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    nodes = grid_of(config, x, targets)
    lengths = np.exp(weights("log_length_in"))
    values = np.concatenate([np.ones((len(x), 1)), y], 1).T  # the density channel, then y
    sums = [on_grid(x, row, nodes, own) for row, own in zip(values, lengths, strict=True)]
    density, signals = sums[0], sums[1:]
    known = np.stack([density, *(signal / (density + 1e-8) for signal in signals)])
    first = weights["first"]
    matrix = first("weight").reshape(len(first("weight")), -1)
    hidden = np.tensordot(matrix, known, 1) + first("bias").reshape(-1, *(1,) * x.shape[1])
    channels = unet(weights["unet"], config.n_halvings, 1 / (1 + np.exp(-hidden)))
    last = np.split(weights["last"]("weight").reshape(2 * config.n_outputs, -1), 2)
    numbers = []
    for side, (layer, bias) in enumerate(zip(last, np.split(weights("bias"), 2), strict=True)):
        own = np.exp(weights("log_length_out")[side])
        pairs = zip(channels, own, strict=True)
        near = np.stack([at_targets(targets, rows, nodes, length) for rows, length in pairs], 1)
        numbers.append(near @ layer.T + bias)
    return numbers[0], softplus(numbers[1])
