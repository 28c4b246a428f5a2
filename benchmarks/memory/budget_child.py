"""Child of `budget`: what each graph of one bundle allocates, or how long it takes.

Usage: LD_PRELOAD=counter.so python -m benchmarks budget_child allocations BUNDLE
       python -m benchmarks budget_child times BUNDLE ROUNDS
       python -m benchmarks budget_child ceilings

It prints JSON. `allocations` runs each graph in sessions of its own, once with onnxruntime's arena
off, where every intermediate is an allocation, and once with it on, where only the run's own
bookkeeping is; the difference is the intermediates'.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from dataclasses import asdict
from typing import Any

from edgefold.runtime.arrays import aligned_full
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest


def allocations(manifest: Manifest) -> dict[str, int]:
    """Bytes of intermediates by graph."""
    counter = ctypes.CDLL(None)
    for name in ("counted_live", "counted_peak"):
        getattr(counter, name).restype = ctypes.c_long
    found = {}
    for graph in manifest.graphs.values():
        off, on = (_rise(counter, manifest, graph, arena) for arena in (False, True))
        found[graph.name] = off - on
    return found


def _rise(counter: Any, manifest: Manifest, graph: Graph, arena: bool) -> int:
    """Return the rise of live memory during the third run of a graph."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = arena
    options.enable_mem_pattern = graph.width == 1  # as the backend has it
    path = str(manifest.path / graph.file)
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    kept = []
    for tensors, bind in (
        (graph.inputs, binding.bind_input),
        (graph.outputs, binding.bind_output),
    ):
        for tensor in tensors:
            array = aligned_full(tensor.shape, tensor.dtype, 0)
            kept.append(array)
            bind(tensor.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    rise = 0
    for _ in range(3):  # the first two fill what is kept between runs
        before = counter.counted_live()
        counter.counted_reset()
        session._sess.run_with_iobinding(binding._iobinding, None)
        rise = counter.counted_peak() - before
    return rise


def times(manifest: Manifest, n_rounds: int) -> dict[str, float]:
    """Seconds of each graph, alone: the tenth percentile, since other work only adds to it."""
    from edgefold.runtime import Stream

    taken: dict[str, list[float]] = {name: [] for name in manifest.graphs}
    with Stream.open(manifest.path, backend="onnxruntime") as stream:
        for index in range(n_rounds + 3):
            for name, own in taken.items():
                stream.run_step(name)  # brings the graph's weights back into the caches
                start_s = time.perf_counter()
                stream.run_step(name)
                own.append(time.perf_counter() - start_s)
                if index < 3:
                    own.clear()
    return {name: sorted(own)[len(own) // 10] for name, own in taken.items()}


def ceilings() -> dict[str, float]:
    """Return the highest rates of this machine, with one thread."""
    import torch

    from benchmarks.machine_rates import measure_ceilings

    torch.set_num_threads(1)
    return asdict(measure_ceilings())


def main() -> None:
    """Print one answer."""
    what, *rest = sys.argv[1:]
    found: dict[str, Any]
    if what == "allocations":
        found = allocations(load_manifest(rest[0]))
    elif what == "times":
        found = times(load_manifest(rest[0]), int(rest[1]))
    else:
        found = ceilings()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
