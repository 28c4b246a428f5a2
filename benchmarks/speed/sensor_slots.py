"""How much does it cost that several sensors share one stream?

A row of another sensor first exchanges two states; a row of the same sensor does not:

    take the present state into its slot ──> put the other one ──> query ──> update
    └──────────────── swap ────────────────────────────────────┘   └──── row ────┘

    python -m benchmarks sensor_slots BUNDLE

prints the medians and the size of a state. It writes no record; docs/running.md names the figures.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgefold.runtime import StateSlots, Stream

N_SENSORS = 8


def median_us(call: Callable[[], object], n: int) -> float:
    """Return the median time of n calls."""
    times = []
    for _ in range(n):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    with Stream.open(parser.parse_args().bundle) as stream:
        manifest, present = stream.manifest, 0
        slots = StateSlots(manifest, N_SENSORS)
        x, y = np.zeros((1, manifest.n_inputs)), np.zeros((1, manifest.n_outputs))

        def swap() -> None:
            nonlocal present
            stream.take(slots, present)
            present = (present + 1) % N_SENSORS
            stream.put(slots, present)

        def row() -> None:
            stream.query(x)
            stream.update(x, y)

        for _ in range(200):
            row()
        print(f"update        {median_us(lambda: stream.update(x, y), 3000):8.1f} us")
        print(f"row           {median_us(row, 500):8.1f} us")
        print(f"swap          {median_us(swap, 3000):8.1f} us")
        state = slots.state(0).values()
        print(f"state         {sum(a.nbytes for a in state):8,} bytes in {len(state)} tensors")


if __name__ == "__main__":
    main()
