"""Predict one of several classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor


@dataclass(frozen=True)
class Categorical(PredictionKind):
    """Predicts one of K = `n_classes` classes with a tensor `scores` (..., K), one for each class.

    A score is the logarithm of the class's probability plus a constant that all classes share. The
    measured y (..., 1) is the number of the class, from 0 to K - 1.
    """

    n_classes: int
    name: ClassVar[str] = "categorical"

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        return (PredictionTensor("scores", (self.n_classes,), "none"),)

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a table's columns by name: class, probability and scores.

        class is the number, from 0 on, of the most probable class, and probability is its own,
        computed in float64, so that its digits in a table are the same on every machine.
        """
        chosen = np.asarray(prediction["scores"].argmax(-1))
        precise = {"scores": np.asarray(prediction["scores"], np.float64)}
        probability = np.exp(self.log_likelihood(precise, chosen[..., None], np))
        return {"class": chosen, "probability": np.asarray(probability), **prediction}

    def log_likelihood(self, prediction: Mapping[str, Any], y: Any, xp: Any) -> Any:
        scores = prediction["scores"]
        top = xp.amax(scores, -1)[..., None]
        log_total = xp.log(xp.exp(scores - top).sum(-1)) + top[..., 0]
        classes = xp.cumsum(xp.ones_like(scores), -1) - 1  # on the device of the scores
        chosen = y[..., :1] == classes
        return xp.where(chosen, scores, 0.0 * scores).sum(-1) - log_total

    def sample(self, prediction: Mapping[str, Any], random: np.random.Generator) -> FloatArray:
        scores = prediction["scores"]
        # The class with the largest sum of score and Gumbel noise is a draw.
        chosen = np.argmax(scores + random.gumbel(size=scores.shape), -1)[..., None]
        drawn: FloatArray = chosen.astype(np.float64)
        return drawn
