"""Does a backend keep the rounding errors of sums, as the CPU does? One comparison for all.

The errors are below a stream's own accuracy and its recorded points cannot show them, so both
backends consolidate one and the same state, which they get from a snapshot.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefold.runtime import Stream
from tests.contract import Array
from tests.runtime.stream.subjects import points

N_LEARNED = 256
"""Rounds of points before the comparison: the base is then so much larger than what is added."""


def assert_errors_of_sums_are_kept(stream: Stream, cpu: Stream, folder: Path) -> None:
    """Compare base_sums and base_rest after each of three consolidations.

    Where the peak did not rise, base + rest is the exact sum of the old base, the old rest and what
    is added, save for the roundings of what is added: exp, a product, and the rest's own. A backend
    that loses the error of the sum is off by what the CPU has in base_rest.
    """
    every = cpu.manifest.consolidate_every
    x, y = points(cpu, (N_LEARNED + 3) * every)
    start = N_LEARNED * every
    cpu.update(x[:start], y[:start])
    for _ in range(3):
        cpu.save(folder / "before.npz")
        stream.restore(folder / "before.npz")
        before = cpu.state()
        for each in (stream, cpu):
            each.update(x[start : start + 1], y[start : start + 1])
        compare(before, stream.state(), cpu.state())
        cpu.update(x[start + 1 : start + every], y[start + 1 : start + every])
        start += every


def compare(before: dict[str, Array], found: dict[str, Array], expected: dict[str, Array]) -> None:
    """Compare one consolidation's base_sums + base_rest, from one state before."""
    np.testing.assert_array_equal(found["base_peak"], expected["base_peak"])
    kept = expected["base_peak"] == before["base_peak"]  # the base's factor is exactly 1
    gap = before["recent_peak"].astype(np.float64) - expected["base_peak"]
    added = np.abs(before["recent_sums"] * np.exp(gap))
    # exp within 2 ulp on each side (CUDA's guide gives 1; onnxruntime's is within 2), a product and
    # the rest's own rounding: 8 ulp of what is added.
    bound = 8 * 2.0**-23 * added + 2.0**-45 * np.abs(expected["base_sums"])
    difference = sum_of(found) - sum_of(expected)
    kept = np.broadcast_to(kept, difference.shape) & (bound > 0)
    assert kept.mean() > 0.5
    lost = np.abs(expected["base_rest"])[kept] > bound[kept]
    assert lost.mean() > 0.5, "this comparison would not notice a loss"
    worst = float((np.abs(difference)[kept] / bound[kept]).max())
    assert worst <= 1.0, f"base_sums + base_rest is {worst:.3g} times its bound away"


def sum_of(state: dict[str, Array]) -> Array:
    """base_sums + base_rest in double precision, which holds it."""
    return state["base_sums"].astype(np.float64) + state["base_rest"]
