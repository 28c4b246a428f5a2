"""Send simulated days to a loop, inject faults, and judge counts, output and state exactly.

    day ──> lines up to a fault ──> fault ──> lines from the one that the snapshot does not know ──>

`benchmarks.loop.simulated_days` sets the size, and draws the requirements.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loop.simulated_loop import End, Loop
from benchmarks.loop.simulated_output import OutputCheck, Sent
from benchmarks.loop.simulated_rows import LEARNED, MISSING, REFUSED, UNREADABLE, make_day
from benchmarks.loop.small_disk import SmallDisk
from benchmarks.record import progress
from edgefold.cli.exit_codes import ExitCode
from edgefold.runtime.loop.record import RECORD
from tests.brokers import free_port, until

DAYS, HZ, DAY_S, EVERY = 30, 10.0, 86_400.0, 3000
PART_BYTES = 10_000_000
AT_ONCE = 2000
CHECKED_EVERY = 6
"""Days from one that is learned again without interruption to the next such day."""
PROCESS = ("kill", "term", "end", "kill", "pause", "silence")
DISK = ("full", "read-only", "power cut")
CALM = ("pause", "silence")
SEED = 1
PAUSE_S = 0.5
FILE_LIMIT = 1 << 16
OF_LINES = ("lines", "malformed", "refused_in_a_row")
"""Counts that depend on lines that are left out where rows are learned again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds the size of a run.

    Attributes:
        n_days: Number of days.
        hz: Rows a second.
        day_s: Seconds of a day.
        every: Rows between two snapshots.
        part_bytes: Size at which a new output file begins.
    """

    n_days: int = DAYS
    hz: float = HZ
    day_s: float = DAY_S
    every: int = EVERY
    part_bytes: int = PART_BYTES

    def is_calm(self, number: int) -> bool:
        """Return whether the process lives through a day: those of the middle third."""
        third = self.n_days // 3
        return third <= number < 2 * third

    def faults(self, number: int, has_disk: bool) -> tuple[str, ...]:
        """Return the kinds of faults of a day's process and disk."""
        if self.is_calm(number):
            return CALM
        if not has_disk:
            return (*PROCESS, "full")
        return (*PROCESS, *(DISK if self.n_days == 1 else (DISK[number % len(DISK)],)))

    def words(self) -> list[str]:
        """Return the words of the command that depend on the size."""
        return ["--every", str(self.every), "--rotate", f"{self.part_bytes}B"]


QUICK = Plan(n_days=1, hz=4.0, day_s=3600.0, every=200, part_bytes=400_000)
"""An hour in which each fault happens."""


@dataclass(slots=True)
class Totals:
    """Holds what is counted over the whole run.

    Attributes:
        n_wrong_counts: Differences between counts of the loop and what was sent.
        n_wrong_ends: Lives that ended in another way than they had to.
        n_again: Number of rows that were learned again without interruption.
        n_stretches: Number of stretches in which they were.
        n_differing: Of these, the ones whose state, output or alarms differ.
        n_lives: Number of processes.
        n_clean: Of these, the ones that ended with all on the disk, whose metrics are compared.
        stated_bytes: What clean lives wrote by their own metrics.
        counted_bytes: What the system counted for the same lives.
        injected: Number of faults by kind.
    """

    n_wrong_counts: int = 0
    n_wrong_ends: int = 0
    n_again: int = 0
    n_stretches: int = 0
    n_differing: int = 0
    n_lives: int = 0
    n_clean: int = 0
    stated_bytes: float = 0.0
    counted_bytes: float = 0.0
    injected: dict[str, int] = field(default_factory=dict)


class SimulatedRun:
    """Sends all days to one loop, and injects the faults.

    Args:
        plan: The size of the run.
        folder: A folder for the loop's files, on a disk.
        memory: A folder for files that do not count.
        disk: The small disk on which `folder` is; None without one.

    Attributes:
        totals: Counts over the whole run.
        days: The figures of each day.
    """

    def __init__(self, plan: Plan, folder: Path, memory: Path, disk: SmallDisk | None):
        self._plan, self._memory, self._disk = plan, memory, disk
        self._loop = Loop(folder, memory, plan.words(), free_port())
        self._sent = Sent()
        self._check = OutputCheck(self._loop, self._sent)
        self._chance = random.Random(SEED)
        self._first = 0  # line with which the present life began
        self._written = 0  # bytes of the lives before
        self._kept = 0
        self._number = 0
        self._window: int | None = 0  # first line of those that are learned again
        self._opened = 0  # day on which that began
        self._is_last = False
        self.totals = Totals()
        self.days: list[dict[str, Any]] = []

    @property
    def n_output_lines(self) -> int:
        """Return how many lines of the output were compared and right."""
        return self._check.n_lines

    def conclude(self) -> None:
        """End the input, and compare all that was not compared yet."""
        self._is_last = True
        self._end(self._loop.end(), ExitCode.DONE)

    def close(self) -> None:
        """Kill the process, if it lives, so that its disk can be unmounted."""
        if self._loop.lives:
            self._loop.kill()

    def go(self, number: int) -> None:
        """Send one day, and measure at its end."""
        plan, start_s, self._number = self._plan, time.monotonic(), number
        kinds = plan.faults(number, self._disk is not None)
        day = make_day(SEED, number, plan.hz, plan.day_s, kinds)
        at = begin = self._sent.n
        self._sent.add(day)
        if not number:
            self._start()
        written, n_files, self._kept = self._all_written(), self._check.n_files, 0
        for fault in day.faults:
            self._send(at, begin + fault.at)
            at = self._inject(fault.kind, begin + fault.at)
        self._send(at, self._sent.n)
        n_of_life = self._sent.n - self._first
        until(lambda: self._loop.n_of_life() == n_of_life, f"{n_of_life:,} rows in the metrics")
        footprint = self._loop.settled(min((d["n_threads"] for d in self.days), default=0))
        written = self._all_written() - written
        injected = self.totals.injected
        for kind, n in [*day.injected.items(), *Counter(kinds).items()]:
            injected[kind] = injected.get(kind, 0) + n
        fates = Counter(day.fates)
        self.days.append(
            {
                "n_rows": len(day.lines),
                "n_refused": fates[REFUSED],
                "n_unreadable": fates[UNREADABLE],
                "n_without_value": fates[MISSING],
                "is_calm": plan.is_calm(number),
                **asdict(footprint),
                "written_bytes": written,
                "n_files": self._check.n_files - n_files,
                "kept_bytes": self._kept,
                "snapshot_bytes": self._loop.snapshot.stat().st_size,
                "taken_s": time.monotonic() - start_s,
            }
        )

    # Lives ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin a life with the line that the snapshot does not know."""
        self._first = self._loop.n_taken()
        self.totals.n_lives += 1
        self._loop.start()

    def _all_written(self) -> int:
        return self._written + (self._loop.footprint().written_bytes if self._loop.lives else 0)

    def _send(self, start: int, stop: int) -> None:
        """Send lines until the loop has ended, and compare the files that are finished."""
        for at in range(start, stop, AT_ONCE):
            if not self._loop.send(self._sent.lines(at, min(at + AT_ONCE, stop))):
                return
            self._check.finished()
            self._kept = max(self._kept, self._loop.kept_bytes())

    def _end(self, end: End, code: int) -> None:
        """Judge the end of a life, which must have this exit code."""
        totals = self.totals
        self._written += end.written_bytes
        if end.code != code:
            totals.n_wrong_ends += 1
            progress(f"exit code {end.code}, not {code}: {end.errors[-500:]}", True)
        if end.code != ExitCode.DONE:
            return
        n_taken, counters = self._loop.n_taken(), self._loop.counters()
        fates = Counter(self._sent.fates[self._first : n_taken])
        label = 'rows_{}_total{},series=""'.format
        self._require(end.metrics, {
            label("learned", ""): fates[LEARNED] + fates[MISSING],
            label("missing", ""): fates[MISSING],
            label("refused", ',kind="refused"'): fates[REFUSED],
            label("refused", ',kind="unreadable"'): fates[UNREADABLE],
            label("refused", ',kind="no slot"'): 0,
            label("refused", ',kind="pace"'): 0,
        })  # fmt: skip
        fates = Counter(self._sent.fates[:n_taken])
        self._require(counters, {
            "rows": fates[LEARNED] + fates[MISSING],
            "missing": fates[MISSING],
            "malformed": fates[REFUSED] + fates[UNREADABLE],
        })  # fmt: skip
        totals.n_clean += 1
        totals.stated_bytes += end.metrics["storage_written_bytes_total"]
        totals.counted_bytes += end.written_bytes
        self._check.all(n_taken)
        self._learn_again(n_taken)

    def _require(self, counts: Mapping[str, float], expected: Mapping[str, int]) -> None:
        """Count what differs from what was sent."""
        for name, n in expected.items():
            if counts.get(name, 0) != n:  # a life that took no row has no metrics of its series
                self.totals.n_wrong_counts += 1
                progress(f"{name} is {counts.get(name)}, {n} were sent", True)

    # Faults ---------------------------------------------------------------------------------------

    def _inject(self, kind: str, at: int) -> int:
        """Let a fault happen before a line; return the number of the line to go on with."""
        loop = self._loop
        if kind == "pause":
            loop.signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            loop.signal(signal.SIGCONT)
            return at
        if kind == "silence":
            time.sleep(PAUSE_S)
            return at
        if kind == "kill":
            time.sleep(self._chance.uniform(0.0, PAUSE_S))
            self._end(loop.kill(), -signal.SIGKILL)
        elif kind == "term":
            self._stop()
        elif kind == "end":
            self._end(loop.end(), ExitCode.DONE)
        else:
            self._harm_disk(kind, at)
        self._start()
        return self._first

    def _stop(self) -> None:
        """Stop the loop as a service is stopped."""
        until(self._loop.is_ready, "the start of the loop")
        self._loop.signal(signal.SIGTERM)
        self._end(self._loop.end(False), ExitCode.DONE)

    def _harm_disk(self, kind: str, at: int) -> None:
        """Let the disk fail until the loop has ended because of that, and work again."""
        loop, disk = self._loop, self._disk
        if disk is None:
            loop.limit_files(FILE_LIMIT)
            self._end_by_disk(at)
        elif kind == "full":
            disk.fill()
            self._end_by_disk(at)
            disk.free()
        elif kind == "power cut":
            time.sleep(self._chance.uniform(0.0, PAUSE_S))
            disk.cut_power()
            self._end_by_disk(at)
            disk.return_power()
        else:
            self._stop()
            disk.set_read_only(True)
            self._start()
            self._end_by_disk(self._first)
            disk.set_read_only(False)

    def _end_by_disk(self, at: int) -> None:
        """Send lines until the loop has ended because of its disk."""
        stop = min(self._sent.n, at + 2 * self._plan.every)
        self._loop.send(self._sent.lines(at, stop))
        self._end(self._loop.end(), ExitCode.MACHINE)

    # Without interruption -------------------------------------------------------------------------

    def _learn_again(self, n_taken: int) -> None:
        """Begin a stretch of rows that is learned again, or do so up to this line, if it is time.

        Call it when the loop has ended with everything on the disk.
        """
        number, again = self._number, self._memory / "again"
        if self._window is not None:
            n_half = (self._sent.n - self._window) // 2
            if number == self._opened and n_taken - self._window < n_half and not self._is_last:
                return
            self._compare(again, self._window, n_taken)
            self._window = None
            shutil.rmtree(again)
        elif (
            not self._is_last
            and number % CHECKED_EVERY == 0
            and number != self._opened
            and not self._plan.is_calm(number + 1)
        ):
            again.mkdir()
            for name in ("state.npz", "out.csv", "alarms.csv"):
                shutil.copy(self._loop.folder / name, again / name)
            self._check.sha = hashlib.sha256()
            self._window, self._opened = n_taken, number

    def _compare(self, folder: Path, start: int, stop: int) -> None:
        """Learn the lines again from a copy of the files, without those that cannot be read."""
        folder.mkdir(exist_ok=True)
        memory = self._memory / "again-metrics"
        memory.mkdir(exist_ok=True)
        loop, fates = Loop(folder, memory, self._plan.words()), self._sent.fates
        check = OutputCheck(loop, self._sent, start)
        loop.start()
        for at in range(start, stop, AT_ONCE):
            upto = min(at + AT_ONCE, stop)
            lines = zip(self._sent.lines(at, upto), fates[at:upto], strict=True)
            loop.send([line for line, fate in lines if fate != UNREADABLE])
            check.finished()
        end = loop.end()
        if end.code != ExitCode.DONE:
            raise RuntimeError(end.errors)
        check.all(stop)
        totals = self.totals
        totals.n_again += stop - start
        totals.n_stretches += 1
        is_same = (
            state_of(loop.snapshot) == state_of(self._loop.snapshot)
            and check.sha.digest() == self._check.sha.digest()
            and (folder / "alarms.csv").read_bytes()
            == (self._loop.folder / "alarms.csv").read_bytes()
        )
        totals.n_differing += not is_same
        progress(f"rows {start:,} to {stop:,} learned again: {'same' if is_same else 'DIFFERS'}")


def state_of(snapshot: Path) -> dict[str, bytes]:
    """Return what a loop has learned, and the counts of rows that it learned."""
    with np.load(snapshot) as archive:
        state = {name: archive[name].tobytes() for name in archive.files}
    del state["record"]  # it holds a digest of all, the place in the input included
    counters = json.loads(state.pop(f"extra.{RECORD}"))["counters"]
    own = {name: counters[name] for name in counters if name not in OF_LINES}
    return {**state, "counters": json.dumps(own, sort_keys=True).encode()}
