"""Do lowered graphs cost what graphs written by hand cost?

CMANP's step graphs were once written node by node. This builds both, those of an older tree (in a
process of its own, with the same weights) and those that `edgefold.export.lowering` makes, and
prints for each graph: nodes as written, the largest difference of any output, and the ratio of
latencies (new / old; blocks of both in turn in one process, one thread, bound buffers).

    python -m benchmarks lowering --against ../old
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from edgefold.export.graphs.step_graphs import Sizes, StepGraph
from edgefold.export.lowering.steps import lower
from edgefold.runtime.arrays import aligned_full
from edgefold.runtime.backends.onnxruntime_session import open_session
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig, renamed

Array = NDArray[Any]

CHUNK, TARGETS = 32, 16
BLOCK_S = 0.003  # calls of one side in a row: long enough to warm its caches
PRESETS = {"small": {"n_blocks": 3, "n_latents": 32}, "paper": {}}

BUILD_OLD = """
import sys, torch
from pathlib import Path
from safetensors.torch import save_file
from edgefold.export.assemble import Sizes, build, write_graphs
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig
folder, dtype, settings = Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
sizes = Sizes(*map(int, sys.argv[4:]))
torch.manual_seed(0)
model = Cmanp(CmanpConfig(**settings)).eval()
for name, tensor in model.named_parameters():
    if "norm" in name:  # folding them must not be trivial
        torch.nn.init.normal_(tensor, float(name.endswith("weight")), 0.2)
save_file(dict(model.state_dict()), folder / "model.safetensors")
write_graphs(folder, build(model, sizes, dtype))
"""


class Session:
    """A graph with every tensor bound to a buffer of its own."""

    def __init__(self, data: bytes | str, values: Callable[[str, tuple[int, ...], Any], Array]):
        self._session = open_session(Path(data) if isinstance(data, str) else data)
        self._binding = self._session.io_binding()
        self._inputs: list[Array] = []
        self.outputs: dict[str, Array] = {}
        for tensor in self._session.get_inputs():
            array = values(tensor.name, tuple(tensor.shape), _dtype(tensor.type))
            self._inputs.append(array)
            self._bind(self._binding.bind_input, tensor.name, array)
        for tensor in self._session.get_outputs():
            array = aligned_full(tuple(tensor.shape), _dtype(tensor.type), 0)
            self.outputs[tensor.name] = array
            self._bind(self._binding.bind_output, tensor.name, array)
        run, low = self._session._sess.run_with_iobinding, self._binding._iobinding
        self.run: Callable[[], None] = lambda: run(low, None)

    @staticmethod
    def _bind(bind: Callable[..., None], name: str, array: Array) -> None:
        bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _dtype(kind: str) -> Any:
    names = {"float": "float32", "double": "float64"}
    inner = kind[len("tensor(") : -1]
    return np.dtype(names.get(inner, inner))


def inputs(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """The same numbers for both sides, whatever shape and type a graph gives an input."""
    random = np.random.default_rng(len(name) * 1000 + sum(name.encode()))
    values = random.standard_normal(int(np.prod(shape))).astype(np.float32)
    if name == "mask":
        values = (values > -0.5).astype(np.float32)
    if name.endswith("sums"):  # the last row of each head is a sum of weights
        values = np.abs(values) + 1
    array = aligned_full(shape, dtype, 0)
    array[...] = values.reshape(shape)
    return array


def race(old: Callable[[], None], new: Callable[[], None], blocks: int) -> tuple[float, float]:
    """Seconds of one old call, and the median ratio of new to old over pairs of blocks."""
    n = []
    for call in (old, new):
        for _ in range(5):
            call()
        start = time.perf_counter()
        call()
        n.append(max(2, int(BLOCK_S / (time.perf_counter() - start))))
    ratios, seconds = [], []
    for block in range(blocks):
        taken = {}
        for side in ((0, 1), (1, 0))[block % 2]:
            call, times = (old, new)[side], []
            call()
            for _ in range(n[side]):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            taken[side] = float(np.median(times))
        ratios.append(taken[1] / taken[0])
        seconds.append(taken[0])
    return float(np.median(seconds)), float(np.median(ratios))


def compare(old: Path, new: StepGraph, blocks: int) -> str:
    """A line of the table."""
    theirs = Session(str(old), inputs)
    ours = Session(new.model.SerializeToString(), inputs)
    theirs.run()
    ours.run()
    worst = 0.0
    assert np.isfinite(ours.outputs.get("finite", 0.0)).all()
    for name, expected in theirs.outputs.items():
        if name == "check":  # "finite" now; only whether it is finite matters
            continue
        a, b = (array.astype(np.float64).reshape(-1) for array in (expected, ours.outputs[name]))
        worst = max(worst, float(np.abs(a - b).max() / max(1.0, np.abs(a).max())))
    n_old, n_new = (
        len(onnx.load(old, load_external_data=False).graph.node),
        len(new.model.graph.node),
    )
    line = f"  {new.name:12s} nodes {n_old:4d} -> {n_new:4d}   difference {worst:.1e}"
    if blocks:
        seconds, ratio = race(theirs.run, ours.run, blocks)
        line += f"   {seconds * 1e6:8.1f} us   ratio {ratio:.3f}"
    return line


def run_case(
    against: Path, preset: str, embedding: str, streams: int, dtype: str, blocks: int
) -> None:
    """Build both sides of one configuration and print its graphs."""
    sizes = (CHUNK, TARGETS, streams)
    settings = {**PRESETS[preset], "embedding": embedding}
    with tempfile.TemporaryDirectory(prefix="edgefold-") as name:
        folder = Path(name)
        path = os.pathsep.join([str(against / "typings"), str(against)])
        subprocess.run(
            [sys.executable, "-c", BUILD_OLD, name, dtype, repr(settings), *map(str, sizes)],
            env={**os.environ, "PYTHONPATH": path},
            cwd=against,
            check=True,
        )
        model = Cmanp(CmanpConfig(**settings)).eval()  # type: ignore[arg-type]
        model.load_state_dict(renamed(load_file(folder / "model.safetensors")))
        start = time.perf_counter()
        made = lower(model, Sizes(*sizes), dtype)
        seconds = time.perf_counter() - start
        print(f"{preset}, {embedding}, {streams} streams, {dtype}: lowered in {seconds:.1f} s")
        for graph in made.steps:
            print(compare(folder / f"{graph.name}.onnx", graph, blocks), flush=True)


def main() -> None:
    """Compare every configuration asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--against", type=Path, required=True, help="a tree with export.assemble")
    parser.add_argument("--preset", choices=[*PRESETS], nargs="+", default=["small", "paper"])
    parser.add_argument("--embedding", nargs="+", default=["fourier", "mlp"])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--dtype", nargs="+", default=["float32", "float16"])
    parser.add_argument("--blocks", type=int, default=60, help="pairs of blocks; 0: no timing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for preset in args.preset:
        for embedding in args.embedding:
            for streams in args.streams:
                for dtype in args.dtype:
                    run_case(args.against.resolve(), preset, embedding, streams, dtype, args.blocks)


if __name__ == "__main__":
    main()
