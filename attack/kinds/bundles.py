"""Resealed bundles: every hash and the seal are right, and something else is not.

Each is read, opened, driven and checked through the Python interface. A share goes through the
commands instead (`attack.commands`).
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attack.changes.array_changes import golden_bytes, golden_fields
from attack.changes.drafts import MANIFEST, Draft
from attack.changes.graph_changes import (
    CANARY,
    files,
    graph_bytes,
    graph_nodes,
    weight_bytes,
)
from attack.changes.manifest_changes import CHANGES
from attack.memory import Peak
from attack.outcomes import Outcome, random_of
from attack.subjects import NAMES
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import MOST_BYTES
from edgefold.runtime.checking.golden import check_bundle
from edgefold.runtime.errors import EdgefoldError, StepRefusedError

Random = np.random.Generator
Change = Callable[[Random, Draft], str]
MARGIN_BYTES = 8_000_000
"""Above what the plan says and what the unchanged subject takes above its own plan: blocks of an
allocator, and what the session of a graph with a node more holds.
"""
SHA256 = re.compile("[0-9a-f]{64}")
Figures = list[np.ndarray[Any, Any] | None]
"""Predictions of the calls of `drive`; None where a step was refused."""
STEERING = (
    *("schema", "n_streams", "points", "prediction", "capacity", "when_full"),
    *("consolidate_every", "state", "cache", "graphs", "weights"),
)
"""Sections of a manifest on which figures depend, besides the files of graphs and weights."""
SMALL = [name for name in NAMES if name != "co2"]
OTHERS: tuple[tuple[float, Change], ...] = (
    (0.08, graph_bytes),
    (0.22, graph_nodes),
    (0.03, weight_bytes),
    (0.03, golden_bytes),
    (0.10, golden_fields),
    (0.06, files),
)
"""Shares of the cases; the rest changes the manifest."""


def _chosen(random: Random, of: tuple[tuple[float, Change], ...], left: Change) -> Change:
    at = float(random.random())
    for share, change in of:
        at -= share
        if at < 0:
            return change
    return left


def change_manifest(random: Random, draft: Draft) -> str:
    """One change of the manifest."""
    return _chosen(random, CHANGES, CHANGES[0][1])(random, draft)


def draw(number: int, subjects: Path, kind: str = "bundles") -> tuple[Draft, str]:
    """A case's bundle and what was changed in it."""
    random = random_of(kind, number)
    names = [name for name in SMALL if (subjects / name).exists()]
    if random.random() < 0.005 and (subjects / "co2").exists():
        names = ["co2"]
    name = names[random.integers(len(names))]
    draft = Draft.of(subjects / name)
    n_changes = 1 if random.random() < 0.85 else int(random.integers(2, 4))
    done = []
    for index in range(n_changes):
        change = _chosen(random, OTHERS, change_manifest)
        try:
            done.append(change(random, draft))
        except Exception:
            if not index:  # only an earlier change can have taken away what this one needs
                raise
    return draft, f"{name}: {' | '.join(done)}"


class Cases:
    """Cases of resealed bundles, played through the Python interface."""

    def __init__(self, subjects: Path, scratch: Path):
        self._subjects, self._folder = subjects, scratch / "b"
        (scratch / CANARY).write_bytes(bytes(1 << 16))
        canary = subjects / CANARY
        if not canary.exists():
            canary.write_bytes(bytes(1 << 16))
        with Stream.open(subjects / "kalman") as stream:  # loads what every later case needs
            stream.update(None, [[0.0]])
        self._peak = Peak()
        self._known: dict[str, tuple[Figures, int]] = {}

    def describe(self, number: int) -> str:
        """Say what the case changes."""
        return draw(number, self._subjects)[1]

    def play(self, number: int) -> Outcome:
        """Read, open, drive and check a bundle."""
        draft, what = draw(number, self._subjects)
        figures, usual_bytes = self._unchanged(draft.source)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        draft.write(self._folder)
        self._peak.begin()
        # Of a manifest there are the bytes, the text, and the text that JSON makes of it.
        manifest = self._folder / MANIFEST
        n_bytes = min(manifest.stat().st_size, MOST_BYTES) if manifest.is_file() else 0
        allowed = MARGIN_BYTES + usual_bytes + 3 * n_bytes
        refusal = text = ""
        try:
            limit = 300_000_000 if number % 4 == 0 else None
            backend = "auto" if number % 8 == 1 else "onnxruntime"
            with Stream.open(self._folder, backend, memory_limit=limit) as stream:
                allowed += planned_bytes(stream.manifest)
                wrong = misfit(stream.manifest)
                if wrong:
                    return Outcome("wrong", wrong)
                wrong = unlike(draft, figures, drive(stream))
                if wrong:
                    return Outcome("wrong", wrong)
            report = check_bundle(self._folder, backend)
            worst = report.worst
            if report.passed and not worst <= 0.1:
                return Outcome("wrong", f"check passes an error of {worst:.0e}")
            if _reads_elsewhere(what):
                return Outcome("outside", "external data of another file was taken")
        except EdgefoldError as error:
            refusal = type(error).__name__
            text = str(error)
            if "\n" in text.strip():
                return Outcome("message", f"{refusal} of several lines")
            # A step that gave numbers that are not finite is named itself, not where they arose.
            of_figures = isinstance(error, StepRefusedError)
            if not of_figures and (name := unnamed(draft, text)):
                return Outcome("message", f"{refusal} does not name {name}: {text[:60]}")
        more = self._peak.end()
        if more > allowed:
            return Outcome("allocation", f"about {10 ** round(math.log10(more)) / 1e6:.0f} MB")
        return Outcome("refused", refusal) if refusal else Outcome("accepted")

    def _unchanged(self, subject: Path) -> tuple[Figures, int]:
        """Return a subject's own figures, and the bytes that it takes above its plan."""
        if subject.name not in self._known:
            figures: Figures = []
            for _ in range(2):  # a first session takes what later ones find
                self._peak.begin()
                with Stream.open(subject, "onnxruntime") as stream:
                    planned = planned_bytes(stream.manifest)
                    figures = drive(stream)
                check_bundle(subject, "onnxruntime")
                more = self._peak.end()
            self._known[subject.name] = figures, max(0, more - planned)
        return self._known[subject.name]


def is_without_effect(draft: Draft) -> bool:
    """Whether nothing was changed on which figures depend."""
    if draft.special or draft.texts or not draft.sealed:
        return False
    before = Draft.of(draft.source)
    names = {*draft.graphs, "weights.bin"} & set(draft.changed)
    if any(draft.changed[name] != before.bytes_of(name) for name in names):
        return False
    forms = [_steering(each.form) for each in (before, draft)]
    return bool(forms[0] == forms[1])


def _steering(form: Any) -> Any:
    sections = {name: form.get(name) for name in STEERING} if isinstance(form, dict) else form
    return sections, form.get("task", {}).get("features") if isinstance(form, dict) else None


def unlike(draft: Draft, before: Figures, after: Figures) -> str:
    """Return how the figures of an accepted bundle are wrong; "" if they may be so.

    A change without effect gives the very figures of the unchanged bundle. With any other change a
    prediction is finite where the unchanged bundle's is: others are refused.
    """
    if is_without_effect(draft):
        same = all(
            (a is None) == (b is None) and (a is None or b is None or np.array_equal(a, b))
            for a, b in zip(before, after, strict=True)
        )
        return "" if same else "other figures, though the change has no effect"
    for a, b in zip(before, after, strict=True):
        if a is not None and b is not None and np.isfinite(a).all() and np.isnan(b).any():
            return "a prediction of NaN was not refused"
    return ""


def unnamed(draft: Draft, text: str) -> str:
    """Return the changed file of which a refusal says nothing; "" if it names it.

    Only bundles with one changed graph or golden stream and an unchanged manifest are judged: there
    the place of the fault is known.
    """
    changed = {n for n, content in draft.changed.items() if content != _original(draft, n)}
    if len(changed) != 1 or changed == {"weights.bin"} or draft.special or draft.texts:
        return ""
    (name,) = changed
    sizes = {len(draft.changed[name]), len(_original(draft, name))}
    if not draft.sealed or _text_of(draft.form, sizes) != _text_of(_form(draft.source), sizes):
        return ""
    return "" if Path(name).stem in text else name


def _form(subject: Path) -> Any:
    return Draft.of(subject).form


def _original(draft: Draft, name: str) -> bytes:
    path = draft.source / name
    return path.read_bytes() if path.exists() else b""


def _text_of(form: Any, sizes: set[int]) -> str:
    """Return a manifest as text, in which 0 is not 0.0, without what sealing writes.

    Args:
        form: The manifest.
        sizes: Bytes of the changed file, before and after, one of which the manifest has to note.
    """
    return json.dumps(_unsealed(form, sizes), sort_keys=True)


def _unsealed(form: Any, sizes: set[int]) -> Any:
    if isinstance(form, list):
        return [_unsealed(value, sizes) for value in form]
    if not isinstance(form, dict):
        return form
    n_bytes = form.get("n_bytes")
    own = {"n_bytes"} if type(n_bytes) is int and n_bytes in sizes else set()
    found = {name: _unsealed(value, sizes) for name, value in form.items() if name not in own}
    if SHA256.fullmatch(str(form.get("sha256"))):
        found["sha256"] = "of the content"
    return found


def _reads_elsewhere(what: str) -> bool:
    """Whether a constant's data was moved into another file."""
    return " lies in " in what or (" with data in " in what and "data in weights.bin" not in what)


def planned_bytes(manifest: Manifest) -> int:
    """Bytes that the tensors' shapes explain, each buffer twice for the two sides."""
    total = 0
    for tensor in (*manifest.state, *manifest.cache):
        total += 2 * math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
    for graph in manifest.graphs.values():
        for tensor_ in (*graph.inputs, *graph.outputs):
            total += 4 * math.prod(tensor_.shape) * np.dtype(tensor_.dtype).itemsize
    return min(total, 200_000_000)


def misfit(manifest: Manifest) -> str:
    """Why a manifest that was accepted should not have been; empty if nothing is known."""
    columns = {
        "points.x": manifest.n_inputs,
        "targets.x": manifest.n_inputs,
        "points.y": manifest.n_outputs,
        "points.mask": 1,
    }
    for graph in manifest.graphs.values():
        rows = manifest.n_streams * graph.width
        for tensor in graph.inputs:
            if tensor.role in columns and math.prod(tensor.shape) != rows * columns[tensor.role]:
                return f"{tensor.role} of {graph.step} does not fit the columns"
    return ""


def drive(stream: Stream) -> Figures:
    """Learn some points one by one and together, and predict; return the predictions.

    The points are the same for every stream of as many columns.

    Raises:
        AssertionError: A prediction has another shape than the manifest says.
    """
    manifest, random, figures = stream.manifest, random_of("drive", 0), Figures()
    lead = () if manifest.n_streams == 1 else (manifest.n_streams,)

    def rows(n: int, columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
        return random.normal(size=(*lead, n, columns)) if columns else None

    for n in (1, 1, 6, 1):
        try:
            if manifest.is_filter:
                prediction = stream.step(rows(1, manifest.n_inputs))
                m = 1
            else:
                stream.update(rows(n, manifest.n_inputs), rows(n, manifest.n_outputs))
                m = min(manifest.targets, 2)
                prediction = stream.query(rows(m, manifest.n_inputs))
                m = m if manifest.n_inputs else 1
        except StepRefusedError:
            figures.append(None)
            continue
        for tensor in manifest.prediction_tensors:
            assert prediction.tensors[tensor.name].shape == (*lead, m, *tensor.shape)
        parts = [prediction.tensors[tensor.name].ravel() for tensor in manifest.prediction_tensors]
        figures.append(np.concatenate([part.astype(float) for part in parts]))
    return figures
