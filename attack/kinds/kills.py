"""SIGKILL of `run`, `export` and `train` at chosen points, and what the next runs make of it.

A process is forked with everything imported, runs the command, and kills itself before the k-th
line of the modules that keep files, before the k-th call that opens, renames or removes a file, or
in the middle of the k-th write. So every point between two changes of the disk is met, not only
those where time goes. Each case is killed some times in a row, then finished.

    run       output, counters and state equal those of a run that was never killed, byte for byte
    export    the old bundle or the new one lies there, never a mixture; nothing stays behind
    train     weights and history equal those of a run that was never killed
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgefold.cli.commands.export
import edgefold.cli.commands.run
import edgefold.cli.commands.train
import edgefold.export.bundle
import edgefold.runtime.loop.adapters
import edgefold.runtime.loop.loop
import edgefold.runtime.stream.stream
import edgefold.train.training_loop
from attack.kinds.rows import HAS_SENSORS, _same_snapshot
from attack.outcomes import Outcome, random_of
from attack.subjects import ROOT
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import EdgefoldError

torch.set_num_threads(1)  # imported before the server forks, with no threads of its own

KEEPERS = (
    *(
        "runtime/loop/",
        "runtime/sinks/",
        "runtime/sources/",
        "runtime/files.py",
        "runtime/stream/snapshot.py",
        "runtime/stream/stream.py",
        "runtime/stream/named_states.py",
        "runtime/sensors/engine.py",
    ),
    *("train/checkpoints.py", "train/training_loop.py", "export/bundle_files.py"),
    "export/bundle.py",
)
"""Modules that keep files or decide what is kept: a kill may come before each of their lines."""
EVENTS = {
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"),
    *("os.chmod", "shutil.rmtree", "tempfile.mkdtemp", "fcntl.flock"),
}
N_ROWS = 60
WAITS = True
WRITE = os.write
STEPS = 8


@dataclass(frozen=True, slots=True)
class Point:
    """The place where a process kills itself: the k-th "line", "event" or "write"; 0 is never."""

    way: str
    k: int


def forked(words: Sequence[str], point: Point, errors: Path, within: Path) -> tuple[int, int]:
    """Run a command in a fork; returns its exit code and how many points of that way it passed."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(read)
            handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1) for n in (1, 2))
            count = _watch(point, str(within))
            try:
                code = int(main(list(words)))
            except SystemExit as ended:
                code = int(ended.code or 0)
            sys.settrace(None)
            WRITE(write, json.dumps([count(), sorted(sys.modules)]).encode())
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 70
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        passed = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    n_passed, modules = json.loads(passed or "[0, []]")
    for name in modules:  # the next fork then begins where this one has loaded everything
        if name not in sys.modules and not name.startswith("__"):
            with suppress(Exception):
                importlib.import_module(name)
    return code, n_passed


def _watch(point: Point, within: str) -> Callable[[], int]:
    """Count the points of a way, and die at the k-th; returns the count so far."""
    count = 0

    def passed() -> None:
        nonlocal count
        count += 1
        if count == point.k:
            os.kill(os.getpid(), signal.SIGKILL)

    if point.way == "line":
        names: dict[str, bool] = {}

        def local(frame: Any, event: str, arg: Any) -> Any:
            if event == "line":
                passed()
            return local

        def trace(frame: Any, event: str, arg: Any) -> Any:
            name = frame.f_code.co_filename
            if name not in names:
                names[name] = any(keeper in name for keeper in KEEPERS)
            return local if names[name] else None

        sys.settrace(trace)
    elif point.way == "event":

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event in EVENTS and any(within in str(arg) for arg in args[:2]):
                passed()

        sys.addaudithook(hook)
    else:
        true_write, true_sync = os.write, os.fsync

        def torn(handle: int, data: Any) -> int:
            if handle > 2 and count + 1 == point.k:  # half of it reaches the file
                true_write(handle, bytes(data)[: len(data) // 2])
            if handle > 2:
                passed()
            return true_write(handle, data)

        def synced(handle: int) -> None:
            passed()
            true_sync(handle)

        os.write, os.fsync = torn, synced  # type: ignore[assignment]
    return lambda: count


class Cases:
    """Cases of killed commands: of ten, seven are of run, one and a half each of the others."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._scratch = subjects, scratch
        self._whole = functools.cache(self._uninterrupted)
        self._old = subjects / "kalman"

    def _draw(self, number: int) -> tuple[str, tuple[Any, ...], str, int, np.random.Generator]:
        random = random_of("kills", number)
        command = (*["run"] * 7, "export", "train", ("export", "train")[number // 10 % 2])[
            number % 10
        ]
        way = ("line", "line", "event", "write")[random.integers(4)]
        setting: tuple[Any, ...] = ()
        if command == "run":
            kinds = ["series", "points", *(["rotated", "sensors"] if HAS_SENSORS else [])]
            kinds += ["general", "general rotated"]
            every = (1, 3, 7, 20, 100)[random.integers(5)]
            setting = (kinds[random.integers(len(kinds))], int(every))
        return command, setting, way, int(random.integers(1, 4)), random

    def describe(self, number: int) -> str:
        """Say which command is killed, how often, and where."""
        command, setting, way, n_kills, _ = self._draw(number)
        return f"{command} {setting}, killed {n_kills} times at a {way}"

    def play(self, number: int) -> Outcome:
        """Kill a command some times, finish it, and compare."""
        command, setting, way, n_kills, random = self._draw(number)
        whole, totals = self._whole(command, setting)
        folder = self._scratch / "case"
        shutil.rmtree(folder, ignore_errors=True)
        self._begin(command, folder, setting)
        killed, total = 0, totals[way]
        done = False
        while killed < n_kills and not done:
            k = int(random.integers(1, max(2, total + 1)))
            code, _ = self._once(command, folder, setting, Point(way, k))
            if code == -signal.SIGKILL:
                killed += 1
                wrong = self._between(command, folder, whole)
                if wrong:
                    return Outcome("wrong", f"{command}: {wrong}")
                total = max(1, total - k // 2)
            elif code == 0:
                done = True
            else:
                return self._explained(command, folder, code)
        if not done:
            code, _ = self._once(command, folder, setting, Point("write", 0))
            if code:
                return self._explained(command, folder, code)
        wrong = self._differs(command, folder, whole)
        if wrong:
            return Outcome("wrong", f"{command}: {wrong}")
        return Outcome("resumed", f"{command}, {killed} kills")

    def _explained(self, command: str, folder: Path, code: int) -> Outcome:
        """A command that does not go on after a kill."""
        text = (folder / "errors").read_text(errors="replace")
        last = (text.splitlines() or [""])[-1].replace(str(folder), "")
        verdict = "traceback" if code == ExitCode.BUG or "Traceback" in text else "wrong"
        return Outcome(verdict, f"{command} does not go on after a kill: {last[:110]}")

    def _uninterrupted(self, command: str, setting: tuple[Any, ...]) -> tuple[Path, dict[str, int]]:
        """A run that is never killed, and how many points of each way it passes."""
        place = self._scratch / f"{command}-{'-'.join(map(str, setting))}"
        totals = {}
        for way in ("line", "event", "write"):
            shutil.rmtree(place, ignore_errors=True)
            self._begin(command, place, setting)
            code, totals[way] = self._once(command, place, setting, Point(way, 0))
            if code:
                raise RuntimeError((place / "errors").read_text())
        return place, totals

    def _begin(self, command: str, folder: Path, setting: tuple[Any, ...]) -> None:
        folder.mkdir()
        if command == "run":
            (folder / "in.csv").write_text(_rows(setting[0]))
        elif command == "export":
            shutil.copytree(self._old, folder / "bundle")

    def _once(
        self, command: str, folder: Path, setting: tuple[Any, ...], point: Point
    ) -> tuple[int, int]:
        if command == "run":
            words = _run_words(self._subjects, folder, *setting)
        elif command == "export":
            words = [
                *("export", str(ROOT / "examples/kalman.py:Kalman"), "--set", "level_std=0.2"),
                *("--chunk", "4", "--targets", "2", "--parity-steps", "24", "--force"),
                *("--out", str(folder / "bundle")),
            ]
        else:
            words = _train_words(folder)
        return forked(words, point, folder / "errors", folder)

    def _between(self, command: str, folder: Path, whole: Path) -> str:
        """Return the fault right after a kill; empty if nothing is wrong."""
        if command != "export":
            return ""
        place = folder / "bundle"
        if not (place / "manifest.json").exists():
            return "no bundle lies at its place after a kill"
        try:
            bundle_hash = load_manifest(place).bundle_hash
        except EdgefoldError as error:
            return f"a bundle that is not whole: {type(error).__name__}"
        expected = {load_manifest(path).bundle_hash for path in (self._old, whole / "bundle")}
        return "" if bundle_hash in expected else "another bundle than the old and the new one"

    def _differs(self, command: str, folder: Path, whole: Path) -> str:
        """Return the difference of the end from an uninterrupted run's; empty if it is the same."""
        if command == "run":
            outputs = [sorted(p.name for p in of.glob("out*")) for of in (folder, whole)]
            if outputs[0] != outputs[1]:
                return "other files of output"
            for name in outputs[0]:
                if (folder / name).read_bytes() != (whole / name).read_bytes():
                    return "another output"
            if not _same_snapshot(folder / "s.npz", whole / "s.npz"):
                return "another state or other counters"
            left = [p.name for p in folder.iterdir() if p.name.endswith(".tmp")]
            return "temporary files stay" if left else ""
        if command == "export":
            old, new = (load_manifest(of / "bundle").bundle_hash for of in (folder, whole))
            if old != new:
                return "another bundle"
            left = [path.name for path in folder.iterdir() if path.name not in ("bundle", "errors")]
            return "temporary folders stay" if left else ""
        for name in ("model.safetensors", "history.jsonl"):
            if (folder / "run" / name).read_bytes() != (whole / "run" / name).read_bytes():
                return f"another {name}"
        found_, new_ = (json.loads((of / "run/config.json").read_text()) for of in (folder, whole))
        for form in (found_, new_):
            form["training"].pop("duration_s")
            form["training"].pop("command")
        return "" if found_ == new_ else "another config.json"


def _rows(kind: str) -> str:
    """Rows with a bad one now and then."""
    random = np.random.default_rng(3)
    lines = ["x1,y1" if kind == "points" else "time,value"]
    is_general = kind.startswith("general")
    if kind == "sensors" or is_general:
        lines = ["time,sensor,value"]
    for i in range(N_ROWS):
        value = f"{20 + 3 * np.sin(i / 3):.3f}"
        if kind == "points":
            lines.append(f"{random.normal():.3f},{value}")
        elif kind == "sensors":
            lines.append(f"{i // 2},{'ab'[i % 2]},{value}")
        elif is_general:  # with a gap, a row without a value, and a clock that is set
            time = 1_700_000_000 + 60 * (i // 2 + 3 * (i > 30)) - 7200 * (i > 35)
            lines.append(f"{time},{'ab'[i % 2]},{'' if i == 20 else value}")
        else:
            lines.append(f"{i},{value}")
        if i % 17 == 9:
            lines.append("what,ever")
    return "\n".join(lines) + "\n"


def _run_words(subjects: Path, folder: Path, kind: str, every: int) -> list[str]:
    bundle = str(subjects / ("gru" if kind == "points" else "cmanp"))
    more = {"rotated": ["--rotate", "1kB"], "sensors": ["--stream", "sensor", "--streams", "3"]}
    if kind.startswith("general"):
        bundle, more[kind] = "sensors", ["--streams", "3", "--backend", "onnxruntime"]
        more[kind] += ["--time", "time", "--value", "value", "--stream", "sensor"]
        more[kind] += ["--rotate", "1kB"] * (kind == "general rotated")
    return [
        *("run", bundle, "--input", str(folder / "in.csv"), "--every", str(every)),
        *("--output", str(folder / "out.csv"), "--snapshot", str(folder / "s.npz")),
        *more.get(kind, []),
    ]


def _train_words(folder: Path) -> list[str]:
    """A start, or going on where a checkpoint is; a checkpoint after every second step."""
    place = folder / "run"
    command = edgefold.cli.commands.train
    if not hasattr(command, "often"):
        true_config = command.fit_config

        def often(*args: Any, **named: Any) -> Any:
            return replace(true_config(*args, **named), save_every_s=0.0, log_every=2)

        command.fit_config = often
        command.often = often  # type: ignore[attr-defined]
    sizes = ("n_blocks=1", "width=8", "n_heads=2", "n_latents=4", "feedforward=8")
    words = ["train", "gp", "--out", str(place), "--threads", "1"]
    if (place / "config.json").exists():
        return [*words, "--resume"]
    settings = [word for size in sizes for word in ("--set", size)]
    return [*words, "--steps", str(STEPS), "--batch", "2", "--warmup", "2", *settings]
