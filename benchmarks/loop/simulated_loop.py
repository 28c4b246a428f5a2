"""Run `edgefold run sensors` as a process of its own, send it rows, harm it and measure it.

A life is one process, from its start to its end. A pipe leads to it, which the sender fills again
after each start from the row that the snapshot does not know.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from benchmarks.loop.simulated_rows import HEADER
from edgefold.runtime.loop.record import RECORD

LIMIT_S = 300.0
SAMPLE = re.compile(r"^edgefold_(\w+)\{(.*)\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Holds what a process takes at one moment.

    Attributes:
        pss_bytes: Its share of memory; pages of libraries count less if others use them too.
        rss_bytes: All of its pages.
        anonymous_bytes: Pages of its own: heap and stacks, of which no neighbour has a part.
        n_descriptors: Number of open descriptors.
        n_threads: Number of threads.
        written_bytes: Bytes that were written to storage since its start.
    """

    pss_bytes: int
    rss_bytes: int
    anonymous_bytes: int
    n_descriptors: int
    n_threads: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class End:
    """Holds how a life ended.

    Attributes:
        code: The exit code; negative for a signal.
        written_bytes: Bytes that the system counted for the process.
        metrics: The last metrics of the process, by name and labels; empty after a kill.
        errors: What it printed.
    """

    code: int
    written_bytes: int
    metrics: dict[str, float]
    errors: str


class Loop:
    """One loop, with its lives.

    Args:
        folder: Where output, snapshot and alarms are.
        memory: A folder for the metrics, and what the loop prints.
        words: Further words of the command.
        port: The port of the metrics; None opens none.
    """

    def __init__(self, folder: Path, memory: Path, words: list[str], port: int | None = None):
        self.folder, self.output, self.snapshot = folder, folder / "out.csv", folder / "state.npz"
        self._metrics, self._errors, self._port = memory / "metrics.prom", memory / "errors", port
        self._words = [
            *(sys.executable, "-m", "edgefold.cli.main", "run", "sensors", "--input", "-"),
            *("--output", str(self.output), "--snapshot", str(self.snapshot)),
            *("--alarms", str(folder / "alarms.csv"), "--metrics-file", str(self._metrics)),
            *(("--metrics", f"127.0.0.1:{port}") if port else ()),
            *words,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Return whether a life has begun and its end was not seen yet."""
        return self._process is not None

    def n_taken(self) -> int:
        """Return how many lines the snapshot knows."""
        counters = self.counters()
        return counters.get("rows", 0) + counters.get("malformed", 0)

    def start(self) -> None:
        """Begin a life."""
        self._metrics.unlink(missing_ok=True)
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stderr=errors)
        self.send([HEADER])

    def is_ready(self) -> bool:
        """Return whether the process is so far that a signal stops it with everything kept."""
        return self._metrics.exists()

    def send(self, lines: list[bytes]) -> bool:
        """Write lines into the pipe, as fast as the loop takes them; return whether it lives."""
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(b"".join(lines))
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def limit_files(self, n_bytes: int) -> None:
        """Let no file grow beyond so many bytes; the limit ends with the life."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (n_bytes, n_bytes))

    def kill(self) -> End:
        """Kill it at whatever it does."""
        self.signal(signal.SIGKILL)
        return self.end(False)

    def end(self, closes: bool = True) -> End:
        """Wait for the end of the life; close the pipe before, or after it."""
        process = self._process
        assert process is not None and process.stdin is not None
        if closes:
            self._close(process.stdin)
        until_s = time.monotonic() + LIMIT_S
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > until_s:
                process.kill()
                raise RuntimeError(f"no end in {LIMIT_S:g} s: {self._errors.read_text()[-2000:]}")
            time.sleep(0.01)
        written = _written_bytes(process.pid)  # of a process that ended and is not collected yet
        self._close(process.stdin)
        code = process.wait()
        metrics = self.metrics() if code == 0 else {}
        self._process = None
        return End(code, written, metrics, self._errors.read_text(errors="replace"))

    @staticmethod
    def _close(pipe: BinaryIO | Any) -> None:
        with suppress(BrokenPipeError):
            pipe.close()

    def footprint(self) -> Footprint:
        """Return what the process takes now."""
        folder = Path(f"/proc/{self.pid}")
        rollup = _fields(folder / "smaps_rollup")
        status = _fields(folder / "status")
        return Footprint(
            int(rollup["Pss"].split()[0]) * 1024,
            int(rollup["Rss"].split()[0]) * 1024,
            int(rollup["Anonymous"].split()[0]) * 1024,
            len(os.listdir(folder / "fd")),
            int(status["Threads"]),
            _written_bytes(self.pid),
        )

    def settled(self, n_threads: int) -> Footprint:
        """Return what the process takes once it has no more than `n_threads`, or after a while.

        A thread that answered a question for metrics may still be about to end.
        """
        for _ in range(20):
            found = self.footprint()
            if found.n_threads <= n_threads:
                break
            time.sleep(0.1)
        return found

    def metrics(self) -> dict[str, float]:
        """Return the metrics that the process wrote last, by name and labels without the loop's."""
        return _samples(self._metrics.read_text())

    def n_of_life(self) -> int:
        """Ask for the metrics at the port, and return how many lines this life has taken."""
        try:
            address = f"http://127.0.0.1:{self._port}/metrics"
            with urllib.request.urlopen(address, timeout=LIMIT_S) as answer:
                found = _samples(answer.read().decode())
        except OSError:
            return 0  # it does not listen yet
        counted = ("rows_learned_total", "rows_refused_total")
        return round(sum(n for name, n in found.items() if name.startswith(counted)))

    def counters(self) -> dict[str, int]:
        """Return the counts in the snapshot; nothing without one."""
        if not self.snapshot.exists():
            return {}
        with np.load(self.snapshot) as archive:
            found: dict[str, int] = json.loads(archive[f"extra.{RECORD}"].tobytes())["counters"]
        return found

    def finished(self) -> list[Path]:
        """Return the finished files of the output, the oldest first."""
        return sorted(self.folder.glob("out.[0-9]*.csv"))

    def kept_bytes(self) -> int:
        """Return the size of all files that the loop keeps, but for finished ones."""
        files = [path for path in self.folder.iterdir() if path not in self.finished()]
        return sum(path.stat().st_size for path in files if path.is_file())


def _samples(text: str) -> dict[str, float]:
    """Return metrics by name and labels; the label `loop` is left out."""
    return {
        ",".join([name, *sorted(p for p in labels.split(",") if not p.startswith("loop="))]):
        float(number)
        for name, labels, number in SAMPLE.findall(text)
    }  # fmt: skip


def _fields(path: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)


def _written_bytes(pid: int) -> int:
    return int(_fields(Path(f"/proc/{pid}/io"))["write_bytes"])
