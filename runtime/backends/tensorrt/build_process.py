"""Build an engine in a process of its own, so that the builder's libraries leave with it.

    parent ──stdin──>  a line of JSON, the timing cache      ──> child: parse, build, inspect
    parent <──stdout── a line of JSON, the plan, the timing cache

TensorRT's builder maps libraries of a gigabyte, and a loop that built its engines at its start
would keep them mapped for years. The child is a new interpreter: nothing is forked from a process
that holds a GPU or threads, and the environment is the parent's. It does not hear the terminal's
Ctrl-C nor SIGTERM, because its parent decides; it is killed when its parent stops waiting, and by
the kernel when its parent dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.builder import build_plan
from edgefold.runtime.backends.tensorrt.driver import Build
from edgefold.runtime.backends.tensorrt.variant import find_variant
from edgefold.runtime.errors import BackendError
from edgefold.runtime.manifest_file import PARSE_ERRORS

CHILD = (
    "import sys; sys.path = [place for place in sys.path if place]; import json; "
    "request = json.loads(sys.stdin.buffer.readline()); sys.path = request['path']; "
    "from edgefold.runtime.backends.tensorrt.build_process import main; main(request)"
)
"""The current folder is removed from the path first, because its json.py would be imported."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h
SMALLER = (
    "Close other programs, empty the page cache (sync; echo 3 | sudo tee "
    "/proc/sys/vm/drop_caches), or build with a smaller workspace and optimization level 0 "
    "(`edgefold engine --workspace 64MiB --optimization-level 0`)."
)
_PASSED = ("workspace_bytes", "optimization_level", "compute_capabilities")


def build_in_child(variant: str, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
    """Build one graph's engine in a child process; see `build_plan`.

    Args:
        variant: The TensorRT to build with, "tensorrt" or "tensorrt_rtx".
        onnx: The graph's file.
        options: Workspace, level and compute capabilities; the rest is ignored.
        timing: The timing cache of earlier builds, or nothing.

    Raises:
        BackendError: What `build_plan` raises; or the child does not start, or ended before it had
            built, with the signal or its last words.
    """
    request = {
        "path": sys.path,
        "parent": os.getpid(),
        "variant": variant,
        "onnx": str(onnx),
        "n_timing": len(timing),
        "options": {name: getattr(options, name) for name in _PASSED},
    }
    # A pipe that nobody reads would stop the child, and a service may have no folder to write to.
    with open(os.memfd_create("stderr"), "w+b") as said:
        try:
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            raise BackendError(
                f"the process that builds {onnx} does not start ({error.strerror}): TensorRT's "
                "engines are built by another Python process."
            ) from error
        assert child.stdin is not None and child.stdout is not None
        try:
            with suppress(BrokenPipeError):  # its end and its last words say more
                child.stdin.write(json.dumps(request).encode() + b"\n" + timing)
                child.stdin.close()
            answer = _read_answer(child.stdout)
            code = child.wait()
        finally:  # also after Ctrl-C, or a signal's handler that raises
            child.kill()
            child.wait()
            with suppress(BrokenPipeError):
                child.stdin.close()
            child.stdout.close()
        if answer is None:
            said.seek(0)
            raise BackendError(f"{onnx} was not built: {_ending(code, said.read())}")
    if isinstance(answer, str):
        raise BackendError(answer)
    return answer


def _read_answer(pipe: IO[bytes]) -> Build | str | None:
    """Return the build, or why there is none; None if the child ended before it had answered."""
    try:
        head: dict[str, Any] = json.loads(pipe.readline())
        if "error" in head:
            return str(head["error"])
        plan, timing = pipe.read(head["n_plan"]), pipe.read(head["n_timing"])
        whole = (len(plan), len(timing)) == (head["n_plan"], head["n_timing"])
        return Build(plan, timing, head["facts"]) if whole else None
    except PARSE_ERRORS:
        return None


def _ending(code: int, stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    if code >= 0:
        return f"the builder's process ended with code {code}: {lines[-1] if lines else 'silent'}"
    number = -code
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    words = f"the builder's process was ended by {name}"
    if number == signal.SIGKILL:
        words += ", as the kernel does when memory runs out"
    return f"{words}. {SMALLER}"


# The child ----------------------------------------------------------------------------------------


def main(request: dict[str, Any]) -> None:
    """Build what is asked on stdin, and answer on what stdout was at the start."""
    _end_with_parent(request["parent"])
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # libraries may print
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


def _end_with_parent(parent: int) -> None:
    """Leave signals to the parent, and die when the parent does."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # systemd sends it to every process of a unit
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)
