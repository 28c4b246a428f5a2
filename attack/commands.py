"""Call the command line inside a process, and judge what it printed and how it ended."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from attack.outcomes import Outcome
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main

PASSED = {ExitCode.DONE, ExitCode.UNSURE, ExitCode.WRONG_RESULT}
"""Codes of commands that did their work, whatever they found."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command.

    Attributes:
        code: Its exit code; negative for a signal.
    """

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The line of its error, if there is one."""
        lines = [line for line in self.err.splitlines() if "error: " in line]
        return lines[-1] if lines else ""

    def judged(self) -> Outcome:
        """Refused or accepted, unless it printed a traceback or ended in no documented way."""
        if "Traceback (most recent call last)" in self.err or self.code == ExitCode.BUG:
            last = next((x for x in reversed(self.err.splitlines()) if "error:" not in x), "")
            return Outcome("traceback", last[:80])
        if self.code < 0:
            return Outcome("crash", f"signal {-self.code}")
        if self.code not in set(ExitCode):
            return Outcome("message", f"the exit code {self.code} is not documented")
        n_errors = sum("error: " in line for line in self.err.splitlines())
        warned = "WARNING" in self.err  # `run` ends with 1 when no row is learned any more
        if self.code not in PASSED and n_errors != 1 and not warned:
            return Outcome("message", f"{n_errors} lines of errors for the exit code {self.code}")
        return Outcome("accepted" if self.code in PASSED else "refused", f"exit code {self.code}")


def call(argv: Sequence[str]) -> Ended:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = int(main(list(argv)))
        except SystemExit as ended:  # wrong usage
            code = int(ended.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())
