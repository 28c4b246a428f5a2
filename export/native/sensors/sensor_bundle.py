"""Say whether a bundle is one of the general model of sensors, for which C has an engine."""

from __future__ import annotations

from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS, SensorForecast


def is_of_sensors(manifest: Manifest) -> bool:
    """Return whether a bundle is one of the general model of sensors, for one stream."""
    kind = manifest.prediction
    state = {tensor.name for tensor in manifest.state}
    return (
        isinstance(kind, SensorForecast)
        and kind.levels == SENSOR_LEVELS
        and manifest.is_filter
        and manifest.n_streams == 1
        and {"values", "further_shape", "limits_bounds", "limits_without"} <= state
    )
