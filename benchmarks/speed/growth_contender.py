"""Child of `growth`: one contender, streaming, in a process that holds nothing else.

Usage: python benchmarks/speed/growth_contender.py edgefold|pytorch FOLDER LAST

Prints a line for each size: points so far, the resident peak (VmHWM) over the timed updates, and
the times in nanoseconds. It summarises nothing: that would bring libraries into the process.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.devices.memory.process import ProcessMemory
from edgefold.devices.profile.calls import spread_evenly

BUDGET_NS = 2_000_000_000  # of timing at one size, beyond the least number of calls
LEAST, MOST = 3, 300
BYTES_A_POINT = 60_000  # PyTorch's peak at the paper's size, with room


def sizes(last: int) -> list[int]:
    """Two a decade from 10."""
    return [n for k in range(2, 20) if (n := round(10 ** (k / 2))) <= last]


def draw(n: int) -> tuple[Any, Any]:
    """Return x, spread evenly over [-2, 2], and y, a smooth function of it, (n, 1) each."""
    x = spread_evenly((n, 1)) * 4 - 2
    return x, np.sin(2 * x)


def sample(update: Callable[[], Any], n_points: int) -> None:
    """Time updates after some points, and read their peak of resident memory."""
    memory = ProcessMemory()
    update()
    refused = memory.start_window()
    if refused:
        print(refused, file=sys.stderr)
    taken_ns: list[int] = []
    while len(taken_ns) < LEAST or (len(taken_ns) < MOST and sum(taken_ns) < BUDGET_NS):
        start_ns = time.perf_counter_ns()
        update()
        taken_ns.append(time.perf_counter_ns() - start_ns)
    print(n_points, memory.resident_peak_bytes(), *taken_ns, flush=True)


def run_edgefold(bundle: Path, last: int) -> None:
    """Stream the points one by one and sample on the way."""
    from edgefold.runtime import Stream

    x, y = draw(1009)
    with Stream.open(bundle) as stream:

        def update() -> None:
            row = stream.n_points % len(x)
            stream.update(x[row : row + 1], y[row : row + 1])

        for size in sizes(last):
            while stream.n_points < size:
                update()
            sample(update, size)


def run_torch(run: Path, last: int) -> None:
    """Condition on all points at each size."""
    import torch

    from edgefold.train.checkpoints import load_model

    torch.set_num_threads(1)
    model, _ = load_model(run)
    x, y = (torch.from_numpy(array).float()[None] for array in draw(last))
    with torch.inference_mode():
        for size in sizes(last):
            if size * BYTES_A_POINT > os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
                print(f"stopped before {size:,} points: too little memory", file=sys.stderr)
                break
            seen = x[:, :size], y[:, :size]
            sample(lambda seen=seen: model.condition(model.initial_state(), *seen), size)  # type: ignore[misc]


if __name__ == "__main__":
    contender, folder, last_size = sys.argv[1:]
    if contender == "edgefold":
        run_edgefold(Path(folder) / "bundle", int(last_size))
    else:
        run_torch(Path(folder) / "run", int(last_size))
