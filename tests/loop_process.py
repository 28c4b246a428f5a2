"""`edgefold run` in a process of its own, for tests with brokers, boards and peers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.brokers import LIMIT_S, until


class LoopProcess:
    """A run in a process of its own, with an output and a snapshot in a folder.

    Args:
        folder: The folder of the run's files.
        source: The input.
        options: Further options.
        bundle: The bundle, by default the general model of sensors.
        stdin: What standard input is.
        environment: Further variables of the environment.

    Attributes:
        output: The output.
        errors: A file with what this run, and earlier ones in the folder, printed.
    """

    def __init__(
        self,
        folder: Path,
        source: str,
        *options: str,
        bundle: Path | str = "sensors",
        stdin: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        self.output, self.errors = folder / "out.csv", folder / "errors"
        words = [sys.executable, "-m", "edgefold.cli.main", "run", str(bundle), "--input", source]
        words += ["--output", str(self.output), "--snapshot", str(folder / "state.npz"), *options]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                words,
                stdin=stdin,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            )

    def wait_for(self, n_rows: int) -> None:
        def is_there() -> bool:
            assert self.process.poll() is None, self.errors.read_text()
            return self.output.exists() and self.output.read_bytes().count(b"\n") > n_rows

        until(is_there, f"{n_rows} rows of output")

    def wait_for_words(self, words: str) -> None:
        def are_there() -> bool:
            assert self.process.poll() is None, self.errors.read_text()
            return words in self.errors.read_text()

        until(are_there, f"the words {words!r}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        """End it if it still runs, whatever a test found."""
        self.process.kill()
        self.process.wait(LIMIT_S)
