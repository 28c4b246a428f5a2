"""Child of `native_others`: steps of a training run in ExecuTorch, timed when asked.

Usage: PYTHON -m benchmarks native_executorch_child RUN SECONDS STEP...

PYTHON has torch, this project and ExecuTorch. Each step is lowered to XNNPACK, what that does not
take stays with the portable kernels, on one thread. It prints `ready`; then, for each line of its
input, which names a step, the nanoseconds of a call in a block of about that many seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import torch

from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.lowering.declare import StepDeclarer
from edgefold.export.lowering.trace import trace
from edgefold.train.checkpoints import load_model


def compiled(run: Path, names: list[str]) -> dict[str, tuple[Any, list[Any], Any]]:
    """Methods of ExecuTorch, their inputs and the programs that they are of, by step."""
    exir: Any = importlib.import_module("executorch.exir")
    xnnpack: Any = importlib.import_module(
        "executorch.backends.xnnpack.partition.xnnpack_partitioner"
    )
    runtime: Any = importlib.import_module("executorch.runtime")
    threads: Any = importlib.import_module("executorch.extension.pybindings.portable_lib")
    threads._unsafe_reset_threadpool(1)  # loaded methods keep the threads that they found
    device = load_model(run)[0].for_device(1, "float32").eval()
    found = {}
    for step in StepDeclarer(device, Sizes(chunk=32, targets=16, streams=1)).steps():
        if step.name in names:
            lowered = exir.to_edge_transform_and_lower(
                trace(device, [step]), partitioner=[xnnpack.XnnpackPartitioner()]
            )
            program = runtime.Runtime.get().load_program(lowered.to_executorch().buffer)
            inputs = [tensor.clone() for tensor in step.examples]
            found[step.name] = program.load_method("forward"), inputs, program
    return found


def main() -> None:
    """Compile, then answer."""
    torch.set_num_threads(1)
    run, block_s, names = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    with contextlib.redirect_stdout(sys.stderr):
        methods = compiled(run, names)
    print("ready", flush=True)
    sizes = dict.fromkeys(names, 1)
    for line in sys.stdin:
        method, inputs, _ = methods[line.strip()]
        n = sizes[line.strip()]
        start = time.perf_counter_ns()
        for _ in range(n):
            method.execute(inputs)
        taken_ns = (time.perf_counter_ns() - start) / n
        sizes[line.strip()] = max(1, round(block_s * 1e9 / taken_ns))
        print(taken_ns, flush=True)


if __name__ == "__main__":
    main()
