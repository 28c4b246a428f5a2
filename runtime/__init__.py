"""Run a bundle's step graphs inside fixed buffers: needs numpy and onnxruntime, nothing else."""

from edgefold.runtime.backend import EngineOptions
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
from edgefold.runtime.prediction import Prediction
from edgefold.runtime.stream import Stream

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
    "ShapeError",
    "SnapshotError",
    "StepRefusedError",
    "Stream",
    "ValueRefusedError",
]
