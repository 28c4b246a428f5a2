"""Turn random numbers into rows as sensors send them, for recorded streams and for checks.

Numbers drawn for each column by itself are rows of no sensor: the season changes with each row, and
half of the slots are missing. Here every stream has one season, or none, and its phase counts up;
its values are a season with a slow walk, noise, repeats and one jump; and slots are missing one by
one and several in a row.

Letters of shapes: B streams, T rows of a stream.
"""

from __future__ import annotations

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

SEASONS = (24, 168, 0)
"""Lengths of the seasons, in slots, that streams have in turn: a day and a week of hours, none."""
NOISE, WALK, JUMP = 0.8, 0.12, 1.0
"""Widths of the noise and of the walk's steps, and the jump after half of the rows. The season's
amplitude is 1."""
REPEATED, SINGLE, RUNS, RUN = 0.05, 0.03, 0.015, 6
"""Shares of the rows that repeat the value before, of those that are missing by themselves, and of
those that begin a run of missing rows; and the length of a run."""
N_WHOLE = 32
"""Number of rows before the first repeat and the first missing row. A stream's first forecasts,
which no one is shown, are as wide as the rounding of float32 until its values have changed."""


def plausible_rows(drawn: FloatArray, longest: int) -> FloatArray:
    """Return rows as sensors send them, (B, T, 4): the input x of the model `Sensors`.

    Args:
        drawn: Evenly distributed numbers from 0 to 1, (B, T, 4).
        longest: Longest season, in slots.
    """
    n_streams, n = drawn.shape[:2]
    seasons = [length for length in SEASONS if length <= longest]
    length = np.resize(seasons, n_streams)[:, None]
    period = np.maximum(length, 1)
    noise, gaps, repeats, steps = np.moveaxis(drawn, -1, 0)  # (B, T) each
    t = np.arange(n)
    phase = (np.floor(steps[:, :1] * period) + t) % period
    wave = np.sin(2 * np.pi * phase / period)
    walk = np.cumsum(WALK * (steps - 0.5), 1)
    values = wave + walk + NOISE * (noise - 0.5) + JUMP * (t >= n // 2)
    late = t >= N_WHOLE
    newest = np.maximum.accumulate(np.where((repeats < REPEATED) & late, 0, t), 1)
    missing = late & ((gaps > 1 - SINGLE) | _followed(late & (gaps < RUNS)))
    columns = np.take_along_axis(values, newest, 1), ~missing, length, phase
    return np.stack(np.broadcast_arrays(*columns), -1).astype(float)


def _followed(begins: Array) -> Array:
    """Return True for the rows of runs that begin where `begins` (B, T) is True."""
    runs = begins.copy()
    for back in range(1, RUN):
        runs[:, back:] |= begins[:, :-back]
    return runs
