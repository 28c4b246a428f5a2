"""Commands where machines are odd: limits, locales, paths, closed streams, pipes, missing rights.

Every case is a process of its own. It must end with a documented exit code and at most one line of
error; where it ends with 0, its output must equal that of an ordinary place.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attack.commands import Ended
from attack.kinds.kills import _rows
from attack.outcomes import Outcome
from attack.subjects import ROOT

LIMIT_S = 60.0
WAITS = True
MB = 1_000_000
HUNG = -1000


@dataclass(frozen=True, slots=True)
class Case:
    """One odd place.

    Attributes:
        limits: Of the process, by name.
        environment: Variables that are set, or removed where None.
        closed: Standard streams that are closed.
        folder: Name of the folder that everything lies in.
        words: The command; {b} is the bundle, {f} the folder.
        prepare: Called with the folder before.
        feed: Called with the process while it runs.
        python: Options of the interpreter.
        must_work: Whether it has to end with 0 and the ordinary output.
    """

    name: str
    words: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    closed: tuple[int, ...] = ()
    folder: bytes = b"f"
    prepare: Callable[[Path], None] | None = None
    feed: Callable[[Path, Any], None] | None = None
    python: tuple[str, ...] = ()
    must_work: bool = False
    wrapped: tuple[str, ...] = ()
    cwd_gone: bool = False


RUN = ("run", "{b}", "--input", "{f}/in.csv", "--output", "{f}/out.csv", "--snapshot", "{f}/s.npz")
CHECK = ("check", "{b}")
DOCTOR = ("doctor", "{b}")


def _fifo(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return prepare


def _slowly(folder: Path, process: Any) -> None:
    """Write the rows into the pipe in pieces that end inside lines."""
    with (folder / "in.csv").open("wb", 0) as pipe:
        data = _rows("series").encode()
        for start in range(0, len(data), 37):
            pipe.write(data[start : start + 37])
            time.sleep(0.005)


def _kill_later(number: int) -> Callable[[Path, Any], None]:
    def feed(folder: Path, process: Any) -> None:
        time.sleep(1.5)
        process.send_signal(number)

    return feed


def _drain(name: str) -> Callable[[Path, Any], None]:
    def feed(folder: Path, process: Any) -> None:
        (folder / "drained").write_bytes((folder / name).read_bytes())

    return feed


def _leave(folder: Path, process: Any) -> None:
    """A reader that takes some bytes and goes away."""
    with (folder / "out.csv").open("rb", 0) as pipe:
        pipe.read(20)


def _link(name: str, to: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(to.format(f=folder))

    return prepare


def _endless(folder: Path) -> None:
    (folder / "in.csv").unlink()
    (folder / "in.csv").symlink_to("/dev/zero")


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return prepare


def _make_folder(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).mkdir()

    return prepare


CASES: tuple[Case, ...] = (
    Case("an ordinary place", RUN, must_work=True),
    *(Case(f"{n} descriptors", RUN, limits={"NOFILE": n}) for n in (4, 5, 6, 8, 12)),
    Case("64 descriptors", RUN, limits={"NOFILE": 64}, must_work=True),
    *(Case(f"check with {n} descriptors", CHECK, limits={"NOFILE": n}) for n in (4, 6, 10)),
    *(Case(f"check on a stack of {n} kB", CHECK, limits={"STACK": n * 1024}) for n in (64, 256)),
    Case("a stack of 1 MB", RUN, limits={"STACK": 1024 * 1024}, must_work=True),
    *(Case(f"check in {n} MB of addresses", CHECK, limits={"AS": n * MB}) for n in (150, 250, 400)),
    *(Case(f"doctor in {n} MB of addresses", DOCTOR, limits={"AS": n * MB}) for n in (250, 500)),
    *(Case(f"files of {n} bytes", RUN, limits={"FSIZE": n}) for n in (0, 1, 100, 1000, 3000)),
    Case("no further process", CHECK, limits={"NPROC": 1}),
    Case("one second of processor time", RUN, limits={"CPU": 20}, must_work=True),
    Case("the locale C", RUN, environment={"LC_ALL": "C", "LANG": None}, must_work=True),
    Case(
        "the locale C without UTF-8",
        RUN,
        environment={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        must_work=True,
    ),
    Case("a locale that is not there", RUN, environment={"LC_ALL": "xx_XX.UTF-8"}, must_work=True),
    Case("ASCII streams", CHECK, environment={"PYTHONIOENCODING": "ascii:strict"}, must_work=True),
    Case("no home", RUN, environment={"HOME": None}, must_work=True),
    Case("a home that is not there", RUN, environment={"HOME": "/nonexistent"}, must_work=True),
    Case("a temporary folder that is not there", RUN, environment={"TMPDIR": "/nonexistent"}),
    Case("no environment", RUN, environment={"*": None}, must_work=True),
    Case("no PATH", DOCTOR, environment={"PATH": ""}),
    Case("a name of spaces", RUN, folder=b" a  b ", must_work=True),
    Case("a name with an accent", RUN, folder="é µ".encode(), must_work=True),
    Case("a name that is not UTF-8", RUN[:-2], folder=b"\xff\xe9", must_work=True),
    Case("a name that no snapshot can keep", RUN, folder=b"\xff\xe9"),
    Case("a bundle in a name that is not UTF-8", (*CHECK[:1], "{f}/b"), folder=b"\xff\xe9"),
    Case(
        "a bundle in an accent under C",
        (*CHECK[:1], "{f}/b"),
        folder="é".encode(),
        environment={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ),
    Case("a name with a newline", RUN, folder=b"a\nb", must_work=True),
    Case("a name with escapes", RUN, folder=b"a\x1b[31mb", must_work=True),
    Case("a name with quotes", RUN, folder=b"a'b\"c$(x)`y`", must_work=True),
    Case("a name of 250 letters", RUN, folder=b"x" * 250, must_work=True),
    Case("a snapshot's name that is too long", (*RUN[:-1], "{f}/" + "x" * 255)),
    Case("an output's name that is too long", (*RUN[:5], "{f}/" + "x" * 300, *RUN[6:])),
    Case("a name with NUL's neighbour", (*RUN[:5], "{f}/\x01\x02", *RUN[6:]), must_work=False),
    *(Case(f"stream {n} closed", RUN, closed=(n,), must_work=True) for n in (0, 1, 2)),
    Case("all streams closed", RUN, closed=(0, 1, 2), must_work=True),
    Case("check with stdout closed", CHECK, closed=(1,)),
    Case("doctor with all streams closed", DOCTOR, closed=(0, 1, 2)),
    Case("a slow pipe", RUN, prepare=_fifo("in.csv"), feed=_slowly, must_work=True),
    Case(
        "a pipe for output", RUN, prepare=_fifo("out.csv"), feed=_drain("out.csv"), must_work=False
    ),
    Case("a reader that goes away", RUN, prepare=_fifo("out.csv"), feed=_leave),
    Case("a pipe for a snapshot", RUN, prepare=_fifo("s.npz")),
    Case(
        "SIGTERM while nothing comes",
        RUN,
        prepare=_fifo("in.csv"),
        feed=_kill_later(signal.SIGTERM),
    ),
    Case("SIGTERM in an endless line", RUN, prepare=_endless, feed=_kill_later(signal.SIGTERM)),
    Case("SIGINT in an endless line", RUN, prepare=_endless, feed=_kill_later(signal.SIGINT)),
    Case("an output that is /dev/full", (*RUN[:5], "/dev/full", *RUN[6:])),
    Case("an output that is a folder", RUN, prepare=_make_folder("out.csv")),
    Case("a snapshot that is a folder", RUN, prepare=_make_folder("s.npz")),
    Case("a stale temporary folder", RUN, prepare=_make_folder("s.npz.tmp"), must_work=True),
    Case("a lock that is a folder", RUN, prepare=_make_folder("s.npz.lock")),
    Case("a snapshot that links to itself", RUN, prepare=_link("s.npz", "s.npz")),
    Case("a snapshot that links to the input", RUN, prepare=_link("s.npz", "{f}/in.csv")),
    Case("an output that links to the input", RUN, prepare=_link("out.csv", "{f}/in.csv")),
    Case("a snapshot of text", RUN, prepare=_write("s.npz", b"time,value\n1,2\n")),
    Case("an input of nothing", RUN, prepare=_write("in.csv", b"")),
    Case("an input of a header", RUN, prepare=_write("in.csv", b"time,value\n")),
    Case("a folder that is not there", (*RUN[:5], "{f}/no/out.csv", *RUN[6:])),
    Case("the folder was removed", ("check", "{b}"), cwd_gone=True, must_work=True),
    Case("one processor and two threads", ("check", "{b}", "--threads", "2"), wrapped=("cpu0",)),
    *(Case(f"python {' '.join(o)}", RUN, python=o, must_work=True) for o in (("-O",), ("-OO",))),
    Case("python -bb -W error", RUN, python=("-bb", "-W", "error"), must_work=True),
    Case("python -X dev", RUN, python=("-X", "dev"), must_work=True),
    Case(  # as the installed command starts, without the working folder on Python's path
        "a numpy.py beside",
        RUN,
        prepare=_write("numpy.py", b"raise SystemExit(9)"),
        python=("-P",),
        must_work=True,
    ),
)


class Cases:
    """The odd places, one process each."""

    def __init__(self, subjects: Path, scratch: Path):
        self._bundle, self._scratch = subjects / "cmanp", scratch
        self._expected: bytes | None = None

    def describe(self, number: int) -> str:
        """Say which place it is."""
        return CASES[number].name

    def play(self, number: int) -> Outcome:
        """Run one command in one odd place."""
        if self._expected is None:
            self._run(CASES[0], b"ordinary")
            self._expected = (self._scratch / "ordinary/out.csv").read_bytes()
        case = CASES[number]
        ended, folder = self._run(case, case.folder)
        if ended.code == HUNG:
            return Outcome("hang", case.name)
        outcome = ended.judged()
        if (outcome.failed or outcome.verdict == "crash") and not _python_starts(case):
            return Outcome("refused", f"{case.name}: Python itself does not start")
        if outcome.verdict == "refused" and case.must_work:
            return Outcome("wrong", f"{case.name}: {ended.error[:150]}")
        if outcome.failed or outcome.verdict == "crash":
            answered = outcome.verdict == "crash" and case.words[0] == "run"
            return Outcome(
                outcome.verdict if not answered else "crash", f"{case.name}: {outcome.detail}"
            )
        if case.must_work and case.words[0] == "run":
            if (folder / "out.csv").read_bytes() != self._expected:
                return Outcome("wrong", f"{case.name}: another output")
            return Outcome("accepted")
        return outcome

    def _run(self, case: Case, name: bytes) -> tuple[Ended, Path]:
        folder = Path(os.fsdecode(os.path.join(os.fsencode(self._scratch), name)))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copytree(self._bundle, folder / "b")
        (folder / "in.csv").write_text(_rows("series"))
        if case.prepare:
            case.prepare(folder)
        words = [word.format(b=self._bundle, f=folder) for word in case.words]
        command = [sys.executable, *case.python, "-m", "edgefold.cli.main", *words]
        process = subprocess.Popen(
            _started(case, command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,  # no file: its size may be limited
            env=_environment(case),
            cwd=folder,
            start_new_session=True,
        )
        if case.feed:
            threading.Thread(target=_fed, args=(case.feed, folder, process), daemon=True).start()
        try:
            _, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Ended(HUNG, "", ""), folder
        return Ended(process.returncode, "", err.decode(errors="replace")), folder


def _fed(feed: Callable[[Path, Any], None], folder: Path, process: Any) -> None:
    try:
        feed(folder, process)
    except OSError:  # the process went away first
        return


LAUNCHER = """
import json, os, resource, shutil, sys
limits, closed, gone, cpu, command = json.loads(sys.argv[1])
for name, value in limits.items():
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
if gone:
    os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
if cpu:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for stream in closed:
    os.close(stream)
os.execv(os.fsencode(command[0]), [os.fsencode(word) for word in command])
"""


def _started(case: Case, command: Sequence[str]) -> list[str]:
    """The command behind what sets its limits, closes its streams and changes its folder."""
    form = [case.limits, case.closed, case.cwd_gone, bool(case.wrapped), list(command)]
    return [sys.executable, "-X", "utf8", "-c", LAUNCHER, json.dumps(form)]


def _python_starts(case: Case) -> bool:
    """Whether a program that does nothing ends well in this place."""
    words = _started(case, [sys.executable, *case.python, "-c", "pass"])
    return not subprocess.run(
        words, env=_environment(case), check=False, capture_output=True, timeout=LIMIT_S
    ).returncode


def _environment(case: Case) -> dict[str, str]:
    path = f"{ROOT}/typings"
    if "*" in case.environment:
        return {"PYTHONPATH": path}
    base = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    for name, value in case.environment.items():
        if value is None:
            base.pop(name, None)
        else:
            base[name] = value
    return base
