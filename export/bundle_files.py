"""Write a bundle's files: graphs, one file of weights, the golden stream, and the manifest."""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from edgefold.export.counting.memory_plan import memory_plan
from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs
from edgefold.runtime.bundle.manifest import FILE_NAME, Scaling, StateTensor, WeightPlace
from edgefold.runtime.bundle.manifest_file import SCHEMA, with_checksum
from edgefold.runtime.bundle.signature import FILE_NAME as SIGNATURE
from edgefold.runtime.checking.golden import Golden
from edgefold.runtime.errors import ExportError
from edgefold.runtime.files import lock_file, sync
from edgefold.runtime.hashing import sha256_of
from edgefold.runtime.predictions import PredictionKind

WEIGHTS = "weights.bin"
ALIGNMENT = 4096  # bytes: onnxruntime maps the file, page by page
INLINE_BYTES = 256  # smaller constants (shapes, scalars) stay inside the graph
_BEING_MADE = ".export-"
AT_FDCWD, EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
PACKAGES = ("edgefold", "torch", "onnx", "onnxscript", "onnx-ir")

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ExportSubject:
    """Describes an exported model, apart from its graphs.

    Attributes:
        model: The model's name, summary, n_parameters and settings, for reports.
        task: The description of the task that the model was trained on.
        prediction: The kind of the model's predictions.
        scaling_x, scaling_y: Scalings between raw units and the scaled ones of the model.
    """

    model: Mapping[str, Any]
    task: Mapping[str, Any]
    prediction: PredictionKind
    scaling_x: Scaling
    scaling_y: Scaling


class WeightFile:
    """Collects the large constants of all graphs for one file; equal arrays are stored once."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._places: dict[str, WeightPlace] = {}
        self.n_bytes = 0

    def place(self, array: Array) -> WeightPlace:
        """Add an array to the file if no equal one is there, and return its place in bytes."""
        data = np.ascontiguousarray(array).tobytes()
        key = hashlib.sha256(data).hexdigest()
        if key not in self._places:
            padding = -self.n_bytes % (ALIGNMENT if len(data) >= ALIGNMENT else 64)
            self._blocks += [b"\0" * padding, data]
            self._places[key] = WeightPlace(self.n_bytes + padding, len(data))
            self.n_bytes += padding + len(data)
        return self._places[key]

    def without_weights(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Return a copy of a graph that refers to this file for its large constants."""
        thin = onnx.ModelProto()
        thin.CopyFrom(model)
        # ONNX's checker infers shapes from the parts of a Split, and reads them in the graph alone.
        parts = {n.input[1] for n in thin.graph.node if n.op_type == "Split" and len(n.input) > 1}
        for tensor in thin.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.nbytes <= INLINE_BYTES or tensor.name in parts:
                continue
            place = self.place(array)
            tensor.CopyFrom(
                TensorProto(
                    name=tensor.name,
                    data_type=tensor.data_type,
                    dims=tensor.dims,
                    data_location=TensorProto.EXTERNAL,
                )
            )
            for key, value in (
                ("location", WEIGHTS),
                ("offset", str(place.offset)),
                ("length", str(place.n_bytes)),
            ):
                tensor.external_data.add(key=key, value=value)
        return thin

    def write(self, folder: Path) -> None:
        """Write the file into a bundle's folder; where there are no weights, it has one byte."""
        (folder / WEIGHTS).write_bytes(b"".join(self._blocks) or b"\0")


class BundleWriter:
    """Writes one bundle into a folder: the graphs at once, then the manifest over all files.

    The manifest is written twice: the graphs are opened with a first one, to measure their cost,
    and the final one holds this cost.

    Attributes:
        memory_plan: Memory that the bundle needs, in bytes, by part; see
            `edgefold.export.counting.memory_plan`.
    """

    def __init__(self, folder: Path, subject: ExportSubject, graphs: StepGraphs):
        """Write the graphs and their weights into the folder, and let ONNX check them."""
        self.folder, self._subject, self._graphs = folder, subject, graphs
        weights = WeightFile()
        for step in graphs.steps:
            onnx.save(weights.without_weights(step.model), self._path(step))
        state = [self._state_tensor(n, array, weights) for n, array in graphs.state.items()]
        weights.write(folder)
        for step in graphs.steps:  # the checker reads external data, so it comes last
            onnx.checker.check_model(str(self._path(step)), full_check=True)
        cache = [StateTensor(n, shape, d.name) for n, (shape, d) in graphs.cache.items()]
        self.memory_plan = memory_plan(graphs.steps, state, cache, weights.n_bytes)
        self._parts = {
            "state": [tensor.to_json() for tensor in state],
            "cache": [tensor.to_json() for tensor in cache],
            "graphs": {step.name: self._graph_entry(step) for step in graphs.steps},
            "weights": self._entry(WEIGHTS),
        }

    def write_manifest(self, golden: Golden, precision: Mapping[str, Any]) -> None:
        """Write the golden stream, then the manifest with `precision` and a hash of every file."""
        golden.save(self.folder / "golden.npz")
        subject, graphs = self._subject, self._graphs
        tensors = subject.prediction.tensors(len(subject.scaling_y.shift))
        form = {
            "schema": SCHEMA,
            "model": dict(subject.model),
            "task": dict(subject.task),
            "n_streams": graphs.n_streams,
            "points": {"x": asdict(subject.scaling_x), "y": asdict(subject.scaling_y)},
            "prediction": {
                "kind": subject.prediction.name,
                "settings": subject.prediction.settings(),
                "tensors": [tensor.to_json() for tensor in tensors],
            },
            "precision": dict(precision),
            "consolidate_every": graphs.consolidate_every,
            "capacity": graphs.capacity,
            "when_full": graphs.when_full,
            **self._parts,
            "golden": self._entry("golden.npz"),
            "memory_plan": self.memory_plan,
            "versions": dict(_versions()),
        }
        (self.folder / FILE_NAME).write_text(json.dumps(with_checksum(form), indent=1) + "\n")

    def _path(self, step: StepGraph) -> Path:
        return self.folder / f"{step.name}.onnx"

    def _state_tensor(self, name: str, array: Array, weights: WeightFile) -> StateTensor:
        """Describe a state tensor; its first value is one number, or an array among the weights."""
        first = array.reshape(-1)[0].item()
        exact = array.dtype.kind == "f" or abs(first) < 1 << 53  # what a JSON number can hold
        uniform = exact and bool((array == first).all())
        initial = float(first) if uniform else weights.place(array)
        ring, slot = self._graphs.rings.get(name), self._graphs.slots.get(name)
        return StateTensor(name, array.shape, array.dtype.name, initial, ring, slot)

    def _graph_entry(self, step: StepGraph) -> dict[str, Any]:
        return {
            "step": step.step,
            "width": step.width,
            "precision": step.precision,
            "file": self._path(step).name,
            "sha256": sha256_of(self._path(step)),
            "inputs": [tensor.to_json() for tensor in step.inputs],
            "outputs": [tensor.to_json() for tensor in step.outputs],
            "opset": max(entry.version for entry in step.model.opset_import),
        }

    def _entry(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return {"file": name, "sha256": sha256_of(path), "n_bytes": path.stat().st_size}


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def scaling_of(task: Mapping[str, Any], name: str, columns: int) -> Scaling:
    """Return the scaling that a task describes for `name`, x or y; shift 0, scale 1 if it has none.

    Raises:
        ExportError: The task does not give one positive scale and one shift for each column.
    """
    shift = [float(v) for v in task.get(f"{name}_shift", [0.0] * columns)]
    scale = [float(v) for v in task.get(f"{name}_scale", [1.0] * columns)]
    sound = len(shift) == len(scale) == columns and min(scale, default=1) > 0
    if not sound or not np.isfinite(shift + scale).all():
        raise ExportError(
            f"the run's {name}_shift and {name}_scale are not {columns} columns of positive scale."
        )
    return Scaling(tuple(shift), tuple(scale))


@contextmanager
def new_folder(place: Path, force: bool) -> Iterator[Path]:
    """Make a temporary folder that becomes `place` at the end of the block, unless it fails.

    Folders that a killed export to the same place left are removed first: they have a certain name
    and a lock that nobody holds.

    Raises:
        ExportError: Something lies at `place`, and `force` is not set or it is not a bundle.
    """
    place = Path(os.path.realpath(place))
    if place in (here := Path.cwd(), *here.parents):
        raise ExportError(f"--out {place} is the folder you are in or above; name a new one.")
    _sweep(place)
    _require_free(place, force)
    place.parent.mkdir(parents=True, exist_ok=True)
    with _beside(place) as temporary:
        folder = temporary / "new"
        yield folder
        _require_free(place, force)  # minutes may have passed
        for written in (
            *folder.rglob("*"),
            folder,
        ):  # a power cut leaves the old bundle or this one
            sync(written)
        if not (place.exists() and _exchange(folder, place)):
            if place.exists():
                place.rename(temporary / "old")
            folder.rename(place)
        sync(temporary)
        sync(place.parent)


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Make a locked folder next to `place`, with an empty folder "new"; remove it at the end.

    Before it is locked, another export may remove it as a leftover; then another one is made.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{place.name}{_BEING_MADE}", dir=place.parent))
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                if not cleanup.enter_context(lock_file(folder / "lock")):
                    continue
                (folder / "new").mkdir()
            except FileNotFoundError:
                continue
            cleanup.callback(_remove, folder)
            yield folder
            return


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one operation; return False if the system cannot."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "renameat2"):  # glibc has it from 2.28 on
        return False
    places = (ctypes.c_char_p(os.fsencode(place)) for place in (one, other))
    here = ctypes.c_int(AT_FDCWD)
    failed = library.renameat2(here, next(places), here, next(places), ctypes.c_uint(EXCHANGE))
    return not failed


def _remove(folder: Path) -> None:
    """Remove the folders "new" and "old" of an export; its lock, which `_sweep` needs, stays."""
    for name in ("new", "old"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove the temporary folders of killed exports; put back a bundle that one had moved away."""
    for left in place.parent.glob(f".{glob.escape(place.name)}{_BEING_MADE}*"):
        lock = left / "lock"
        if left.is_symlink():
            continue
        if not lock.is_file():  # another's, unless it is empty: killed before the lock was made
            with suppress(OSError):
                left.rmdir()
            continue
        with suppress(OSError), lock_file(lock) as nobody_else:
            if not nobody_else:
                continue
            if (left / "old").is_dir() and not place.exists():
                (left / "old").rename(place)
            _remove(left)
            shutil.rmtree(left)


def _require_free(place: Path, force: bool) -> None:
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not force:
        raise ExportError(f"{place} exists; replace it with --force, or choose another --out.")
    listed = {FILE_NAME, WEIGHTS, "golden.npz", SIGNATURE}
    foreign = [
        path.name
        for path in (place.iterdir() if place.is_dir() else (place,))
        if path.name not in listed and path.suffix != ".onnx"
    ]
    if foreign or not (place / FILE_NAME).is_file():
        what = foreign[0] if foreign else f"a folder without {FILE_NAME}"
        raise ExportError(f"{place} is not a bundle ({what}); choose another --out.")
