"""Resealed bundles through the commands, each in a fork of its own.

A crash of onnxruntime must be answered with a line by `check` and `doctor`, which open a bundle in
a process of their own. Case n draws the bundle that case n of `attack.kinds.bundles` draws.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from attack.changes.graph_changes import CANARY
from attack.commands import Ended
from attack.kinds.bundles import draw
from attack.kinds.kills import Point, _rows, forked
from attack.outcomes import Outcome, random_of
from edgefold.cli.exit_codes import ExitCode

WAITS = True
ANSWERS = ("check", "doctor")
COMMANDS = (*ANSWERS, "run", "budget", "evaluate", "profile")


class Cases:
    """Cases of resealed bundles, each through one command."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._scratch = subjects, scratch
        (scratch / CANARY).write_bytes(bytes(1 << 16))
        (subjects / CANARY).write_bytes(bytes(1 << 16))
        (scratch / "in.csv").write_text(_rows("series"))

    def _command(self, number: int) -> str:
        random = random_of("bundle_commands", number)
        return COMMANDS[random.choice(len(COMMANDS), p=[0.4, 0.12, 0.2, 0.1, 0.1, 0.08])]

    def describe(self, number: int) -> str:
        """Say what is changed, and which command opens it."""
        return f"{self._command(number)}: {draw(number, self._subjects)[1]}"

    def play(self, number: int) -> Outcome:
        """Change a bundle and give it to a command."""
        return self.through(self._command(number), number)

    def through(self, command: str, number: int) -> Outcome:
        """Give a case's bundle to one command."""
        folder = self._scratch / "b"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        draw(number, self._subjects)[0].write(folder)
        for name in ("out.csv", "s.npz"):
            (self._scratch / name).unlink(missing_ok=True)
        rows = ("--input", str(self._scratch / "in.csv"))
        more = {
            "run": (*rows, "--output", str(self._scratch / "out.csv")),
            "budget": ("--device", "jetson-agx-orin-32gb"),
            "evaluate": ("--csv", rows[1]),
            "profile": ("--updates", "20", "--queries", "5", "--energy-seconds", "0.01"),
        }
        words = (command, str(folder), *more.get(command, ()))
        errors = self._scratch / "errors"
        code, _ = forked(words, Point("write", 0), errors, folder)
        outcome = Ended(code, "", errors.read_text(errors="replace")).judged()
        if command == "doctor" and outcome.verdict == "message" and code == ExitCode.MACHINE:
            outcome = Outcome("refused", f"exit code {code}")  # its table on stdout is the answer
        if outcome.verdict == "crash" and command in ANSWERS:
            return Outcome("crash unanswered", f"{command}: {outcome.detail}")
        return Outcome(outcome.verdict, f"{command}: {outcome.detail}")


def answers(subjects: Path, scratch: Path, numbers: list[int]) -> list[Outcome]:
    """Return the results of `check` on bundles that crashed onnxruntime in the fuzzer's process."""
    cases = Cases(subjects, scratch)
    return [cases.through("check", number) for number in numbers]
