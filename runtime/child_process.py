"""Run a module's `main` in a child Python process, whose crash does not end this process.

    parent ──stdin──>  a line of JSON, further bytes   ──> child: main(request, answer)
    parent <──stdout── what main writes into `answer`

The child is a new interpreter: nothing is forked from a process that holds a GPU or threads, and
the environment is the parent's. The child ignores the terminal's Ctrl-C and SIGTERM, because its
parent decides; it is killed when its parent stops waiting, and by the kernel when its parent dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

CHILD = (
    "import sys; sys.path = [place for place in sys.path if place]; import json; "
    "request = json.loads(sys.stdin.buffer.readline()); sys.path = request['path']; "
    "from edgefold.runtime.child_process import serve; serve(request)"
)
"""Holds the Python program of the child.

It removes the current folder from the path first, because a json.py there would be imported.
"""
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class Ending:
    """Describes how a child process ended: its exit code and what it wrote on stderr.

    Attributes:
        code: The exit code; minus the signal's number if a signal ended the process.
        said: The bytes that the process wrote on stderr; empty if it used the parent's stderr.
    """

    code: int
    said: bytes = b""

    @property
    def signal(self) -> str:
        """Return the name of the signal that ended the process, or "" if none did."""
        with suppress(ValueError):
            return signal.Signals(-self.code).name
        return f"signal {-self.code}" if self.code < 0 else ""

    def describe(self) -> str:
        """Describe in words how the process ended: by which signal, or with which exit code.

        With an exit code, the last line of stderr is quoted.
        """
        if self.signal:
            killed = ", as the kernel does when memory runs out"
            return f"was ended by {self.signal}{killed if self.signal == 'SIGKILL' else ''}"
        lines = self.said.decode(errors="replace").strip().splitlines()
        return f"ended with code {self.code}: {lines[-1] if lines else 'silent'}"


class Child:
    """Represents a running process that `child_process` started.

    Attributes:
        answer: The pipe from which the parent reads what the child answers; it ends when the
            process does.
    """

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes] | None):
        assert process.stdout is not None
        self.answer = process.stdout
        self._process, self._said = process, said

    @property
    def process_id(self) -> int:
        """Return the number that the system gave the process."""
        return self._process.pid

    def wait(self) -> Ending:
        """Wait until the process has ended, and describe how it ended."""
        code = self._process.wait()
        if self._said is None:
            return Ending(code)
        self._said.seek(0)
        return Ending(code, self._said.read())


@contextmanager
def child_process(
    module: str,
    request: dict[str, Any],
    more: bytes = b"",
    keep_stderr: bool = True,
    pass_fds: Sequence[int] = (),
) -> Iterator[Child]:
    """Start a child process for a `with` block; at the end of the block the child is killed.

    Args:
        module: Name of the module whose `main(request, answer)` the child calls.
        request: Arguments for `main`: a dictionary of JSON values.
        more: Bytes that `main` may read from stdin after the request.
        keep_stderr: True keeps what the child writes on stderr for its `Ending`; False lets the
            child write to the parent's stderr.
        pass_fds: Numbers of open files that the child inherits under the same numbers.

    Yields:
        The running child.

    Raises:
        OSError: The child does not start.
    """
    request = {**request, "path": sys.path, "parent": os.getpid(), "module": module}
    with ExitStack() as opened:
        said = None
        if keep_stderr:  # a pipe that nobody reads would stop it, and /tmp may be closed to us
            said = opened.enter_context(open(os.memfd_create("stderr"), "w+b"))
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
            pass_fds=pass_fds,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # its end and its last words say more
                process.stdin.write(json.dumps(request).encode() + b"\n" + more)
                process.stdin.close()
            yield Child(process, said)
        finally:  # also after Ctrl-C, or a signal's handler that raises
            process.kill()
            process.wait()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()


# The child ----------------------------------------------------------------------------------------


def serve(request: dict[str, Any]) -> None:
    """Call `main(request, answer)` of the module `request["module"]`; this runs in the child.

    `answer` is the pipe to the parent. Whatever else prints to stdout goes to stderr, so that it
    does not mix with the answer.
    """
    import ctypes  # half a megabyte, which the parent need not have

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # systemd sends it to every process of a unit
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["parent"]:  # it died before
        os._exit(1)
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # libraries may print
        import_module(request["module"]).main(request, answer)


def die_first() -> None:
    """Ask the kernel to end this process before all others when memory runs out."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
