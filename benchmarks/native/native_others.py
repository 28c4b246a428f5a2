"""How fast are the same graphs as compiled by others?

The graphs update, query_one and refresh of the shipped bundle gp-paper, one thread, the machine's
own instructions. In each round all contenders take turns, each for a block of calls:

    native           as in `benchmarks.native.native_speed`: a loop in C
    onnxruntime      the same: run_with_iobinding, less an empty call of Python
    emx-onnx-cgen    C from ONNX, compiled with -O3, and once more with -ffast-math: a loop in C
    IREE             iree-compile for the host, -O3; iree-benchmark-module, one process a block
    ExecuTorch       the PyTorch steps of the same checkpoint by XNNPACK; a process of its own that
                     calls it from Python, which is a part of its time

The last three come from environments of their own, each named by the path of its Python; one that
is not named is left out, and the record says so:

    python -m venv /tmp/emx  && /tmp/emx/bin/pip install emx-onnx-cgen
    python -m venv /tmp/iree
    /tmp/iree/bin/pip install 'iree-base-compiler[onnx]' iree-base-runtime
    python -m venv /tmp/et   && /tmp/et/bin/pip install executorch torch, and this project
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.native.native_speed import BLOCK_S, call_ns, empty_call, from_python
from benchmarks.native.native_subjects import Pair, Rates, native_stream, pairs, write_bundle
from benchmarks.record import ROOT, arguments, conditions, finish, progress, spread
from benchmarks.tables import as_text
from edgefold.export.native.toolchain.compilers import Compiler, compile_library, find_compiler
from edgefold.runtime import Stream

QUESTION = "How fast are the same graphs as compiled by others?"
NAME = "gp-paper"
STEPS = ("update", "query_one", "refresh")
IREE_MIN_S = 0.02
EMX_FLAGS = {"emx-onnx-cgen": ("-O3",), "with -ffast-math": ("-O3", "-ffast-math")}
"""After those of our own builds."""
STACK_BYTES = 64 << 20
"""emx-onnx-cgen keeps all intermediates of a graph on the stack, refresh's in more than 8 MB."""

Timed = Callable[[], float]
"""Runs a block; returns nanoseconds of a call."""


def block(run: Callable[[int], None]) -> Timed:
    """Blocks of one length of what runs n times."""
    run(1)
    n = max(1, round(BLOCK_S * 1e9 / min(call_ns(run, 3) for _ in range(3))))
    return lambda: call_ns(run, n)


def whole(model: Path, folder: Path) -> Path:
    """A graph with its weights inside, as others read it."""
    out = folder / model.name
    onnx.save(onnx.load(model), out)
    return out


def named(pair: Pair, model: Path, kind: str) -> list[Any]:
    """The arrays of a graph's inputs or outputs, in the graph's own order."""
    theirs: Any = pair.theirs
    graph = onnx.load(model, load_external_data=False).graph
    return [theirs.buffers[value.name] for value in getattr(graph, kind)]


def emx(
    python: Path, flags: tuple[str, ...], pair: Pair, model: Path, folder: Path, rates: Rates
) -> Timed:
    """The graph as C of emx-onnx-cgen: no heap, all weights inside."""
    place = folder / f"emx-{len(flags)}-{model.stem}"
    place.mkdir()
    words = ["compile", "--model-name", "emx_model", "--large-temp-threshold", "0"]
    words += ["--large-weight-threshold", "0", str(model), str(place / "emx.c")]
    subprocess.run([python.with_name("emx-onnx-cgen"), *words], check=True, capture_output=True)
    arrays = [*named(pair, model, "input"), *named(pair, model, "output")]
    listed = ", ".join(f"tensors[{i}]" for i in range(len(arrays)))
    call = (
        "void emx_model();\nvoid emx_step(void *const *tensors, void *arena);\n"
        "void emx_step(void *const *tensors, void *arena)\n"
        f"{{\n    (void)arena;\n    emx_model({listed});\n}}\n"
    )
    files = {"step.c": call, "emx.c": (place / "emx.c").read_text()}
    library = ctypes.CDLL(str(compile_library(files, find_compiler(extra=flags), place)))
    tensors = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    bound = partial(library.emx_step, ctypes.addressof(tensors), 0)
    bound.keeps = tensors, arrays  # type: ignore[attr-defined]
    timed = block(rates.step(bound))
    return lambda keeps=bound: timed()  # type: ignore[misc]


def iree(python: Path, pair: Pair, model: Path, folder: Path) -> Timed:
    """The graph as a module of IREE."""
    mlir, module = folder / f"{model.stem}.mlir", folder / f"{model.stem}.vmfb"
    tools = python.parent
    imported = [str(tools / "iree-import-onnx"), str(model), "-o", str(mlir)]
    options = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    options += ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
    compile_it = [str(tools / "iree-compile"), str(mlir), *options, "-o", str(module)]
    for command in (imported, compile_it):
        subprocess.run(command, check=True, capture_output=True)
    given = []
    for index, array in enumerate(named(pair, model, "input")):
        path = folder / f"{model.stem}-{index}.npy"
        np.save(path, array)
        given.append(f"--input=@{path}")
    words = [f"--module={module}", f"--function={model.stem}", "--device=local-sync", *given]
    words += [f"--benchmark_min_time={IREE_MIN_S}s", "--benchmark_format=json"]

    def timed() -> float:
        command = [str(tools / "iree-benchmark-module"), *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        told = json.loads(done.stdout)["benchmarks"][0]
        scale = {"ns": 1.0, "us": 1e3, "ms": 1e6}[told["time_unit"]]
        return float(told["real_time"]) * scale

    return timed


@contextmanager
def executorch(python: Path) -> Iterator[dict[str, Timed]]:
    """The steps in ExecuTorch, in a process that waits to be asked."""
    words = ["-m", "benchmarks.native.native_executorch_child", str(ROOT / "checkpoints" / NAME)]
    with subprocess.Popen(
        [python, *words, str(BLOCK_S), *STEPS],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        answers, asked = child.stdout, child.stdin
        if answers.readline().strip() != "ready":
            raise RuntimeError(f"{python} has no ExecuTorch that runs these steps.")

        def timed(step: str) -> float:
            print(step, file=asked, flush=True)
            return float(answers.readline())

        yield {step: partial(timed, step) for step in STEPS}
        asked.close()


def version_of(python: Path, package: str) -> str:
    """The version of a package in another environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    told = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def contenders(
    args: argparse.Namespace, stack: ExitStack, folder: Path, compiler: Compiler
) -> dict[str, dict[str, Timed]]:
    """By step and contender, what runs a block."""
    bundle = write_bundle(NAME, folder)
    theirs = stack.enter_context(Stream.open(bundle, backend="onnxruntime"))
    ours = stack.enter_context(native_stream(bundle, compiler, folder / "native"))
    found, rates = pairs(theirs, {"own": ours}), Rates(compiler, folder / "rates")
    in_executorch: dict[str, Timed] = {}
    if args.executorch:
        progress("lowering for ExecuTorch")
        in_executorch = stack.enter_context(executorch(args.executorch))
    (folder / "whole").mkdir()
    by_step: dict[str, dict[str, Timed]] = {}
    for step in STEPS:
        pair, model = found[step], whole(bundle / f"{step}.onnx", folder / "whole")
        with_python, empty = block(from_python(pair.theirs)), block(empty_call())
        own: dict[str, Timed] = {
            "native": block(rates.step(pair.ours["own"])),
            "onnxruntime": lambda a=with_python, b=empty: a() - b(),  # type: ignore[misc]
        }
        if args.emx:
            progress(f"emx-onnx-cgen: {step}")
            for title, flags in EMX_FLAGS.items():
                own[title] = emx(args.emx, flags, pair, model, folder, rates)
        if args.iree:
            progress(f"IREE: {step}")
            own["IREE"] = iree(args.iree, pair, model, folder)
        if args.executorch:
            own["ExecuTorch"] = in_executorch[step]
        by_step[step] = own
    return by_step


def measure(args: argparse.Namespace, n_rounds: int) -> dict[str, Any]:
    """All contenders in turns."""
    compiler, steps = find_compiler(), {}
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder, ExitStack() as stack:
        for step, own in contenders(args, stack, Path(folder), compiler).items():
            progress(f"timing {step}")
            names = list(own)
            taken = {name: np.zeros(n_rounds) for name in names}
            for timed in own.values():
                timed()
            for turn in range(n_rounds):
                shift = turn % len(names)
                for name in names[shift:] + names[:shift]:
                    taken[name][turn] = own[name]()
            steps[step] = {
                name: {**spread(times), "ratio": float(np.median(times / taken["native"]))}
                for name, times in taken.items()
            }
    packages = {"emx": "emx-onnx-cgen", "iree": "iree-base-compiler", "executorch": "executorch"}
    asked = {package: getattr(args, option) for option, package in packages.items()}
    return {
        "compiler": [compiler.title, " ".join(compiler.flags)],
        "versions": {p: version_of(python, p) for p, python in asked.items() if python},
        "left_out": [package for package, python in asked.items() if not python],
        "steps": steps,
    }


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "native_others")
    for option in ("emx", "iree", "executorch"):
        parser.add_argument(f"--{option}", type=Path, metavar="PYTHON", help="see above")
    parser.add_argument("--rounds", type=int, default=51, help="rounds of turns; default 51")
    args = parser.parse_args()
    for option in ("emx", "iree", "executorch"):
        if not getattr(args, option):
            print(f"{option} is left out: --{option} names no Python that has it", file=sys.stderr)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, resource.RLIM_INFINITY))
    before = conditions()
    data = measure(args, 3 if args.quick else args.rounds)
    finish(args, "native_others", QUESTION, before, data, [], as_text)


if __name__ == "__main__":
    main()
