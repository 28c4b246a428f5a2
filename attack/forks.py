"""Play many cases in forked processes: one that crashes or hangs costs one case.

    server (numpy and onnxruntime imported, no session) ──fork──> worker: some hundred cases
      notes what a worker reports; ends one that hangs; forks the next behind the case

A worker reports on a pipe which case begins and how it ended. A case hangs when it used `LIMIT_S`
seconds of processor time, or none in as many seconds, or `SLOW_S` went by, since loaded machines
are slow.
A kind whose cases only wait for processes of their own says so by `WAITS`, and has only `SLOW_S`.

    python -m attack.forks KIND SUBJECTS FIRST STOP [WORKERS]     prints one JSON line a case
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from attack.changes.array_changes import bomb
from attack.outcomes import Outcome, Tally, cause_of
from attack.subjects import ROOT
from edgefold.runtime.errors import EdgefoldError

LIMIT_S = 20.0
SLOW_S = 300.0
BATCH = 2000
HEAP_BYTES = 2_000_000_000
"""Bytes that a worker may allocate: far more than a subject needs, too few for a bomb."""
PROGRESS_S = 10.0
BOMBED = ("bundles", "builds", "bundle_commands", "snapshots")


class Attack(Protocol):
    """One kind of attack: a module of `attack` has a class `Cases` of this form.

    Args of the constructor: the subjects' folder and an empty folder of the worker's own.
    """

    def play(self, number: int) -> Outcome:
        """Play one case. An exception of EdgefoldError's tree counts as refused."""

    def describe(self, number: int) -> str:
        """Say what the case changes."""


def cases_of(kind: str, subjects: Path, scratch: Path) -> Attack:
    """The attack of a kind."""
    cases: Attack = importlib.import_module(f"attack.kinds.{kind}").Cases(subjects, scratch)
    return cases


def judged(attack: Attack, number: int) -> Outcome:
    """Play one case and judge what it raises."""
    try:
        return attack.play(number)
    except EdgefoldError as error:
        return Outcome("refused", type(error).__name__)
    except BaseException as error:
        return Outcome("traceback", cause_of(error))


@dataclass(slots=True)
class _Worker:
    """A forked process and what it has reported so far."""

    pid: int
    pipe: int
    stop: int
    number: int
    waits: bool
    cpu_s: float = 0.0
    begun_s: float = field(default_factory=time.monotonic)
    text: bytes = b""

    def spent_s(self) -> float:
        """Processor time of the worker since it began."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def begin(self, number: int) -> None:
        """Note that a case begins."""
        self.number, self.begun_s, self.cpu_s = number, time.monotonic(), self.spent_s()

    @property
    def hangs(self) -> bool:
        """Whether the present case takes too long."""
        waited_s = time.monotonic() - self.begun_s
        if waited_s < LIMIT_S or self.waits:
            return waited_s > SLOW_S
        used_s = self.spent_s() - self.cpu_s
        return used_s > LIMIT_S or used_s < 0.05 or waited_s > SLOW_S


def _fork(kind: str, subjects: Path, scratch: Path, numbers: range) -> _Worker:
    """Start a worker; it never returns here."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(write)
        waits = getattr(importlib.import_module(f"attack.kinds.{kind}"), "WAITS", False)
        return _Worker(pid, read, numbers.stop, numbers.start, waits)
    code = 1
    try:
        os.close(read)
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (HEAP_BYTES, HEAP_BYTES))
        folder = Path(tempfile.mkdtemp(dir=scratch))
        attack = cases_of(kind, subjects, folder)
        for number in numbers:
            os.write(write, b'{"begins": %d}\n' % number)
            outcome = judged(attack, number)
            line = json.dumps({"case": number, "end": [outcome.verdict, outcome.detail]})
            os.write(write, line.encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


def serve(
    kind: str, subjects: Path, first: int, stop: int, n_workers: int = 1
) -> Iterator[tuple[int, Outcome]]:
    """Play the cases from `first` to before `stop`; yields numbers and outcomes, in any order.

    Raises:
        RuntimeError: A worker ended outside of a case.
    """
    # Beside the subjects, so that unchanged files are linked and not copied.
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=subjects))
    batch = max(1, min(BATCH, -(-(stop - first) // n_workers)))
    waiting = [range(n, min(n + batch, stop)) for n in range(first, stop, batch)][::-1]
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < n_workers:
                workers.append(_fork(kind, subjects, scratch, waiting.pop()))
            ready = select.select([w.pipe for w in workers], [], [], 1.0)[0]
            for worker in list(workers):
                ended = False
                if worker.pipe in ready:
                    block = os.read(worker.pipe, 65536)
                    ended = not block
                    yield from _read(worker, block)
                if worker.hangs:
                    os.killpg(worker.pid, signal.SIGKILL)
                    worker.text, ended = b"hang", True
                if not ended:
                    continue
                workers.remove(worker)
                os.close(worker.pipe)
                code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
                if code == 0:
                    continue
                number = worker.number
                if worker.text == b"hang":
                    yield number, Outcome("hang")
                elif code < 0:
                    yield number, Outcome("crash", signal.Signals(-code).name)
                else:
                    raise RuntimeError(f"a worker ended with {code} at case {number} of {kind}")
                if number + 1 < worker.stop:
                    waiting.append(range(number + 1, worker.stop))
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
        shutil.rmtree(scratch, ignore_errors=True)


def _read(worker: _Worker, block: bytes) -> Iterator[tuple[int, Outcome]]:
    *lines, worker.text = (worker.text + block).split(b"\n")
    for line in lines:
        form = json.loads(line)
        if "begins" in form:
            worker.begin(form["begins"])
        else:
            yield form["case"], Outcome(*form["end"])


def play_all(kind: str, subjects: Path, n_cases: int, n_workers: int = 2, first: int = 0) -> Tally:
    """Play the first `n_cases` cases of a kind in a process of its own; shows progress on stderr.

    The server is a fresh process, because this one may have threads, which a fork does not copy.
    """
    command = [sys.executable, "-m", "attack.forks", kind, str(subjects)]
    command += [str(first), str(first + n_cases), str(n_workers)]
    tally, shown_s, start_s = Tally(), time.monotonic(), time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as server:
        assert server.stdout is not None
        for line in server.stdout:
            form = json.loads(line)
            tally.add(form["case"], Outcome(*form["end"]))
            if time.monotonic() - shown_s > PROGRESS_S:
                shown_s = time.monotonic()
                bad = sum(count for (v, d), count in tally.ends.items() if Outcome(v, d).failed)
                print(
                    f"{kind}: {tally.n_cases:,} of {n_cases:,} cases, {bad:,} failed, "
                    f"{shown_s - start_s:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    if server.returncode or tally.n_cases != n_cases:
        raise RuntimeError(
            f"{kind}: the server ended with {server.returncode} after {tally.n_cases} cases"
        )
    return tally


def main(argv: Sequence[str]) -> None:
    """Serve the cases of one kind, and print their ends."""
    kind, subjects, first, stop, *rest = argv
    importlib.import_module(f"attack.kinds.{kind}")
    if kind in BOMBED:
        bomb("")  # made once, for all workers
    for number, outcome in serve(
        kind, Path(subjects), int(first), int(stop), int(rest[0]) if rest else 1
    ):
        line = {"case": number, "end": [outcome.verdict, outcome.detail]}
        print(json.dumps(line), flush=False)
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
