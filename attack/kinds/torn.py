"""Files as a power cut or a careless hand leaves them: cut, zeroed, with junk, with stale copies.

One file of a stopped run, of a training or of a bundle is spoiled at one place, then the command
goes on. It must end as an uninterrupted run does, or be refused in one line with every file kept.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from attack.commands import Ended
from attack.kinds.kills import Point, _rows, _run_words, _train_words, forked
from attack.kinds.rows import _same_snapshot
from attack.outcomes import Outcome, random_of

Random = np.random.Generator
WAITS = True
TARGETS = {
    "run": ("s.npz", "out.csv", "in.csv", "s.npz.lock"),
    "train": ("resume.safetensors", "model.safetensors", "config.json", "history.jsonl"),
    "check": ("manifest.json", "weights.bin", "golden.npz", "query.onnx", "update.onnx"),
}
SPOILT = ("cut", "zero tail", "zero page", "stale", "junk", "emptied", "gone", "half a line")


def spoil(random: Random, path: Path, how: str) -> str:
    """Spoil a file; returns what was done."""
    data = path.read_bytes() if path.exists() else b""
    place = int(random.integers(len(data) + 1))
    if how == "cut":
        path.write_bytes(data[:place])
        return f"{path.name} cut to {place} of {len(data)} bytes"
    if how == "zero tail":
        path.write_bytes(data[:place] + bytes(len(data) - place))
        return f"{path.name} is zero from byte {place} on"
    if how == "zero page":
        start = place // 512 * 512
        path.write_bytes(data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :])
        return f"{path.name} is zero from byte {start} to {start + 512}"
    if how == "stale":
        for name in (f"{path.name}.tmp", f"{path.name}.{random.integers(9, 9999)}.1.tmp"):
            path.with_name(name).write_bytes(random.bytes(place))
        return f"stale copies beside {path.name}"
    if how == "junk":
        junk = random.bytes(int(2 ** random.integers(0, 12)))
        path.write_bytes(data + junk)
        return f"{len(junk)} bytes of junk behind {path.name}"
    if how == "emptied":
        path.write_bytes(b"")
        return f"{path.name} is empty"
    if how == "gone":
        path.unlink(missing_ok=True)
        return f"{path.name} is gone"
    path.write_bytes(data + b"1,2")
    return f"half a line behind {path.name}"


class Cases:
    """Cases of spoilt files: six of ten of a run, the rest of a training and of a bundle."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._scratch = subjects, scratch
        self._kept = functools.cache(self._stopped)

    def _draw(self, number: int) -> tuple[str, tuple[Any, ...], str, str, Random]:
        random = random_of("torn", number)
        command = "run" if number % 10 < 6 else "check" if number % 10 < 8 else "train"
        setting = (("series", "points")[random.integers(2)], 7) if command == "run" else ()
        target = TARGETS[command][random.integers(len(TARGETS[command]))]
        return command, setting, target, SPOILT[random.integers(len(SPOILT))], random

    def describe(self, number: int) -> str:
        """Say which file of which command is spoilt, and how."""
        command, setting, target, how, _ = self._draw(number)
        return f"{command} {setting}: {target}: {how}"

    def _stopped(self, command: str, setting: tuple[Any, ...]) -> tuple[Path, Path]:
        """A command stopped half-way, and the same one finished."""
        place = self._scratch / f"{command}-{'-'.join(map(str, setting))}"
        half, whole = place / "half", place / "whole"
        whole.mkdir(parents=True)
        if command == "check":
            shutil.copytree(self._subjects / "kalman", whole / "bundle")
            shutil.copytree(whole, half)
            return half, whole
        if command == "run":
            (whole / "in.csv").write_text(_rows(setting[0]))
        start = shutil.copytree(whole, place / "start")
        _, total = self._forked(command, setting, whole, Point("line", 0))
        for part in (0.6, 0.75, 0.45, 0.9):
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(start, half)
            self._forked(command, setting, half, Point("line", int(part * total)))
            snapshot = half / ("s.npz" if command == "run" else "run/resume.safetensors")
            if snapshot.exists():
                return half, whole
        raise RuntimeError(f"{command} was not stopped half-way")

    def _forked(
        self, command: str, setting: tuple[Any, ...], folder: Path, point: Point
    ) -> tuple[int, int]:
        if command == "run":
            words = _run_words(self._subjects, folder, *setting)
        elif command == "train":
            words = _train_words(folder)
        else:
            words = ["check", str(folder / "bundle")]
        return forked(words, point, folder / "errors", folder)

    def _once(self, command: str, setting: tuple[Any, ...], folder: Path) -> Ended:
        code, _ = self._forked(command, setting, folder, Point("write", 0))
        return Ended(code, "", (folder / "errors").read_text(errors="replace"))

    def play(self, number: int) -> Outcome:
        """Spoil one file and go on."""
        command, setting, target, how, random = self._draw(number)
        half, whole = self._kept(command, setting)
        folder = self._scratch / "case"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(half, folder)
        place = folder / {"run": "", "train": "run", "check": "bundle"}[command] / target
        spoil(random, place, how)
        before = {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name != "errors"
        }
        ended = self._once(command, setting, folder)
        outcome = ended.judged()
        if outcome.failed or command == "check":
            if command == "check" and outcome.verdict == "accepted" and how not in ("stale",):
                same = (
                    place.exists() and place.read_bytes() == (half / "bundle" / target).read_bytes()
                )
                if not same:
                    return Outcome("wrong", f"check passes a {target} that was spoilt")
            return outcome
        if outcome.verdict == "refused":
            for name, content in before.items():
                path = folder / name
                lost = not path.exists() or not path.read_bytes().startswith(content[:64])
                if lost and not name.name.endswith((".tmp", ".lock")):
                    return Outcome("wrong", f"{command} was refused and changed {name.name}")
            return Outcome("refused", f"{command}, {target}")
        wrong = self._differs(command, folder, whole, target, how)
        return Outcome("wrong", wrong) if wrong else Outcome("resumed", f"{command}, {target}")

    def _differs(self, command: str, folder: Path, whole: Path, target: str, how: str) -> str:
        """Return the end's difference from an unspoilt one; empty if it is the same or allowed."""
        if command == "train":
            one, other = (of / "run/model.safetensors" for of in (folder, whole))
            form = json.loads((folder / "run/config.json").read_text())
            if form["training"]["steps_done"] < form["training"]["steps"]:
                return "training ended before its last step"
            return "" if one.read_bytes() == other.read_bytes() else "train: other weights"
        if target == "in.csv" and how != "stale":
            return ""  # rows behind the snapshot may be others; the run says what it skipped
        if (folder / "out.csv").read_bytes() != (whole / "out.csv").read_bytes():
            if target == "s.npz" and how == "gone":
                return ""  # refused where the output is there; begun again where it is not
            return f"run: another output after {how} of {target}"
        same = _same_snapshot(folder / "s.npz", whole / "s.npz")
        return "" if same else f"run: another state after {how} of {target}"
