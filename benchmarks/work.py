"""How much a step has to do at least, counted from its graph, and what the machine can do at most.

    flops    2 M N K of every matrix product, and one for each element of every other node's output
    bytes    what must pass through the processor once: weights and inputs read, outputs written

The floor of a step is the longer of flops at the rate of a large matrix product and bytes at the
rate of a copy that stays in cache. It is optimistic: small products run slower, an exponential is
more than one operation, and calling the nodes costs time as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

VIEWS = {"Reshape", "Identity", "Split"}


@dataclass(frozen=True, slots=True)
class Work:
    """Of one call of a graph."""

    flops: int
    n_bytes: int

    def floor_s(self, flops_per_s: float, bytes_per_s: float) -> float:
        """The least time that arithmetic and traffic allow, if they overlap."""
        return max(self.flops / flops_per_s, self.n_bytes / bytes_per_s)


def work_of(path: Path) -> Work:
    """Count the work of one graph with static shapes; weights may lie in an external file."""
    graph = onnx.load(path, load_external_data=False).graph
    shapes = {t.name: tuple(t.dims) for t in graph.initializer}
    sizes = {t.name: _n_bytes(tuple(t.dims), t.data_type) for t in graph.initializer}
    weight_bytes = sum(sizes.values())
    for info in (*graph.input, *graph.output, *graph.value_info):
        tensor = info.type.tensor_type
        shapes[info.name] = tuple(d.dim_value for d in tensor.shape.dim)
        sizes[info.name] = _n_bytes(shapes[info.name], tensor.elem_type)
    flops = 0
    for node in graph.node:
        out = _count(shapes[node.output[0]])
        if node.op_type in ("MatMul", "Gemm"):
            left = shapes[node.input[0]]
            flops += 2 * out * (left[-2] if _transposed(node) else left[-1])
        elif node.op_type not in VIEWS and node.op_type != "Transpose":
            flops += out
    passed = sum(sizes[t.name] for t in (*graph.input, *graph.output))
    return Work(flops, weight_bytes + passed)


def _transposed(node: onnx.NodeProto) -> bool:
    return any(a.name == "transA" and a.i for a in node.attribute)


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _n_bytes(shape: tuple[int, ...], element: int) -> int:
    return _count(shape) * np.dtype(helper.tensor_dtype_to_np_dtype(element)).itemsize


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Of one core: float32 matrix product, and copies of 1 MiB (in cache) and 256 MiB (memory).

    A copy's rate counts bytes read and bytes written.
    """

    flops_per_s: float
    cache_bytes_per_s: float
    memory_bytes_per_s: float


def measure_ceilings() -> Ceilings:
    """The best of several tries each, in one thread; set torch's threads to 1 before."""
    import torch

    n = 384
    a, b, c = (torch.rand(n, n) for _ in range(3))
    product_s = _best(lambda: torch.mm(a, b, out=c), 200)

    def copy_rate(n_bytes: int, n_tries: int) -> float:
        source = np.ones(n_bytes // 4, np.float32)
        target = np.ones_like(source)
        return 2 * n_bytes / _best(lambda: np.copyto(target, source), n_tries)

    return Ceilings(2 * n**3 / product_s, copy_rate(1 << 20, 200), copy_rate(1 << 28, 5))


def _best(step: Callable[[], object], n: int) -> float:
    taken_s = []
    for _ in range(n):
        start_s = time.perf_counter()
        step()
        taken_s.append(time.perf_counter() - start_s)
    return min(taken_s)
