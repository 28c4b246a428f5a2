"""List the kinds of predictions by their names in manifests; a new kind is added here."""

from __future__ import annotations

from edgefold.runtime.predictions.base import PredictionKind
from edgefold.runtime.predictions.categorical import Categorical
from edgefold.runtime.predictions.gaussian import Gaussian
from edgefold.runtime.predictions.joint import JointGaussian
from edgefold.runtime.predictions.mixture import GaussianMixture
from edgefold.runtime.predictions.next_event import NextEvent
from edgefold.runtime.predictions.quantiles import Quantiles
from edgefold.runtime.predictions.raw import Raw
from edgefold.runtime.predictions.sensor_forecast import SensorForecast

KINDS: dict[str, type[PredictionKind]] = {
    kind.name: kind
    for kind in (
        Gaussian,
        GaussianMixture,
        JointGaussian,
        Categorical,
        NextEvent,
        Quantiles,
        Raw,
        SensorForecast,
    )
}
