"""Define the exit codes of commands: one for each kind of end, the same in all commands."""

from __future__ import annotations

import errno
from enum import IntEnum


class ExitCode(IntEnum):
    """Numbers each way in which a command can end, with a text on its meaning."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    DONE = 0, "done; what was asked holds"
    REFUSED = (
        1,
        "input refused: a bundle, file or board that is missing, not valid or not trusted",
    )
    USAGE = 2, "wrong usage: an option or a gate that does not exist or makes no sense"
    MISFIT = 3, "does not fit: a budget, or --memory-limit"
    UNSURE = 4, "unsure: a range holds the limit, or a figure is not known or was disturbed"
    WRONG_RESULT = 5, "wrong result: check or verify failed, or a gate or the baseline is exceeded"
    MACHINE = 6, "the machine failed: a backend, a sensor, a missing package, a full disk"
    BUG = 70, "a fault in edgefold; the traceback is on stderr"
    INTERRUPTED = 130, "interrupted with Ctrl-C (run and train save, and end with 0)"
    PIPE = 141, "the reader of the output went away"


def help_text() -> str:
    """Return the table of exit codes for `edgefold --help`."""
    lines = [f"  {code.value:<5}{code.meaning}" for code in ExitCode]
    return "\n".join(["exit codes, the same in all commands:", *lines])


def code_of(error: Exception) -> ExitCode:
    """Return the exit code for an error that ends a command."""
    from edgefold.runtime.errors import (
        BackendError,
        BoardFailedError,
        EdgefoldError,
        MemoryLimitError,
        MeterError,
        WorkError,
    )

    if isinstance(error, MemoryLimitError):
        return ExitCode.MISFIT
    causes = (OSError, ModuleNotFoundError)
    if isinstance(error, EdgefoldError) and isinstance(error.__cause__, causes):
        return code_of(error.__cause__)  # what the system said explains more than who reports it
    of_a_machine = (
        *(BackendError, BoardFailedError, MeterError, WorkError),
        *(MemoryError, ModuleNotFoundError),
    )
    if isinstance(error, of_a_machine):
        return ExitCode.MACHINE
    if isinstance(error, EdgefoldError):
        return ExitCode.REFUSED
    if isinstance(error, OSError) and error.strerror:
        return ExitCode.REFUSED if error.errno in _OF_THE_PATH else ExitCode.MACHINE
    return ExitCode.BUG


_OF_THE_PATH = {  # another path cures these; the rest is the machine's, such as a full disk
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENXIO),
}
