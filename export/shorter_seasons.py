"""Write the general model of sensors as a bundle for shorter seasons, whose rings take less memory.

    tensor               (B, ..)             holds
    values               (B, R)              the last R values
    experts_season       (B, S, longest)     what S filters add at each phase of a season
    features_z_season    (B, longest)        a season of normal quantiles

The lengths of these rings are numbers of the step graph, and no weight depends on them. So they are
changed in the graph and in the manifest, without PyTorch. Forecasts of every season up to the new
longest one are those of the whole bundle: R is so large that no forecast misses a value that the
whole bundle would read. `usual`, the mean of the last 24 seasons at the present phase, is the same
up to a longest season of 58 slots. Beyond, it is the mean of the seasons that R holds, 8 at least.

The golden stream stays as it is: its season is a day of hours, so that its predictions hold where
the longest season is as long, 24 slots at least (`LEAST_LONGEST`). A recording on this machine
would give the same model another hash on each machine, although C and snapshots are known by that
hash.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

from edgefold.export.counting.memory_plan import memory_plan
from edgefold.export.graphs.step_graphs import StepGraph
from edgefold.runtime.bundle.manifest import FILE_NAME, Graph, Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.bundle.onnx_file import read_graph
from edgefold.runtime.checking.golden import Golden
from edgefold.runtime.errors import BundleError, ExportError
from edgefold.runtime.hashing import sha256_of
from edgefold.runtime.predictions.sensor_forecast import LEAST_LONGEST, SensorForecast
from edgefold.runtime.sensors.shipped_bundle import word_of

VALUES, SEASON, Z_SEASON = "values", "experts_season", "features_z_season"
RECENT, FARTHEST = 33, 48
"""Number of last values that a forecast reads, and the largest number of slots that it looks ahead
besides a season."""
CLIMATE, STRIDE = 8, 16
"""Number of seasons whose mean is an expert's forecast, and the slots that stand for a season where
a sensor has none."""
USUAL, MOST_FOR_USUAL = 24, 1408
"""Number of seasons whose mean is `usual`, and the most values that are kept only for all of them:
they take 5.6 kB, and let R be as for a week of hours."""
BLOCK = 64
"""The number of kept values is a multiple of this."""


@dataclass(frozen=True, slots=True)
class RingLengths:
    """Holds the lengths that are numbers of the step graph.

    Attributes:
        longest: Longest season, in slots.
        values: Number of last values that are kept.
    """

    longest: int
    values: int

    def for_seasons(self, longest: int) -> RingLengths:
        """Return the lengths for shorter seasons, up to `longest` slots."""
        least = max(
            2 * longest + RECENT + FARTHEST,
            CLIMATE * max(longest, STRIDE) + FARTHEST,
            min(USUAL * longest + 1, MOST_FOR_USUAL),
        )
        return RingLengths(longest, min(-(-least // BLOCK) * BLOCK, self.values))


def shorten_seasons(bundle: Path, longest: int, out: Path) -> None:
    """Write a bundle of the general model of sensors for seasons of at most `longest` slots.

    Args:
        bundle: The whole bundle, whose hashes are verified.
        longest: Longest season of the new bundle, in slots.
        out: Folder to write into; it may exist if it is empty.

    Raises:
        BundleError: The bundle is damaged.
        ExportError: It is no bundle of this kind, or `longest` is too short or too long for it.
    """
    manifest = load_manifest(bundle)
    old = _lengths_of(manifest)
    if not LEAST_LONGEST <= longest <= old.longest:
        raise ExportError(
            f"the longest season is to be {longest} slots (--longest-season); "
            f"{word_of(str(bundle))} can be written for {LEAST_LONGEST} to {old.longest}."
        )
    new = old.for_seasons(longest)
    (graph,) = manifest.graphs.values()
    model = _loaded(manifest, graph)
    _rewrite(model, manifest, old, new)
    out.mkdir(parents=True, exist_ok=True)
    for entry in (manifest.weights, manifest.golden):
        shutil.copyfile(manifest.path / entry["file"], out / entry["file"])
    path = out / graph.file
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=True)
    _write_manifest(manifest, model, new, out)
    load_manifest(out)


def _lengths_of(manifest: Manifest) -> RingLengths:
    """Return the lengths of a bundle's rings; raises ExportError if it has no such rings."""
    shapes = {t.name: t.shape for t in manifest.state if t.ring is not None}
    if (
        not isinstance(manifest.prediction, SensorForecast)
        or [g.step for g in manifest.graphs.values()] != ["step"]
        or not {VALUES, SEASON, Z_SEASON} <= shapes.keys()
    ):
        raise ExportError(
            f"{manifest.path} is a bundle of {manifest.model.get('name', 'another model')}; only "
            "those of the general model of sensors can be written for shorter seasons."
        )
    lengths = RingLengths(manifest.prediction.longest_season, shapes[VALUES][-1])
    whole = {shapes[SEASON][-1], shapes[Z_SEASON][-1], lengths.longest}
    seasons = Golden.load(manifest).x[..., 2]
    if len(whole) != 1 or seasons.max() > LEAST_LONGEST:
        raise ExportError(
            f"{manifest.path} cannot be written for shorter seasons: its rings or its golden "
            "stream are not as this version of Edgefold exports them. Export it again."
        )
    return lengths


def _loaded(manifest: Manifest, graph: Graph) -> onnx.ModelProto:
    """Return a graph without its weights, which stay in their file."""
    try:
        return onnx.load_model_from_string(read_graph(manifest, graph))
    except Exception as error:  # protobuf raises its own kinds
        raise BundleError(f"{manifest.path / graph.file} is not an ONNX graph: {error}") from error


def _rewrite(
    model: onnx.ModelProto, manifest: Manifest, old: RingLengths, new: RingLengths
) -> None:
    """Change the lengths in a step graph: three constants, the rings' inputs, and one shape.

    Raises:
        ExportError: The graph does not have each of them exactly once.
    """
    n_streams, n_filters = next(t.shape[:2] for t in manifest.state if t.name == SEASON)
    flat = [n_streams, n_filters * old.longest, 1]
    rings = {VALUES: new.values, SEASON: new.longest, Z_SEASON: new.longest}
    for known, number, readers in (
        (old.longest, new.longest, {"LessOrEqual", "Mul", "Mod"}),
        (old.values, new.values, {"Mod", "Sub"}),
        (flat, [n_streams, n_filters * new.longest, 1], {"Reshape"}),
    ):
        _set_constant(model, manifest, known, number, readers)
    for info in model.graph.input:
        if info.name in rings:
            info.type.tensor_type.shape.dim[-1].dim_value = rings[info.name]
    (reshaped,) = (n.output[0] for n in model.graph.node if n.input[0] == SEASON and _reshapes(n))
    for info in model.graph.value_info:
        if info.name == reshaped:
            info.type.tensor_type.shape.dim[1].dim_value = n_filters * new.longest


def _reshapes(node: NodeProto) -> bool:
    return str(node.op_type) == "Reshape"


def _set_constant(
    model: onnx.ModelProto,
    manifest: Manifest,
    known: int | Sequence[int],
    number: int | Sequence[int],
    readers: set[str],
) -> None:
    """Replace the integer constant `known` that the operators `readers` read.

    Other operators may read another constant with the same number, as 48 is a horizon too. If one
    of `readers` does, it is not certain which of them is the length.
    """
    read_by: dict[str, set[str]] = {}
    for node in model.graph.node:
        for name in node.input:
            read_by.setdefault(name, set()).add(node.op_type)
    matches = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.INT64
        and tensor.data_location != onnx.TensorProto.EXTERNAL
        and numpy_helper.to_array(tensor).tolist() == known
        and readers & read_by.get(tensor.name, set())
    ]
    if len(matches) != 1 or read_by[matches[0].name] != readers:
        raise ExportError(
            f"{manifest.path} cannot be written for shorter seasons: its graph must have one "
            f"constant {known}, which {', '.join(sorted(readers))} read. Start from the bundle "
            "sensors as it is shipped."
        )
    matches[0].CopyFrom(numpy_helper.from_array(np.array(number, np.int64), matches[0].name))


def _write_manifest(
    manifest: Manifest, model: onnx.ModelProto, new: RingLengths, out: Path
) -> None:
    """Write the manifest of a rewritten graph: that of the whole bundle with the new lengths."""
    rings = {VALUES: new.values, SEASON: new.longest, Z_SEASON: new.longest}
    form = json.loads((manifest.path / FILE_NAME).read_text())
    (entry,) = form["graphs"].values()
    for tensor in form["state"]:
        _set_length(tensor, rings.get(tensor["name"]))
    for tensor in entry["inputs"]:
        _set_length(tensor, rings.get(tensor["of"]) if tensor["role"] == "state" else None)
    entry["sha256"] = sha256_of(out / entry["file"])
    form["model"]["settings"] |= {"longest": new.longest, "values": new.values}
    form["prediction"]["settings"]["longest_season"] = new.longest
    form.pop("resumes", None)  # snapshots of earlier bundles have other rings
    (out / FILE_NAME).write_text(json.dumps(with_checksum(form), indent=1) + "\n")
    form["memory_plan"] = _memory_plan(load_manifest(out), model)
    (out / FILE_NAME).write_text(json.dumps(with_checksum(form), indent=1) + "\n")


def _set_length(tensor: Mapping[str, Any], length: int | None) -> None:
    if length is not None:
        tensor["shape"][-1] = length


def _memory_plan(manifest: Manifest, model: onnx.ModelProto) -> dict[str, Any]:
    (graph,) = manifest.graphs.values()
    step = StepGraph(graph.name, graph.step, graph.width, model, graph.inputs, graph.outputs)
    return memory_plan([step], manifest.state, manifest.cache, manifest.weights["n_bytes"])
