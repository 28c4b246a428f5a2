"""Run a bundle inside fixed buffers, with no other packages than numpy and onnxruntime.

A name's module is imported when the name is first used: a command that reads a board's meters must
not load numpy.
"""

from typing import TYPE_CHECKING

from edgefold.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from edgefold.runtime.backends.base import EngineOptions as EngineOptions
    from edgefold.runtime.bundle.manifest import Manifest as Manifest
    from edgefold.runtime.bundle.manifest_file import load_manifest as load_manifest
    from edgefold.runtime.checking.golden import CheckReport as CheckReport
    from edgefold.runtime.checking.golden import check_bundle as check_bundle
    from edgefold.runtime.errors import BackendError as BackendError
    from edgefold.runtime.errors import BoardError as BoardError
    from edgefold.runtime.errors import BoardFailedError as BoardFailedError
    from edgefold.runtime.errors import BundleError as BundleError
    from edgefold.runtime.errors import BusyError as BusyError
    from edgefold.runtime.errors import CapacityError as CapacityError
    from edgefold.runtime.errors import CheckpointError as CheckpointError
    from edgefold.runtime.errors import ClosedError as ClosedError
    from edgefold.runtime.errors import DataError as DataError
    from edgefold.runtime.errors import EdgefoldError as EdgefoldError
    from edgefold.runtime.errors import ExportError as ExportError
    from edgefold.runtime.errors import KeyFileError as KeyFileError
    from edgefold.runtime.errors import MemoryLimitError as MemoryLimitError
    from edgefold.runtime.errors import MeterError as MeterError
    from edgefold.runtime.errors import ModelError as ModelError
    from edgefold.runtime.errors import OutputError as OutputError
    from edgefold.runtime.errors import OverlapError as OverlapError
    from edgefold.runtime.errors import PaceError as PaceError
    from edgefold.runtime.errors import Remedy as Remedy
    from edgefold.runtime.errors import ShapeError as ShapeError
    from edgefold.runtime.errors import SnapshotError as SnapshotError
    from edgefold.runtime.errors import StepRefusedError as StepRefusedError
    from edgefold.runtime.errors import TrainingError as TrainingError
    from edgefold.runtime.errors import ValueRefusedError as ValueRefusedError
    from edgefold.runtime.errors import WorkError as WorkError
    from edgefold.runtime.predictions import Categorical as Categorical
    from edgefold.runtime.predictions import Gaussian as Gaussian
    from edgefold.runtime.predictions import GaussianMixture as GaussianMixture
    from edgefold.runtime.predictions import JointGaussian as JointGaussian
    from edgefold.runtime.predictions import NextEvent as NextEvent
    from edgefold.runtime.predictions import Prediction as Prediction
    from edgefold.runtime.predictions import PredictionKind as PredictionKind
    from edgefold.runtime.predictions import Quantiles as Quantiles
    from edgefold.runtime.predictions import Raw as Raw
    from edgefold.runtime.predictions import SensorForecast as SensorForecast
    from edgefold.runtime.rows.row_format import RowFormat as RowFormat
    from edgefold.runtime.sensors.sensors import Sensors as Sensors
    from edgefold.runtime.series.features import SeriesFeatures as SeriesFeatures
    from edgefold.runtime.series.features import series_points as series_points
    from edgefold.runtime.series.series_file import read_series as read_series
    from edgefold.runtime.series.spec import SeriesSpec as SeriesSpec
    from edgefold.runtime.stream.provenance import Piece as Piece
    from edgefold.runtime.stream.provenance import Provenance as Provenance
    from edgefold.runtime.stream.state_slots import StateSlots as StateSlots
    from edgefold.runtime.stream.stream import Stream as Stream
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "backends.base": "EngineOptions",
            "errors": (
                "BackendError BoardError BoardFailedError BundleError BusyError CapacityError "
                "CheckpointError ClosedError DataError EdgefoldError ExportError KeyFileError "
                "MemoryLimitError MeterError ModelError OutputError OverlapError PaceError Remedy "
                "ShapeError SnapshotError StepRefusedError TrainingError ValueRefusedError "
                "WorkError"
            ),
            "bundle.manifest": "Manifest",
            "bundle.manifest_file": "load_manifest",
            "checking.golden": "CheckReport check_bundle",
            "predictions": (
                "Categorical Gaussian GaussianMixture JointGaussian NextEvent Prediction "
                "PredictionKind Quantiles Raw SensorForecast"
            ),
            "rows.row_format": "RowFormat",
            "series.series_file": "read_series",
            "sensors.sensors": "Sensors",
            "series.features": "SeriesFeatures series_points",
            "series.spec": "SeriesSpec",
            "stream.provenance": "Piece Provenance",
            "stream.state_slots": "StateSlots",
            "stream.stream": "Stream",
        },
    )
