"""How long does each step take on this machine's GPU, by launch and by how the process waits?

One bundle, opened on every backend that opens here, in one process without PyTorch; the steps of
all of them take turns (`benchmarks.rounds`). How a process waits for the GPU is the whole
process's, so each of auto, spin and block has a process of its own, one after the other. Opening is
timed twice: with an empty engine cache, in the first process alone, and with the one that this
opening left.

    python -m benchmarks gpu_latency BUNDLE

On a machine without a GPU it says why no backend opened and writes nothing. Energy is
`edgefold profile`'s part: with a GPU's backend it reads the GPU's counter first.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, conditions, finish
from benchmarks.rounds import Step, interleave
from benchmarks.tables import as_text
from edgefold.devices.profile.calls import ProfilePoints
from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.base import WAITS, Wait

QUESTION = "How long does each step take on a GPU, by launch and by how the process waits?"
CONTENDERS = (
    ("TensorRT, CUDA graphs", "tensorrt", True),
    ("TensorRT, kernel by kernel", "tensorrt", False),
    ("onnxruntime, CUDA", "onnxruntime-cuda", True),
    ("onnxruntime, TensorRT", "onnxruntime-tensorrt", True),
    ("onnxruntime, CPU", "onnxruntime", True),
)


def measure_each(bundle: Path, n_rounds: int) -> dict[str, Any]:
    """Return the results of `measure`, by how the process waits.

    Raises:
        BackendError: No GPU's backend opens here.
    """
    with tempfile.TemporaryDirectory(prefix="edgefold-") as cache:
        found: dict[str, Any] = {}
        for wait in WAITS:
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                asked = process.submit(measure, bundle, n_rounds, wait, Path(cache))
                found[wait] = asked.result()
        return found


def measure(bundle: Path, n_rounds: int, wait: Wait, cache: Path) -> dict[str, Any]:
    """Times of all contenders that open, and why the others did not.

    Args:
        bundle: Its folder.
        n_rounds: Of all steps.
        wait: How this process waits for the GPU.
        cache: Where each contender has a folder of engines; empty before the first process.

    Raises:
        BackendError: No GPU's backend opens here.
    """
    opened: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    groups: dict[str, list[Step]] = {}
    with ExitStack() as stack:
        for name, backend, cuda_graphs in CONTENDERS:
            options = EngineOptions(cache / name, cuda_graphs=cuda_graphs, wait=wait)

            def opening(backend: str = backend, options: EngineOptions = options) -> Stream:
                return Stream.open(bundle, backend, engine=options)

            try:
                is_cold = not (cache / name).exists()
                cold_s = _timed(lambda: opening().close()) if is_cold else None
                start_s = time.perf_counter()
                stream = stack.enter_context(opening())
            except BackendError as error:
                refused[name] = str(error)
                continue
            opened[name] = {
                "cold_open_s": cold_s,
                "cached_open_s": time.perf_counter() - start_s,
                "report": stream.backend_report,
            }
            groups[name] = _steps(stream)
        if set(opened) <= {"onnxruntime, CPU"}:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
            raise BackendError(f"no GPU's backend opens {bundle}: {reasons}")
        interleave(groups, 2)  # warm-up
        times, noise = interleave(groups, n_rounds)
    return {"times": times, "noise": noise, "opened": opened, "refused": refused}


def _timed(call: Callable[[], Any]) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def _steps(stream: Stream) -> list[Step]:
    given = ProfilePoints(stream.manifest)

    def update() -> None:
        given.turn()
        stream.update(given.x, given.y)

    update()
    stream.query(given.x)
    chunk, targets = stream.manifest.chunk, stream.manifest.targets
    return [
        Step("update", update),
        Step(f"condition, {chunk} points", lambda: stream.condition(*given.chunk), 10),
        Step("refresh", stream.refresh, 3, 1, before=update),
        Step("query, 1 target", lambda: stream.query(given.x), 20, before=stream.refresh),
        Step(f"query, {targets} targets", lambda: stream.query(given.targets), 10),
    ]


def main() -> int:
    """Measure and record."""
    parser = arguments(__doc__ or "", "gpu_latency")
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="as `edgefold export` wrote it")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of all steps; default 200")
    args = parser.parse_args()
    before = conditions(on_gpu=True)
    try:
        data = measure_each(args.bundle, 5 if args.quick else args.rounds)
    except BackendError as error:
        print(f"nothing was measured: {error}", file=sys.stderr)
        return 1
    finish(args, "gpu_latency", QUESTION, before, data, [], as_text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
