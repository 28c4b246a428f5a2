"""Scores of forecasts of the next rows of a series, from many origins: numpy alone, no model.

Of one series: what share of values the bands hold at each row ahead, and the error of the medians
beside the better of persistence and the season before, by groups of rows. Of a task of many series:
the weighted quantile loss and the mean absolute scaled error (MASE) of GIFT-Eval (Aksu et al.
2024).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.sensors.sensors_scores import LEVELS, geometric_mean, quantile_loss, quantiles_at
from edgefold.runtime.arrays import FloatArray

IntArray = np.ndarray[tuple[int], np.dtype[np.int64]]

ROWS = (1, 4, 16, 24, 48)
"""Rows ahead at which bands are told."""
GROUPS = {
    **{"1": (1, 1), "2 to 4": (2, 4), "5 to 16": (5, 16), "17 to 24": (17, 24)},
    **{"25 to 48": (25, 48), "17 to 48": (17, 48)},
}
"""First and last row ahead of each group whose medians are told together."""
BANDS = {"80": (LEVELS.index(0.1), LEVELS.index(0.9)), "90": (0, len(LEVELS) - 1)}
MEDIAN = LEVELS.index(0.5)
DECILES = np.arange(1, 10) / 10
LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Paths:
    """Forecasts of the H rows after each of n origins of one series, and what came.

    Attributes:
        values: What came, (n, H); NaN where nothing did.
        quantiles: The forecasts at `LEVELS`, (n, H, 7).
        last: Newest value at each origin, (n,).
        before: Value one season before each row, or as many seasons as it takes to be known,
            (n, H); NaN where no season or no such value is known.
        origins: The number of the row in the series before which each forecast was made, (n,).
    """

    values: FloatArray
    quantiles: FloatArray
    last: FloatArray
    before: FloatArray
    origins: IntArray

    def of(self, origins: Collection[int]) -> Paths:
        """Return the paths from some of the origins."""
        at = np.isin(self.origins, list(origins))
        return Paths(
            *(self.values[at], self.quantiles[at], self.last[at], self.before[at]),
            self.origins[at],
        )


def held(paths: Paths, band: str) -> FloatArray:
    """Return the share of values inside a band, "80" or "90", at each row ahead, (H,)."""
    low, high = (paths.quantiles[..., k] for k in BANDS[band])
    known = np.isfinite(paths.values)
    inside = (paths.values >= low) & (paths.values <= high)
    counted: FloatArray = (inside & known).sum(0) / np.maximum(known.sum(0), 1)
    return counted


def beside_naive(paths: Paths, group: str) -> float | None:
    """Return the error of the medians over that of the better naive forecast, for a group of rows.

    The better one is that of the smaller error here: persistence, or the season before. None where
    the series is shorter than the group, or where the naive forecast never errs.
    """
    first, last = GROUPS[group]
    rows = slice(first - 1, last)
    if paths.values.shape[1] < last or not len(paths.values):
        return None
    values = paths.values[:, rows]
    ours = np.nanmean(abs(values - paths.quantiles[:, rows, MEDIAN]))
    naive = [np.nanmean(abs(values - paths.last[:, None]))]
    if np.isfinite(paths.before).any():
        naive.append(np.nanmean(abs(values - paths.before[:, rows])))
    return float(ours / min(naive)) if min(naive) > LEAST else None


def series_record(paths: Paths) -> dict[str, Any]:
    """Return the scores of one series."""
    return {
        "n_origins": len(paths.values),
        "holds": {band: held(paths, band).round(4).tolist() for band in BANDS},
        "medians": {group: beside_naive(paths, group) for group in GROUPS},
    }


def over_series(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the scores of many series are together.

    Bands: the mean of the series' shares at each row ahead, and how many series lie within 6 points
    of 80 % at each of `ROWS`. Medians: the geometric mean over series, and the worst.
    """
    holds = {band: np.mean([of["holds"][band] for of in records], 0) for band in BANDS}
    of_80 = np.array([of["holds"]["80"] for of in records])
    near = (abs(of_80 - 0.8) <= 0.06).sum(0)
    found: dict[str, Any] = {
        "n_series": len(records),
        "holds": {band: shares.round(4).tolist() for band, shares in holds.items()},
        "near_80": {str(h): int(near[h - 1]) for h in within(len(near))},
        "medians": {},
        "worst": {},
    }
    for group in GROUPS:
        ratios = [of["medians"][group] for of in records if of["medians"][group] is not None]
        if ratios:
            found["medians"][group] = geometric_mean(ratios)
            found["worst"][group] = max(ratios)
    return found


def within(n_rows: int) -> list[int]:
    """Return those of `ROWS` that a path of n_rows has."""
    return [h for h in ROWS if h <= n_rows]


def held_together(every: Sequence[Paths]) -> dict[str, list[float]]:
    """Return the share of values inside each band at each row ahead, of all series together."""
    counted = [np.isfinite(paths.values).sum(0) for paths in every]
    n = np.maximum(np.sum(counted, 0), 1)
    shares = {
        band: np.sum([held(of, band) * k for of, k in zip(every, counted, strict=True)], 0) / n
        for band in BANDS
    }
    return {band: share.round(4).tolist() for band, share in shares.items()}


def task_record(
    often: Sequence[Paths], published: Sequence[Collection[int]], scales: Sequence[float]
) -> dict[str, Any]:
    """Return the scores of a task: of all values together, whatever series they are of.

    Args:
        often: Each series, from the published origins and from more of them.
        published: The published origins of each series.
        scales: Mean absolute change of each series from one season to the next, before the first
            origin: errors are divided by it for the MASE.
    """
    every = [paths.of(origins) for paths, origins in zip(often, published, strict=True)]
    loss, size, mase = np.zeros(len(DECILES)), 0.0, []
    for paths, scale in zip(every, scales, strict=True):
        deciles = quantiles_at(DECILES, paths.quantiles)
        loss += np.nansum(quantile_loss(paths.values, deciles, DECILES), (0, 1))
        size += float(np.nansum(abs(paths.values)))
        errors = np.nanmean(abs(paths.values - paths.quantiles[..., MEDIAN]), 1) / scale
        mase.append(errors.mean())
    return {
        "n_series": len(every),
        "n_origins": sum(len(paths.values) for paths in every),
        "holds": held_together(every),
        "often": {
            "n_origins": sum(len(paths.values) for paths in often),
            "holds": held_together(often),
        },
        "weighted_quantile_loss": float(np.mean(loss / size)),
        "mase": float(np.mean(mase)),
    }
