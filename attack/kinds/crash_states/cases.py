"""Cut a run at a crash point, go on from a legal state of the disk, and compare the end.

Some cases cut or kill a run, then cut the run that goes on. After each cut the broker sends again
what it was not told to forget before the crash point; now and then it was restored from an older
database, and sends more.
"""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import pkgutil
import random as standard_random
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attack.kinds.crash_states.broker import Script, play_broker
from attack.kinds.crash_states.disk import Disk
from attack.kinds.crash_states.plans import Plan, draw_plan
from attack.kinds.crash_states.recording import Operation, Recording
from attack.outcomes import Outcome, random_of
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.runtime.trial.kept_rows import KeptRows

WAITS = True
N_OF_PLAN = 25
"""Number of cases that cut the same run."""
SELDOM = 1000
"""Lines per snapshot of runs that nothing cuts: the end does not depend on it."""
SENT_AGAIN = 15
"""A broker that was restored sends at most so many messages again that were acknowledged."""
LEFT_BEHIND = re.compile(r"s\.npz\.[0-9a-f]+-[0-9a-f]+\.tmp")
LAZY = (
    *("edgefold.cli.commands.run", "edgefold.cli.faster", "edgefold.runtime.brokers.own_messages"),
    *("edgefold.runtime.loop.adapters", "edgefold.runtime.loop.loop"),
    *("edgefold.runtime.loop.run_files", "edgefold.runtime.stream.stream"),
    *("edgefold.runtime.backends.host_memory", "edgefold.runtime.backends.native.backend"),
    *("edgefold.runtime.backends.native.wheel_libraries", "edgefold.runtime.child_process"),
    *(
        "edgefold.runtime.sensors.shipped_bundle",
        "edgefold.devices.nvidia",
        "numpy.fft",
        "numpy.ma",
    ),
)
FOLDERS = ("state", "out", "alarms")
ALL_REFUSED = "rows were all refused"
TRUE_WRITE = os.write

for _name in LAZY:  # the server imports, before it forks, what each run would import
    pkgutil.resolve_name(_name)


class Run(NamedTuple):
    """Holds the end of a run in a process of its own.

    Attributes:
        code: The exit code; negative for a signal.
        operations: What it did on the disk, if it was recorded.
        n_acknowledged: The number of messages that the broker forgot.
        errors: What it printed on stderr.
    """

    code: int
    operations: list[Operation]
    n_acknowledged: int
    errors: str


@dataclass(frozen=True, slots=True)
class Whole:
    """Holds a run that was recorded to its end.

    Attributes:
        plan: The run.
        n_before: The number of messages that the broker has forgotten before it.
        start: The files before it, by their paths.
        operations: What it did on the disk.
        end: The files after a run of the same messages that nothing cut and no connection broke.
        wrong: The fault of the recorded run; empty if there is none.
    """

    plan: Plan
    n_before: int
    start: dict[str, bytes]
    operations: list[Operation]
    end: dict[str, bytes]
    wrong: str


class Cases:
    """Cases of crash states: `N_OF_PLAN` in a row cut the same run."""

    def __init__(self, subjects: Path, scratch: Path):
        self._folder = Path(os.path.realpath(scratch)) / "case"
        self._saved = scratch / "states"
        self._whole = functools.lru_cache(1)(self._recorded)

    def describe(self, number: int) -> str:
        """Say which run is cut."""
        plan = draw_plan(random_of("crash_states", number // N_OF_PLAN))
        n_bytes = sum(len(payload) for _, payload in plan.messages)
        return (
            f"run sensors {' '.join(plan.words)} --every {plan.every}, "
            f"{len(plan.messages)} messages of {n_bytes:,} bytes, {plan.n_before} before, alarms "
            f"{plan.has_alarms}, folders {plan.has_folders}, breaks {sorted(plan.breaks)}"
        )

    def play(self, number: int) -> Outcome:
        """Cut a run, go on, and compare."""
        whole = self._whole(number // N_OF_PLAN)
        if whole.wrong:
            return Outcome("wrong", f"before any cut: {whole.wrong}")
        random = random_of("crash_states of one run", number)
        n_cuts = int(random.choice([1, 1, 1, 1, 2, 2, 3]))
        disk, operations, plan = Disk(whole.start), whole.operations, whole.plan
        passed: list[dict[str, bytes]] = []
        kinds = []
        for cut in range(n_cuts):
            is_last = cut == n_cuts - 1
            is_kill = not is_last and random.random() < 0.4
            disk.perform(operations[: crash_point(random, operations, is_kill)])
            first = disk.n_acknowledged or whole.n_before
            if not is_kill:
                kind, files = disk.after_power_cut(random)
                disk = Disk(files)
                if random.random() < 0.4:
                    first = max(0, first - int(random.integers(1, SENT_AGAIN)))
            else:
                kind, files = "killed", disk.files()
            disk.n_acknowledged = first
            kinds.append(kind)
            passed.append(files)
            self._restore(files)
            run = self._run(plan, plan.script(first), [number, cut], is_recorded=not is_last)
            wrong = self._fault(plan, run, len(plan.messages)) or (
                "" if is_last else self._not_recorded(files, run.operations)
            )
            if wrong:
                return self._failed(passed, whole, f"after {', then '.join(kinds)}: {wrong}")
            operations = run.operations
        wrong = self._other_end(whole)
        if wrong:
            return self._failed(passed, whole, f"after {', then '.join(kinds)}: {wrong}")
        return Outcome("resumed", f"{n_cuts} cuts")

    def _other_end(self, whole: Whole) -> str:
        """Return how the files of a run differ from those of one that nothing cut, "" if not."""
        found, end, aside = read(self._folder), whole.end, self._folder.parent / "kept"
        return difference(found, end, not whole.plan.has_bad) or (
            "other kept rows" if kept_rows(found, aside) != kept_rows(end, aside) else ""
        )

    def _failed(self, passed: Sequence[Mapping[str, bytes]], whole: Whole, why: str) -> Outcome:
        """Keep the states of a failed case, for whoever plays it with --keep."""
        shutil.rmtree(self._saved, ignore_errors=True)
        write(self._saved / "end", whole.end)
        for cut, files in enumerate(passed):
            write(self._saved / str(cut + 1), files)
        return Outcome("wrong", why.replace(f"{self._folder}/", ""))

    def _recorded(self, number: int) -> Whole:
        """Record the run of one plan, and run it once more with a broker that never breaks."""
        plan = draw_plan(random_of("crash_states", number))
        start, n_before = dict[str, bytes](), 0
        if plan.n_before:
            self._restore({})
            run = self._run(plan, plan.script(0, plan.n_before, False), [number, 90], every=SELDOM)
            if wrong := self._fault(plan, run, run.n_acknowledged):
                return Whole(plan, 0, {}, [], {}, f"first part: {wrong}")
            start, n_before = read(self._folder), run.n_acknowledged
        self._restore({})
        run = self._run(plan, plan.script(0, None, False), [number, 91], every=SELDOM)
        if wrong := self._fault(plan, run, len(plan.messages)):
            return Whole(plan, 0, {}, [], {}, wrong)
        end = read(self._folder)
        self._restore(start)
        run = self._run(plan, plan.script(n_before), [number, 92], True)
        wrong = self._fault(plan, run, len(plan.messages)) or self._not_recorded(
            start, run.operations
        )
        whole = Whole(plan, n_before, start, run.operations, end, wrong)
        return replace(whole, wrong=wrong or self._other_end(whole))

    def _restore(self, files: Mapping[str, bytes]) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for name in FOLDERS:
            (self._folder / name).mkdir(parents=True)
        write(self._folder, files)

    def _run(
        self,
        plan: Plan,
        script: Script,
        seed: Sequence[int],
        is_recorded: bool = False,
        every: int = 0,
    ) -> Run:
        """Run the command in a fork, with temporary names and identities of the seed.

        Args:
            plan: The run.
            script: What the broker sends.
            seed: The seed.
            is_recorded: Whether the operations on the disk are recorded.
            every: The number of lines per snapshot; 0 for that of the plan.
        """
        folder = self._folder

        def begin() -> Callable[[], Any]:
            own = standard_random.Random(str(seed))
            os.urandom = own.randbytes
            recording, forgotten = Recording(folder), [script.first]
            if is_recorded:
                recording.begin()

            def note(n: int) -> None:
                forgotten[0] = n
                recording.note_acknowledged(n)

            play_broker(script, note)
            return lambda: (recording.operations, forgotten[0])

        errors = folder.parent / "errors"
        code, passed = in_fork(plan.command(folder, every or plan.every), errors, begin)
        operations, n_acknowledged = passed or ([], 0)
        return Run(code, operations, n_acknowledged, errors.read_text(errors="replace"))

    def _fault(self, plan: Plan, run: Run, n: int) -> str:
        """Return the fault of a run that must go on to message `n`; empty if there is none.

        A run whose last 20 rows were all refused says so by its exit code; messages that come again
        are counted again.
        """
        is_refused = plan.has_bad and run.code == ExitCode.REFUSED and ALL_REFUSED in run.errors
        if run.code and not is_refused:
            last = (run.errors.splitlines() or [""])[-1]
            return f"exit code {run.code}: {last[:200]}"
        if run.n_acknowledged != n and any(self._folder.rglob("s.npz")):
            return "some messages are not acknowledged at the end"
        return ""

    def _not_recorded(self, start: Mapping[str, bytes], operations: list[Operation]) -> str:
        """Return the first file that the recorded operations get wrong; "" if all are right."""
        disk = Disk(start)
        disk.perform(operations)
        replayed, real = disk.files(), read(self._folder)
        names = sorted(name for name in {*replayed, *real} if replayed.get(name) != real.get(name))
        return f"the recorded operations give another {names[0]}" if names else ""


def crash_point(random: np.random.Generator, operations: Sequence[Operation], is_kill: bool) -> int:
    """Draw how many operations of a run come before the crash.

    Writes to one file in a row count as one here, or a new journal would take most of the cases.
    Half of the kills come right before the names of a folder are made sure.
    """
    starts = [
        place
        for place, operation in enumerate(operations)
        if not place
        or (operation.kind, operation.file) != ("write", operations[place - 1].file)
        or operations[place - 1].kind != "write"
    ]
    way = random.random()
    if is_kill and way < 0.5:
        starts = [n for n in starts if operations[n].kind == "sync folder"] or starts
        return starts[random.integers(len(starts))]
    if way < 0.3:  # right before something is made sure
        syncs = [n for n in starts if operations[n].kind.startswith("sync")]
        if syncs:
            return syncs[random.integers(len(syncs))]
    if way < 0.5:  # among the first steps
        starts = starts[:40]
    place = int(random.integers(len(starts)))
    first = starts[place]
    last = starts[place + 1] if place + 1 < len(starts) else len(operations)
    return int(random.integers(first, last + 1))


def in_fork(
    words: Sequence[str], errors: Path, begin: Callable[[], Callable[[], Any]]
) -> tuple[int, Any]:
    """Run a command in a fork.

    Args:
        words: The command's words.
        errors: The file that gets its stderr.
        begin: Function that is called in the fork before the command; it returns a function whose
            result, after the command, is handed back.

    Returns:
        The exit code, negative for a signal, and the result; None if the command ended early.
    """
    pipe, to_parent = os.pipe()
    pid = os.fork()
    if not pid:
        code = 70
        try:
            os.close(pipe)
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1) for n in (1, 2))
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            result = begin()
            try:
                code = int(main(list(words)))
            except SystemExit as ended:
                code = int(ended.code or 0)
            block = memoryview(pickle.dumps(result()))
            while block:
                block = block[TRUE_WRITE(to_parent, block) :]
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 70
        finally:
            os._exit(code)
    os.close(to_parent)
    with open(pipe, "rb") as file:
        passed = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, pickle.loads(passed) if passed else None


def read(folder: Path) -> dict[str, bytes]:
    """Return the content of each file by its path in the folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def difference(found: Mapping[str, bytes], wanted: Mapping[str, bytes], is_strict: bool) -> str:
    """Return how the files differ from those of a run that was never cut; empty if they do not.

    Args:
        found: The files of the run that was cut.
        wanted: The files of the other one.
        is_strict: Whether the counts of refused rows must be equal too.
    """
    if any(LEFT_BEHIND.search(name) for name in found):
        return "a temporary file of the snapshot stays"
    names = [
        sorted(name for name in files if not name.endswith((".tmp", ".journal.0", ".journal.1")))
        for files in (found, wanted)
    ]
    if names[0] != names[1]:
        return "other files"
    for name in names[0]:
        if name.endswith(".csv") and found[name] != wanted[name]:
            return f"another {Path(name).stem.partition('.')[0]}"
        if name.endswith(".npz") and (what := _other_state(found[name], wanted[name], is_strict)):
            return f"another {what} in the snapshot"
    return ""


def kept_rows(files: Mapping[str, bytes], aside: Path) -> list[tuple[str, tuple[float, ...]]]:
    """Return the rows that a run has kept for a candidate; [] without any.

    Args:
        files: The files of the run.
        aside: A folder for copies of them, which is emptied.
    """
    snapshot = next((name for name in files if name.endswith("s.npz")), "")
    if f"{snapshot}.rows.0" not in files:
        return []
    with np.load(io.BytesIO(files[snapshot])) as archive:
        mark = json.loads(archive["extra.loop"].tobytes())["rows"]
    shutil.rmtree(aside, ignore_errors=True)
    write(aside, {f"rows.{n}": files[f"{snapshot}.rows.{n}"] for n in (0, 1)})
    kept = KeptRows(aside / "rows", 0)
    kept.open(mark)
    try:
        return list(kept.rows())
    finally:
        kept.close()


def _other_state(one: bytes, other: bytes, is_strict: bool) -> str:
    with np.load(io.BytesIO(one)) as first, np.load(io.BytesIO(other)) as second:
        if first.files != second.files:
            return "list of arrays"
        for name in first.files:
            if name == "record":
                continue
            pair = [archive[name].tobytes() for archive in (first, second)]
            if name == "extra.loop":
                counts = [_counts(json.loads(content), is_strict) for content in pair]
                if counts[0] != counts[1]:
                    return "count"
            elif pair[0] != pair[1]:
                return str(name)
    return ""


def _counts(record: dict[str, Any], is_strict: bool) -> list[Any]:
    """Return what the loop's record counts, without what counts messages that came again."""
    counters = [record["counters"], *record.get("sensors", [])]
    dropped = {"lines"} if is_strict else {"lines", "malformed", "refused_in_a_row"}
    return [
        record.get("names"),
        *({k: v for k, v in c.items() if k not in dropped} for c in counters),
    ]
