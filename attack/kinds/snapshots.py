"""Snapshots with other bytes, or with other content under a right checksum.

A refused snapshot must leave the stream as it was. One that is taken must hold the very state, if
only bytes changed; else its state must be finite, and predict or refuse. Three of ten cases go
through `edgefold run`, whose output must stay or continue.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attack.changes.array_changes import (
    change_archive,
    change_array,
    change_bytes,
    packed,
    read_arrays,
)
from attack.changes.drafts import places_of, value_at
from attack.changes.manifest_changes import ODD_NUMBERS, ODD_TEXTS
from attack.commands import call
from attack.kinds.bundles import drive
from attack.memory import Peak
from attack.outcomes import Outcome, random_of
from attack.subjects import NAMES
from edgefold.runtime import Stream
from edgefold.runtime.errors import EdgefoldError, SnapshotError

Random = np.random.Generator
Arrays = dict[str, Any]
MARGIN_BYTES = 64_000_000
N_FIRST, N_ROWS = 8, 12
RECORDS = {"record", "extra.loop"}
ODD: tuple[Any, ...] = (
    *(None, True, [], {}, [1], {"a": 1}, float("nan"), float("inf"), "0" * 64, [None] * 4),
    *ODD_NUMBERS,
    *(text for text in ODD_TEXTS if "\ud800" not in text),
)


def sealed(arrays: Arrays) -> bytes:
    """A snapshot of these arrays whose checksum is right; the record may be anything."""
    arrays = dict(arrays)
    try:
        form = json.loads(np.asarray(arrays.pop("record")).tobytes())
        form.pop("sha256", None)
        digest = hashlib.sha256(json.dumps(form, sort_keys=True).encode())
        for name in sorted(arrays):
            array = np.asarray(arrays[name])
            digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        form["sha256"] = digest.hexdigest()
        record: Any = np.frombuffer(json.dumps(form, sort_keys=True).encode(), np.uint8)
    except (AttributeError, TypeError, KeyError, ValueError):
        return packed(arrays)  # its record is gone, or is not an object: there is nothing to seal
    return packed({"record": record, **arrays})


def as_bytes(form: Any) -> Any:
    """JSON as an array of bytes."""
    return np.frombuffer(json.dumps(form).encode(), np.uint8)


def change_json(random: Random, form: Any) -> tuple[Any, str]:
    """Change one field of a record, or the whole of it."""
    form = copy.deepcopy(form)
    places = list(places_of(form))
    if random.random() < 0.03 or not places:
        value = ODD[random.integers(len(ODD))]
        return value, f"is {str(value)[:30]}"
    place = places[random.integers(len(places))]
    parent, key = value_at(form, place[:-1]), place[-1]
    pick = float(random.random())
    name = ".".join(map(str, place))
    if pick < 0.12:
        del parent[key]
        return form, f"lacks {name}"
    if pick < 0.3 and isinstance(parent[key], (int, float)):
        parent[key] += int(random.choice([-1, 1, 7, 1000, -1000]))
        return form, f"has {name} = {parent[key]}"
    if pick < 0.36 and isinstance(parent, dict):
        parent[f"{key}_"] = parent[key]
        return form, f"has {name} twice"
    if pick < 0.45:
        value = value_at(form, places[random.integers(len(places))])
        parent[key] = copy.deepcopy(value)
        return form, f"has {name} of another field"
    parent[key] = ODD[random.integers(len(ODD))]
    return form, f"has {name} = {str(parent[key])[:30]!r}"


def change_state(random: Random, array: Any) -> tuple[Any, str]:
    """Change numbers of an array, or its form."""
    pick = int(random.integers(6))
    if pick <= 2 and array.dtype.kind == "f" and array.size:
        changed = array.copy()
        value = (np.nan, np.inf, 1e38, -1e38, 1e-40, 1e300)[random.integers(6)]
        with np.errstate(over="ignore"):
            changed.reshape(-1)[int(random.integers(array.size))] = value
        return changed, f"holds {value}"
    if pick == 3 and array.dtype.kind in "iu" and array.size:
        changed = array.copy()
        info = np.iinfo(array.dtype)
        changed.reshape(-1)[0] = int(random.choice([info.min, info.max, 0]))
        return changed, "holds another integer"
    return change_array(random, array)


def change_content(random: Random, arrays: Arrays) -> tuple[bytes, str]:
    """Change what a snapshot holds, and seal it again."""
    arrays = dict(arrays)
    names = sorted(set(arrays) - RECORDS)
    pick = float(random.random())
    if pick < 0.2:
        form, what = change_json(random, json.loads(arrays["record"].tobytes()))
        arrays["record"] = as_bytes(form)
        return sealed(arrays), f"the record {what}"
    if pick < 0.5 and "extra.loop" in arrays:
        form, what = change_json(random, json.loads(arrays["extra.loop"].tobytes()))
        arrays["extra.loop"] = as_bytes(form)
        return sealed(arrays), f"the loop's record {what}"
    name = names[random.integers(len(names))]
    if pick < 0.56:
        del arrays[name]
        return sealed(arrays), f"{name} is missing"
    if pick < 0.6:
        arrays[f"{name}_"] = arrays[name]
        return sealed(arrays), f"{name} is there twice"
    if pick < 0.62:
        arrays[sorted(arrays)[random.integers(len(arrays))]] = random.integers(0, 255, 40, np.uint8)
        return sealed(arrays), "an array of random bytes"
    if pick < 0.65:
        arrays = {key: arrays[key] for key in reversed(arrays)}
        return sealed(arrays), "another order"
    arrays[name], what = change_state(random, arrays[name])
    return sealed(arrays), f"{name} {what}"


@dataclass(frozen=True, slots=True)
class Base:
    """One subject: a stream that is open, a snapshot of it, and a run that stopped half-way.

    Attributes:
        truth: The state's bytes in the snapshot, and the number of points.
        whole: The run's output had it not stopped.
    """

    stream: Stream
    saved: bytes
    truth: tuple[dict[str, bytes], int]
    words: list[str]
    looped: bytes
    output: bytes
    whole: bytes


def state_of(stream: Stream) -> tuple[dict[str, bytes], int]:
    """Everything that a stream knows, as bytes."""
    return {name: array.tobytes() for name, array in stream.state().items()}, stream.n_points


def rows_for(stream: Stream, n: int, seed: int = 0) -> list[str]:
    """A header and rows that a bundle's loop learns."""
    random, manifest = np.random.default_rng(seed), stream.manifest
    if manifest.task.get("name") == "series":
        dated = manifest.task["features"]["clock"] == "date"
        start = np.datetime64("2020-01-04")
        times = [str(start + 7 * i) if dated else str(i) for i in range(n)]
        values = 400 + 5 * np.sin(np.arange(n) / 3)
        return ["time,value", *(f"{t},{v:.3f}" for t, v in zip(times, values, strict=True))]
    n_outputs = 0 if manifest.is_filter else manifest.n_outputs
    header = [f"x{i + 1}" for i in range(manifest.n_inputs)] + [
        f"y{i + 1}" for i in range(n_outputs)
    ]
    numbers = random.normal(size=(n, len(header)))
    return [",".join(header), *(",".join(f"{v:.4f}" for v in row) for row in numbers)]


class Cases:
    """Cases of changed snapshots."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._folder = subjects, scratch
        self._names = [n for n in NAMES if (subjects / n).exists() and n != "co2"]
        self._peak = Peak()
        self._base = functools.cache(self._open)

    def _open(self, name: str) -> Base:
        stream = Stream.open(self._subjects / name)
        for _ in range(3):
            drive(stream)
        path = self._folder / "base.npz"
        stream.save(path, {"series_position": np.arange(4), "x": np.ones((2, 3))})
        saved, truth = path.read_bytes(), state_of(stream)
        words: list[str] = []
        looped = output = whole = b""
        if stream.manifest.n_streams == 1:
            lines = rows_for(stream, N_ROWS)
            words = self._words(name)
            files = [Path(word) for word in words[3::2]]
            source, out, snapshot = files
            for n in (N_FIRST, N_ROWS):
                source.write_text("\n".join(lines[: n + 1]) + "\n")
                if n == N_FIRST:
                    assert call([*words, "--every", "3"]).code == 0
                    looped, output = snapshot.read_bytes(), out.read_bytes()
                else:
                    assert call([*words, "--every", "3"]).code == 0
                    whole = out.read_bytes()
            for path in files[1:]:
                path.unlink()
        return Base(stream, saved, truth, [*words, "--every", "3"], looped, output, whole)

    def _words(self, name: str) -> list[str]:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return [
            *("run", str(self._subjects / name), "--input", str(folder / "in.csv")),
            *("--output", str(folder / "out.csv"), "--snapshot", str(folder / "s.npz")),
        ]

    def _draw(self, number: int) -> tuple[str, bool, Random, bool]:
        random = random_of("snapshots", number)
        name = self._names[random.integers(len(self._names))]
        through_run = bool(random.random() < 0.3) and name != "streams"
        return name, through_run, random, bool(random.random() < 0.25)

    def _changed(self, number: int) -> tuple[bytes, str, bool]:
        """A case's snapshot, what was changed, and whether only bytes were."""
        name, through_run, random, only_bytes = self._draw(number)
        base = self._base(name)
        content = base.looped if through_run else base.saved
        way = "run" if through_run else "restore"
        if only_bytes:
            if random.random() < 0.2:
                junk = random.bytes(int(2 ** random.integers(0, 14)))
                return content + junk, f"{name}, {way}: junk behind", True
            changed, what = change_bytes(random, content)
            return changed, f"{name}, {way}: {what}", True
        arrays = read_arrays(content)
        if random.random() < 0.05:
            changed, what = change_archive(random, arrays)
        elif random.random() < 0.02:
            other = self._names[random.integers(len(self._names))]
            changed, what = self._base(other).saved, f"the snapshot of {other}"
        else:
            changed, what = change_content(random, arrays)
        return changed, f"{name}, {way}: {what}", False

    def describe(self, number: int) -> str:
        """Say what the case changes."""
        return self._changed(number)[1]

    def play(self, number: int) -> Outcome:
        """Restore the changed snapshot, or resume a run from it."""
        content, _, only_bytes = self._changed(number)
        name, through_run, _, _ = self._draw(number)
        base = self._base(name)
        self._peak.begin()
        if through_run:
            outcome = self._resume(base, content, only_bytes)
        else:
            outcome = self._restore(base, content, only_bytes, number)
        if self._peak.end() > MARGIN_BYTES and not outcome.failed:
            return Outcome("allocation", "while a snapshot was read")
        return outcome

    def _restore(self, base: Base, content: bytes, only_bytes: bool, number: int) -> Outcome:
        path = self._folder / "changed.npz"
        path.write_bytes(content)
        stream = base.stream
        before = state_of(stream)
        try:
            stream.restore(path)
        except SnapshotError as error:
            if state_of(stream) != before:
                return Outcome("wrong", "a refused snapshot changed the state")
            if "\n" in str(error):
                return Outcome("message", "several lines")
            return Outcome("refused", "SnapshotError")
        if only_bytes and state_of(stream) != base.truth:
            return Outcome("wrong", "damaged bytes were taken as another state")
        sound = all(np.isfinite(a).all() for a in stream.state().values() if a.dtype.kind == "f")
        try:
            if not sound:
                return Outcome("wrong", "a state that is not finite was taken")
            drive(stream)
            stream.save(path)
            return Outcome("accepted")
        except EdgefoldError as error:
            return Outcome("accepted", f"then {type(error).__name__}")
        finally:
            path.write_bytes(base.saved)
            stream.restore(path)

    def _resume(self, base: Base, content: bytes, only_bytes: bool) -> Outcome:
        source, out, snapshot = (Path(word) for word in base.words[3:8:2])
        out.write_bytes(base.output)
        snapshot.write_bytes(content)
        rows = source.read_bytes()
        ended = call(base.words)
        outcome = ended.judged()
        output = out.read_bytes()
        if outcome.failed:
            return outcome
        if source.read_bytes() != rows:
            return Outcome("wrong", "the input was changed")
        if outcome.verdict == "refused":
            is_intact = snapshot.read_bytes() == content or "WARNING" in ended.err
            if not output.startswith(base.output) or not is_intact:
                return Outcome("wrong", "a refused run changed its files")
            return outcome
        if only_bytes and output != base.whole:
            return Outcome("wrong", "another output from damaged bytes")
        if not output.startswith(base.output.splitlines()[0]):
            return Outcome("wrong", "the output lost its header")
        return outcome
