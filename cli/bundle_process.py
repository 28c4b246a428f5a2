"""Open a bundle in a process of its own, so that a crash becomes one line that people understand.

    parent ──request──> child: open the bundle, run it, compare
    parent <──answer─── what the work returned, or its error
    parent <──memory─── which graph is being opened or run now, and how many were before

A bundle's graphs are read by native code (onnxruntime, TensorRT), which may end its process or
never come back. The parent reads from the shared memory which graph it was. A child in which
nothing begins for the time limit is ended. Where memory runs out, the kernel is asked to end the
child before other programs.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import select
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from edgefold.cli.terminal import plain_warnings, say
from edgefold.runtime import errors
from edgefold.runtime.child_process import Child, Ending, child_process, die_first
from edgefold.runtime.errors import BackendError, BundleError, EdgefoldError, Remedy

TIME_LIMIT_MINUTES = 10.0  # TensorRT may build one graph for minutes on a small board
CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGTRAP")
"""Signals that end a process after a fault, such as an invalid address."""
OF_WHOM = (
    "Its files are as its manifest says. If you did not make it, do not use it; if you did, try "
    "another version of that library. Nothing here was changed."
)
DOING = {"load": "loading", "open": "opening", "bind": "binding", "run": "running"}
PLACE_BYTES = 512


@dataclass(frozen=True, slots=True)
class Place:
    """Describes how far a process has come with a bundle.

    Attributes:
        backend: Name of the backend; "" before the first is loaded.
        doing: Action in progress: "load", "open", "bind" or "run"; "" before anything began.
        name: Name of the graph, or of the backend that is loaded.
    """

    backend: str = ""
    doing: str = ""
    name: str = ""

    @property
    def is_in_a_graph(self) -> bool:
        """Return whether a graph of the bundle is in use, which can then cause a failure."""
        return self.doing not in ("", "load")

    def __str__(self) -> str:
        what = f"the graph {self.name}" if self.is_in_a_graph else self.name
        return f"{DOING.get(self.doing, 'reading')} {what or 'its manifest'}"


class SharedPlace:
    """Keeps a `Place` in memory that two processes share; it survives a crash of one of them.

    Attributes:
        handle: Number of the open memory file, which the child inherits.
    """

    def __init__(self, handle: int | None = None):
        self.handle = os.memfd_create("place") if handle is None else handle
        os.ftruncate(self.handle, PLACE_BYTES)
        self._memory = mmap.mmap(self.handle, PLACE_BYTES)
        self._n, self._backend = 0, ""

    def tell(self, doing: str, name: str) -> None:
        """Write into the shared memory which action begins, and the graph or backend it is for."""
        self._n += 1
        if doing == "load":
            self._backend = name
        line = f"{self._n} {self._backend} {doing} {name}".encode(errors="replace")[:PLACE_BYTES]
        self._memory[:] = line.ljust(PLACE_BYTES, b"\0")

    def read(self) -> tuple[str, Place]:
        """Return a number (as text) that grows with every action, and the latest place."""
        words = self._memory[:].rstrip(b"\0").decode(errors="replace").split(" ", 3)
        return words[0], Place(*words[1:])

    def close(self) -> None:
        self._memory.close()
        os.close(self.handle)


def in_child(work: Callable[[argparse.Namespace], Any], args: argparse.Namespace) -> Any:
    """Call a function of a module in a child process, with the command's options.

    Args:
        work: Function to call with `args`; it returns a value for JSON, and calls `args.watch` with
            each action that begins.
        args: Options of a command that opens a bundle, with `time_limit` in minutes; functions and
            trusted keys in it do not reach the child.

    Returns:
        The value that `work` returned.

    Raises:
        BundleError: The child crashed in one of the bundle's graphs, or nothing began for
            `args.time_limit` minutes.
        BackendError: The child crashed before, or does not start, or was killed.
        Exception: `work` raised this error in the child.
    """
    named = {name: value for name, value in vars(args).items() if not callable(value)}
    named.pop("trusted_key")  # judged before; what is left of it is `expect_hash`
    paths = [name for name, value in named.items() if isinstance(value, Path)]
    request: dict[str, Any] = {
        "work": [work.__module__, work.__name__],
        "args": named | {name: str(named[name]) for name in paths},
        "paths": paths,
    }
    place = SharedPlace()
    try:
        request["place"] = place.handle
        with child_process(__name__, request, keep_stderr=False, pass_fds=[place.handle]) as child:
            answer = _listen(child, place, args.time_limit * 60)
            ending = None if answer is None else child.wait()
    except OSError as error:
        raise BackendError(f"a process to open {args.bundle} does not start: {error}.") from error
    finally:
        _, last = place.read()
        place.close()
    if answer is None or ending is None:
        raise BundleError(
            f"{args.bundle} was given up: {last} took more than {args.time_limit:g} minutes. "
            "Nothing here was changed. If this machine is slow, give more with --time-limit."
        )
    try:
        reply = json.loads(answer)
    except ValueError:
        raise crash(args.bundle, last, ending) from None
    if "error" in reply:
        if getattr(args, "debug", False):
            say(reply["error"]["traceback"], end="")
        raise _error(reply["error"])
    return reply["done"]


def crash(bundle: str, place: Place, ending: Ending) -> EdgefoldError:
    """Return the error for a child process that ended without an answer.

    A crash in one of the bundle's graphs gives a BundleError, any other end a BackendError.

    Args:
        bundle: Folder of the bundle, for the message.
        place: Last action that the child began.
        ending: The child's exit code or signal.
    """
    words = f"the process {ending.describe()} while {place}"
    if place.is_in_a_graph and ending.signal in CRASHES:
        return BundleError(f"{bundle} crashes {place.backend}: {words}. {OF_WHOM}")
    return BackendError(f"{bundle} could not be opened: {words}. Nothing here was changed.")


def _listen(child: Child, place: SharedPlace, limit_s: float) -> bytes | None:
    """Return all bytes that a child writes; None if no action began in it for `limit_s` seconds."""
    read, begun, since_s = b"", place.read()[0], time.monotonic()
    while True:
        left_s = since_s + limit_s - time.monotonic()
        if select.select([child.answer], [], [], max(0.0, min(left_s, 1.0)))[0]:
            part = os.read(child.answer.fileno(), 1 << 16)
            if not part:
                return read
            read += part
        elif left_s <= 0:
            return None
        now = place.read()[0]
        if now != begun:
            begun, since_s = now, time.monotonic()


def _error(report: dict[str, Any]) -> Exception:
    """Return the exception for an error that the child reported by its class, message and more.

    An error of an unknown class becomes a RuntimeError, and its traceback is printed.
    """
    cause = OSError(*report["os_error"]) if report["os_error"] else None
    kind = getattr(errors, report["kind"], None)
    if kind is not None:
        remedies = [Remedy(**remedy) for remedy in report["remedies"]]
        error: Exception = kind(report["message"], *remedies)
        error.__cause__ = cause
        return error
    if cause is not None:
        return cause
    if report["kind"] == "MemoryError":
        return MemoryError()
    if report["kind"] == "ModuleNotFoundError":
        return ModuleNotFoundError(report["message"], name=report["module"])
    say(report["traceback"], end="")
    return RuntimeError(f"{report['kind']}: {report['message']}")


# The child ----------------------------------------------------------------------------------------


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Call a function with a command's options, and write its value or its error as JSON.

    Args:
        request: `work`, the names of a module and its function; `args`, the options by name;
            `paths`, names of options that are paths; `place`, number of the shared memory's file.
        answer: Pipe to the parent, which receives the JSON.
    """
    die_first()
    args = argparse.Namespace(**request["args"])
    for name in request["paths"]:
        setattr(args, name, Path(getattr(args, name)))
    args.watch = SharedPlace(request["place"]).tell
    module, work = request["work"]
    try:
        with plain_warnings():
            reply = {"done": getattr(import_module(module), work)(args)}
    except MemoryError:  # nothing may be left with which to describe it
        reply = {"error": {"kind": "MemoryError", "os_error": None, "traceback": ""}}
    except Exception as error:
        reply = {"error": _told(error)}
    answer.write(json.dumps(reply).encode())


def _told(error: Exception) -> dict[str, Any]:
    import traceback

    system = next((e for e in (error, error.__cause__) if isinstance(e, OSError)), None)
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "remedies": [asdict(remedy) for remedy in getattr(error, "remedies", ())],
        "os_error": [system.errno, system.strerror, system.filename] if system else None,
        "module": getattr(error, "name", None),
        "traceback": traceback.format_exc(),
    }
