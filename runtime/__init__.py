"""Run a bundle's step graphs inside fixed buffers: needs numpy and onnxruntime, nothing else.

Names are loaded at their first use: a command that reads a board's meters must not load numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefold.runtime.backends.base import EngineOptions
    from edgefold.runtime.errors import (
        BackendError,
        BundleError,
        ClosedError,
        DataError,
        EdgefoldError,
        MemoryLimitError,
        OutputError,
        ShapeError,
        SnapshotError,
        StepRefusedError,
        ValueRefusedError,
    )
    from edgefold.runtime.golden import check_bundle
    from edgefold.runtime.predictions import Prediction
    from edgefold.runtime.rows.csv_reader import read_series
    from edgefold.runtime.series.features import series_points
    from edgefold.runtime.series.spec import SeriesSpec
    from edgefold.runtime.stream import Stream

_PLACES = {
    "EngineOptions": "backends.base",
    "Prediction": "predictions",
    "SeriesSpec": "series.spec",
    "Stream": "stream",
    "check_bundle": "golden",
    "read_series": "rows.csv_reader",
    "series_points": "series.features",
}

__all__ = [
    "BackendError",
    "BundleError",
    "ClosedError",
    "DataError",
    "EdgefoldError",
    "EngineOptions",
    "MemoryLimitError",
    "OutputError",
    "Prediction",
    "SeriesSpec",
    "ShapeError",
    "SnapshotError",
    "StepRefusedError",
    "Stream",
    "ValueRefusedError",
    "check_bundle",
    "read_series",
    "series_points",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'errors')}"), name)
