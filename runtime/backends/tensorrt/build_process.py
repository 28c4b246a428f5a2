"""Build TensorRT's engine of a graph in a child process, whose end unloads the builder's libraries.

    parent ──stdin──>  a line of JSON, the timing cache      ──> child: parse, build, inspect
    parent <──stdout── a line of JSON, the plan (the serialized engine), the timing cache

The timing cache holds the times that TensorRT measured in earlier builds. TensorRT's builder loads
libraries of a gigabyte, and a loop that built its engines at its start would keep them in memory
for years. `edgefold.runtime.child_process` explains how the child starts and ends.
"""

from __future__ import annotations

import json
import math
import select
import sys
import time
from pathlib import Path
from typing import IO, Any

from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.builder import build_plan
from edgefold.runtime.backends.tensorrt.driver import Build
from edgefold.runtime.backends.tensorrt.variant import find_variant
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS
from edgefold.runtime.child_process import Ending, child_process
from edgefold.runtime.errors import BackendError

SMALLER = (
    "Close other programs, empty the page cache (sync; echo 3 | sudo tee "
    "/proc/sys/vm/drop_caches), or build with a smaller workspace and optimization level 0 "
    "(`edgefold engine --workspace 64MiB --optimization-level 0`)."
)
REPORT_EVERY_S = 60.0
_PASSED = ("workspace_bytes", "optimization_level", "compute_capabilities")


def build_in_child(variant: str, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
    """Build the engine of one graph in a child process, as `build_plan` does.

    Args:
        variant: The TensorRT to build with, "tensorrt" or "tensorrt_rtx".
        onnx: The graph's file.
        options: Only workspace, optimization level, compute capabilities, `build_timeout_s` and
            `progress` are used.
        timing: The timing cache of earlier builds; b"" without one.

    Raises:
        BackendError: `build_plan` failed or took longer than `build_timeout_s`; or the child did
            not start or ended too early: the message then holds the signal or the last line of
            stderr.
    """
    request = {
        "variant": variant,
        "onnx": str(onnx),
        "n_timing": len(timing),
        "options": {name: getattr(options, name) for name in _PASSED},
    }
    try:
        with child_process(__name__, request, timing) as child:
            _wait_for_answer(child.answer, onnx, options)
            answer = _read_answer(child.answer)
            ending = child.wait()
    except OSError as error:
        raise BackendError(
            f"the process that builds {onnx} does not start ({error.strerror}): TensorRT's "
            "engines are built by another Python process."
        ) from error
    if answer is None:
        raise BackendError(f"{onnx} was not built: {_explain(ending)}")
    if isinstance(answer, str):
        raise BackendError(answer)
    return answer


def _wait_for_answer(pipe: IO[bytes], onnx: Path, options: EngineOptions) -> None:
    """Wait until the child answers or ends; report each minute; raise BackendError after too long.

    The child is killed at the end of the block that started it.
    """
    begin_s, poll = time.monotonic(), select.poll()
    poll.register(pipe, select.POLLIN)
    left_s = options.build_timeout_s
    while not poll.poll(math.ceil(1e3 * min(left_s, REPORT_EVERY_S))):
        passed_s = time.monotonic() - begin_s
        left_s = options.build_timeout_s - passed_s
        if left_s <= 0:
            raise BackendError(
                f"TensorRT's engine of graph {onnx.stem} ({onnx}) was not built within "
                f"{options.build_timeout_s:g} s, so that its builder was ended. Build it with more "
                "time or less effort (`edgefold engine --build-timeout SECONDS "
                "--optimization-level 0`), or take another backend."
            )
        if options.progress:
            options.progress(
                f"still building the engine of {onnx.stem}, {passed_s:.0f} s so far, at most "
                f"{options.build_timeout_s:g} s"
            )


def _read_answer(pipe: IO[bytes]) -> Build | str | None:
    """Read the child's answer: the finished build, or the message of an error.

    Returns None if the child ended before it had answered.
    """
    try:
        head: dict[str, Any] = json.loads(pipe.readline())
        if "error" in head:
            return str(head["error"])
        plan, timing = pipe.read(head["n_plan"]), pipe.read(head["n_timing"])
        whole = (len(plan), len(timing)) == (head["n_plan"], head["n_timing"])
        return Build(plan, timing, head["facts"]) if whole else None
    except PARSE_ERRORS:
        return None


def _explain(ending: Ending) -> str:
    words = f"the builder's process {ending.describe()}"
    return f"{words}. {SMALLER}" if ending.signal else words


# The child ----------------------------------------------------------------------------------------


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Run in the child: build the engine that `build_in_child` requested.

    Args:
        request: The variant, path of the graph and options; the timing cache comes from stdin.
        answer: Pipe to the parent. A line of JSON, with the facts or the error, is written to it,
            then the engine and the new timing cache.
    """
    timing = sys.stdin.buffer.read(request["n_timing"])
    try:
        build = _build(request, timing)
    except BackendError as error:
        answer.write(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    head = {"n_plan": len(build.plan), "n_timing": len(build.timing), "facts": build.facts}
    answer.write(json.dumps(head).encode() + b"\n" + build.plan + build.timing)


def _build(request: dict[str, Any], timing: bytes) -> Build:
    passed = request["options"]
    targets = tuple(passed.pop("compute_capabilities"))
    options = EngineOptions(**passed, compute_capabilities=targets)
    return build_plan(find_variant(request["variant"]), Path(request["onnx"]), options, timing)
