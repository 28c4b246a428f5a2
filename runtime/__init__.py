"""Run a bundle's step graphs inside fixed buffers: needs numpy and onnxruntime, nothing else."""

from edgefold.runtime.errors import (
    BackendError,
    BundleError,
    ClosedError,
    DataError,
    EdgefoldError,
    OutputError,
    ShapeError,
    SnapshotError,
    StepRefusedError,
    ValueRefusedError,
)
from edgefold.runtime.stream import Prediction, Stream

__all__ = [
    "BackendError",
    "BundleError",
    "ClosedError",
    "DataError",
    "EdgefoldError",
    "OutputError",
    "Prediction",
    "ShapeError",
    "SnapshotError",
    "StepRefusedError",
    "Stream",
    "ValueRefusedError",
]
