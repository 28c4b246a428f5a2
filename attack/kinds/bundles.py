"""Resealed bundles: every hash and the seal are right, and something else is not.

Each is read, opened, driven and checked through the Python interface. A share goes through the
commands instead (`attack.kinds.commands`).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attack.changes.array_changes import golden_bytes, golden_fields
from attack.changes.drafts import Draft
from attack.changes.graph_changes import (
    CANARY,
    files,
    graph_bytes,
    graph_nodes,
    weight_bytes,
)
from attack.changes.manifest_changes import CHANGES
from attack.kinds.memory import Peak
from attack.outcomes import Outcome, random_of
from attack.subjects import NAMES
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.checking.golden import check_bundle
from edgefold.runtime.errors import EdgefoldError, StepRefusedError

Random = np.random.Generator
Change = Callable[[Random, Draft], str]
MARGIN_BYTES = 64_000_000
"""Above what the plan says: a session's structures, its arena's blocks, and a graph's own nodes."""
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

    def describe(self, number: int) -> str:
        """Say what the case changes."""
        return draw(number, self._subjects)[1]

    def play(self, number: int) -> Outcome:
        """Read, open, drive and check a bundle."""
        draft, what = draw(number, self._subjects)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        draft.write(self._folder)
        self._peak.begin()
        allowed = MARGIN_BYTES
        refusal = ""
        try:
            limit = 300_000_000 if number % 4 == 0 else None
            backend = "auto" if number % 8 == 1 else "onnxruntime"
            with Stream.open(self._folder, backend, memory_limit=limit) as stream:
                allowed += planned_bytes(stream.manifest)
                wrong = misfit(stream.manifest)
                if wrong:
                    return Outcome("wrong", wrong)
                drive(stream, random_of("drive", number))
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
        more = self._peak.end()
        if more > allowed:
            return Outcome("allocation", f"about {10 ** round(math.log10(more)) / 1e6:.0f} MB")
        return Outcome("refused", refusal) if refusal else Outcome("accepted")


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


def drive(stream: Stream, random: Random) -> None:
    """Learn some points one by one and together, and predict.

    Raises:
        AssertionError: A prediction has another shape than the manifest says.
    """
    manifest = stream.manifest
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
            continue
        for tensor in manifest.prediction_tensors:
            assert prediction.tensors[tensor.name].shape == (*lead, m, *tensor.shape)
