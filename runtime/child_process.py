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
"""The current folder is removed from the path first, because its json.py would be imported."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a process: its exit code and its last words.

    Attributes:
        code: The exit code; a signal's number with a minus if a signal ended the process.
        said: The bytes that the process wrote on stderr; empty if it used the parent's stderr.
    """

    code: int
    said: bytes = b""

    @property
    def signal(self) -> str:
        """Name of the signal that ended the process, or ""."""
        with suppress(ValueError):
            return signal.Signals(-self.code).name
        return f"signal {-self.code}" if self.code < 0 else ""

    def describe(self) -> str:
        """Describe the end: the signal, or the exit code with the last line on stderr."""
        if self.signal:
            killed = ", as the kernel does when memory runs out"
            return f"was ended by {self.signal}{killed if self.signal == 'SIGKILL' else ''}"
        lines = self.said.decode(errors="replace").strip().splitlines()
        return f"ended with code {self.code}: {lines[-1] if lines else 'silent'}"


class Child:
    """A process that `child_process` started.

    Attributes:
        answer: A pipe with the child's answer; it ends when the process does.
    """

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes] | None):
        assert process.stdout is not None
        self.answer = process.stdout
        self._process, self._said = process, said

    def wait(self) -> Ending:
        """Wait for the end of the process."""
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
    """Start a child for the length of the block; at its end the child is killed.

    Args:
        module: Name of the module whose `main(request, answer)` the child calls.
        request: The request, of JSON values.
        more: Bytes that main may read from stdin.
        keep_stderr: Keep the child's stderr for its `Ending`; False lets it use the parent's.
        pass_fds: Open files that the child inherits under the same numbers.

    Raises:
        OSError: It does not start.
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
    """Call the module of the request; its answer goes to the original stdout."""
    import ctypes  # half a megabyte, which the parent need not have

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # systemd sends it to every process of a unit
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["parent"]:  # it died before
        os._exit(1)
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # libraries may print
        import_module(request["module"]).main(request, answer)


def die_first() -> None:
    """Ask the kernel to end this process before others where memory runs out."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
