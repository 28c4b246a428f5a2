"""Define the kinds of predictions, their tensors and their scores."""

from edgefold.runtime.predictions.base import UNSCALE, Prediction, PredictionKind, PredictionTensor
from edgefold.runtime.predictions.categorical import Categorical
from edgefold.runtime.predictions.gaussian import BAND_90, Gaussian
from edgefold.runtime.predictions.joint import JointGaussian
from edgefold.runtime.predictions.mixture import GaussianMixture
from edgefold.runtime.predictions.next_event import NextEvent
from edgefold.runtime.predictions.quantiles import Quantiles
from edgefold.runtime.predictions.raw import Raw
from edgefold.runtime.predictions.registry import KINDS
from edgefold.runtime.predictions.sensor_forecast import SensorForecast

__all__ = [
    "BAND_90",
    "KINDS",
    "UNSCALE",
    "Categorical",
    "Gaussian",
    "GaussianMixture",
    "JointGaussian",
    "NextEvent",
    "Prediction",
    "PredictionKind",
    "PredictionTensor",
    "Quantiles",
    "Raw",
    "SensorForecast",
]
