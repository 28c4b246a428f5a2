"""Choose the backend that `auto` opens: by the times kept for this machine, else by a fixed order.

    kept times of two backends or more      the faster one first
    else                                    compiled C, engines that are built, onnxruntime

`auto` never builds an engine, which takes minutes: a GPU is a candidate where engines of every
graph are in the cache. It is never one for the general model of sensors, whose row of some 70
kernels takes longer to launch than a CPU core takes to compute it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.backends.kept_times import KeptTimes
from edgefold.runtime.backends.native.processor import read_processor
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, EngineKey
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS
from edgefold.runtime.predictions.sensor_forecast import SensorForecast


@dataclass(frozen=True, slots=True)
class Preference:
    """Holds the backends that `auto` tries, and why.

    Attributes:
        candidates: The backends in the order in which they are tried.
        left_out: The reason for each backend, by its name, that is not tried.
        row_s: The kept seconds of a row, by the backend's name, that decided the order; empty if
            the order is the fixed one.
    """

    candidates: tuple[BackendInfo, ...]
    left_out: Mapping[str, str]
    row_s: Mapping[str, float]

    def explain(self, opened: str) -> str:
        """Return a clause on why the backend of this name was opened."""
        others = [f"{n} {_micros(s)}" for n, s in self.row_s.items() if n != opened]
        if opened in self.row_s:
            return f"a row took {_micros(self.row_s[opened])} here, on {', '.join(others)}"
        return "nothing was measured here; it is the first that opened of " + ", ".join(
            info.name for info in self.candidates
        )


def choose(infos: Sequence[BackendInfo], manifest: Manifest, folder: Path | None) -> Preference:
    """Choose the order in which `auto` tries backends for a bundle.

    Args:
        infos: The backends that `auto` knows, in the fixed order.
        manifest: The bundle's manifest.
        folder: The folder of engines, libraries and times; None for the default one.
    """
    left_out = {info.name: _why_no_gpu(manifest, folder) for info in infos if info.device == "gpu"}
    left_out = {name: reason for name, reason in left_out.items() if reason}
    candidates = [info for info in infos if info.name not in left_out]
    kept, processor = KeptTimes(folder), read_processor()
    times = {info.name: kept.row_s(manifest, processor, info.name) for info in candidates}
    row_s = {name: time for name, time in times.items() if time is not None}
    if len(row_s) < 2:
        return Preference(tuple(candidates), left_out, {})
    candidates.sort(key=lambda info: row_s.get(info.name, float("inf")))
    return Preference(tuple(candidates), left_out, dict(sorted(row_s.items(), key=lambda e: e[1])))


def _why_no_gpu(manifest: Manifest, folder: Path | None) -> str:
    """Return why `auto` takes no GPU for a bundle, or "" if it may."""
    if isinstance(manifest.prediction, SensorForecast):
        return "auto runs the general model of sensors on the CPU; name a backend to use a GPU"
    wanted, found = {graph.sha256 for graph in manifest.graphs.values()}, set()
    cache = EngineCache(folder)
    with suppress(OSError):
        for path in cache.files(EngineKey.suffix):
            with suppress(OSError, *PARSE_ERRORS):
                key = cache.header(path)["key"]
                if key["weights_sha256"] == manifest.weights["sha256"]:
                    found.add(key["graph_sha256"])
    if wanted <= found:
        return ""
    return (
        "auto builds none of TensorRT's engines, and this bundle lacks some; `edgefold engine "
        f"{manifest.path}` builds and times them"
    )


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"
