"""Write a prediction as columns of the output: its numbers, its errors and an anomaly flag.

    columns of the prediction's kind (mean is called "prediction")    error of each output   anomaly

Errors exist where the prediction has a central value and the rows hold y. The flag, and the count
of values in the 90 % band, need a standard deviation as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.counters import RowScore
from edgefold.runtime.loop.watcher import RowView
from edgefold.runtime.predictions import BAND_90, Prediction
from edgefold.runtime.rows.csv_fields import quoted

COLUMN_NAMES = {"mean": "prediction"}
QUARTILE = 0.41006
"""The width of the central 50 % band as a share of the 90 % band's, of a normal distribution."""


class OutputColumns:
    """Scores the predictions of one bundle, and writes them as text for the output.

    Args:
        manifest: The bundle's manifest.
        adapter: The adapter that converts predicted values to values of the input.
        anomaly_z: A value further than this many standard deviations from its prediction is an
            anomaly.

    Attributes:
        names: The names of the columns.
        has_errors: Whether a prediction has a central value, and rows hold y to compare with it.
        has_band: Whether a prediction has a standard deviation in addition.
        n_errors: Number of outputs that have an error; 0 without errors.
    """

    def __init__(self, manifest: Manifest, adapter: RowAdapter, anomaly_z: float):
        self._adapter, self._kind, self._anomaly_z = adapter, manifest.prediction, anomaly_z
        self._tensors = manifest.prediction_tensors
        n_outputs = 0 if manifest.is_filter else manifest.n_outputs
        empty = {t.name: np.zeros(t.shape) for t in self._tensors}
        self.has_errors = n_outputs > 0 and self._kind.center(empty) is not None
        self.has_band = self.has_errors and self._kind.deviation(empty) is not None
        self.names: list[str] = []
        for name, array in self._kind.told(empty).items():
            self._add(COLUMN_NAMES.get(name, name), array.size)
        if self.has_errors:
            self._add("error", n_outputs)
        if self.has_band:
            self._add("anomaly", 1)
        self.n_errors = n_outputs if self.has_errors else 0

    def _add(self, name: str, n: int) -> None:
        self.names += [name] if n == 1 else [f"{name}{i + 1}" for i in range(n)]

    @property
    def empty(self) -> str:
        """Return the empty fields, as commas, of a row that was not predicted."""
        return "," * (len(self.names) - 1)

    def values(self, prediction: Prediction) -> Mapping[str, Any]:
        """Convert the prediction of one row to values of the input.

        Call it before the row is added to the history; see `RowAdapter.to_values`.

        Returns:
            The prediction's tensors by name, without the axes of streams and targets.
        """
        values = {}
        for tensor in self._tensors:
            own = prediction.tensors[tensor.name].reshape(tensor.shape)
            is_y = tensor.unscale == "affine"
            values[tensor.name] = self._adapter.to_values(own) if is_y else own
        return values

    def score(self, values: Mapping[str, Any], y: Sequence[float]) -> RowScore:
        """Compare the prediction of a row with the row's true values.

        Args:
            values: The prediction, as `values` returned it.
            y: The row's true values, one for each output.
        """
        score = RowScore()
        if self.has_errors:
            centers = self._kind.center(values).tolist()
            score.errors = [true - center for true, center in zip(y, centers, strict=True)]
        if self.has_band:
            deviations = self._kind.deviation(values).tolist()
            sizes = [*map(abs, score.errors)]
            pairs = [*zip(sizes, deviations, strict=True)]
            score.n_within_90 = sum(error <= BAND_90 * std for error, std in pairs)
            score.is_anomaly = any(error > self._anomaly_z * std for error, std in pairs)
        return score

    def view(self, values: Mapping[str, Any], y: Sequence[float]) -> RowView:
        """Return the first output of a row for those who watch the loop.

        Args:
            values: The prediction, as `values` returned it; empty without one.
            y: The row's true values; empty if they are not known.
        """
        value, mean = (y[0] if y else math.nan), math.nan
        half = math.nan
        if values and self.has_errors:
            mean = float(self._kind.center(values)[0])
        if values and self.has_band:
            half = BAND_90 * float(self._kind.deviation(values)[0])
        nats = math.nan
        if values and y and self._kind.has_score:
            with np.errstate(all="ignore"):  # a value may be beyond all that the model expects
                nats = float(self._kind.log_likelihood(values, np.asarray(y), np))
        inner = half * QUARTILE
        return RowView(value, mean, mean - half, mean + half, nats, mean - inner, mean + inner)

    def text(self, values: Mapping[str, Any], score: RowScore) -> str:
        """Return the fields of a row that was predicted, with commas between them.

        Args:
            values: The prediction, as `values` returned it.
            score: The row's score, as `score` returned it.
        """
        texts: list[str] = []
        for name, array in self._kind.told(values).items():
            numbers, words = array.ravel().tolist(), self._adapter.words.get(name)
            texts += quoted(words[n] for n in numbers) if words else map(_written, numbers)
        texts += map(_written, score.errors)
        if self.has_band:
            texts.append(f"{score.is_anomaly:d}")
        return ",".join(texts)


def _written(number: float) -> str:
    return f"{number:.9g}"
