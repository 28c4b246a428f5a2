"""Measure the machine's rates: the ceilings that the work of a step is compared with.

The floor of a step is the longer of its operations (`edgefold.export.counting.op_counts`) at the
rate of a large matrix product and its bytes at the rate of a copy that stays in cache. It is
optimistic: small products run slower, an exponential is more than one operation, and calling the
nodes costs time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates of one core: float32 matrix product, copies of 1 MiB (cache) and 256 MiB (memory).

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
