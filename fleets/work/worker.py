"""Be a process of a crew: take units from a pipe, run them, and report what has become of them.

This module imports nothing large, because it must limit the threads of libraries before they are
loaded: as many processes run as there are processors, and each needs one.
"""

from __future__ import annotations

import os
import pickle
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import IO, Any

from edgefold.runtime.child_process import die_first

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_IO_THREADS")

# Reports: the rows done since the last, that a unit is done, or the error that ended it.
ADVANCED, DONE, FAILED = "advanced", "done", "failed"


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Run units until the pipe is closed; `edgefold.runtime.child_process` calls this.

    Args:
        request: Holds the number of the open pipe as `pipe`. stdin holds a pickled `JobSource`.
        answer: It is not used.
    """
    for name in ONE_THREAD:
        os.environ[name] = "1"
    die_first()
    source = pickle.load(sys.stdin.buffer)
    with Connection(request["pipe"]) as pipe:
        try:
            job = getattr(import_module(source.module), source.function)(source.setup)
            while True:
                try:
                    argument, place = pipe.recv()
                except EOFError:
                    return
                job.run(argument, place, lambda n: pipe.send((ADVANCED, n)))
                pipe.send((DONE, None))
        except Exception as error:  # the parent raises it again
            pipe.send((FAILED, portable(error)))


def portable(error: Exception) -> Exception:
    """Return the error, or one with the same words if it cannot be pickled and read again."""
    try:
        if isinstance(pickle.loads(pickle.dumps(error)), type(error)):
            return error
    except Exception:  # whatever a class of another library does
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")
