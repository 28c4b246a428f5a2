"""The score of the Numenta Anomaly Benchmark, from its paper; no code of its repository is here.

    a file's rows   ....... [==== window ====] ..............
    a detection is   -fp     +tp ......... 0    0 .......... -fp      window without one: -fn

Equations: A. Lavin and S. Ahmad, "Evaluating Real-time Anomaly Detection Algorithms - the Numenta
Anomaly Benchmark", 2015, arXiv 1510.03336, section II. With y the row's place beside its window's
right edge, in widths of the window, a detection counts 2 / (1 + exp(5 y)) - 1: nearly 1 at the left
edge, 0 at the right one, nearly -1 a width later. In a window only the best detection counts;
outside of windows each one costs, by the last window before it, and -1 far from any. A window
without a detection costs its own weight.

What the paper leaves open is as the repository has it. The first 15 % of a file, at most 750 rows,
are not scored. In a window y is -(rows to the right edge + 1) / rows of the window, and the worth
is divided by that of the first row, so that the earliest detection counts 1. After a window y is
(rows since its right edge) / (rows of the window - 1), and -1 counts beyond y = 3. True negatives
count nothing, although a profile states a weight of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

PROBATION, MOST_PROBATION = 0.15, 750
FAR = 3.0
OUTSIDE = -1


@dataclass(frozen=True, slots=True)
class Profile:
    """Weights of a detection in a window, of one outside of all, and of a missed window."""

    found: float
    false: float
    missed: float


PROFILES = {
    "standard": Profile(1.0, 0.11, 1.0),
    "reward_low_FP_rate": Profile(1.0, 0.22, 1.0),
    "reward_low_FN_rate": Profile(1.0, 0.11, 2.0),
}


@dataclass(frozen=True, slots=True)
class Labelled:
    """The scored rows of a file, or of several.

    Attributes:
        worth: Of a detection at each row, (n,): 0 to 1 in a window, -1 to 0 outside.
        window: The number of the row's window, (n,); `OUTSIDE` for none.
        n_windows: All of them, those without a scored row included.
    """

    worth: FloatArray
    window: Array
    n_windows: int


@dataclass(frozen=True, slots=True)
class Score:
    """A detector's score at a threshold.

    Attributes:
        score: 0 for a detector that detects nothing, 100 for a perfect one.
        threshold: Rows at or above it are detections; infinite where none is.
        n_found: Windows with a detection.
        n_false: Detections outside of windows.
    """

    score: float
    threshold: float
    n_found: int
    n_false: int


def n_probation(n: int) -> int:
    """Rows at the beginning of a file that are not scored."""
    return min(int(PROBATION * n), MOST_PROBATION)


def scaled_sigmoid(y: FloatArray) -> FloatArray:
    """2 / (1 + exp(5 y)) - 1, and -1 far after a window."""
    return np.where(y > FAR, -1.0, 2 / (1 + np.exp(5 * np.minimum(y, FAR))) - 1)


def labelled(n: int, windows: Sequence[tuple[int, int]]) -> Labelled:
    """The rows of a file that are scored.

    Args:
        n: Rows of the file.
        windows: First and last row of each, in order and without overlap.
    """
    worth, window = np.full(n, -1.0), np.full(n, OUTSIDE)
    first_worth = float(scaled_sigmoid(np.array(-1.0)))
    ends = [*(left for left, _ in windows), n][1:]
    for at, ((left, right), end) in enumerate(zip(windows, ends, strict=True)):
        width = right - left + 1
        inside = -(right + 1 - np.arange(left, right + 1)) / width
        worth[left : right + 1] = scaled_sigmoid(inside) / first_worth
        window[left : right + 1] = at
        if width > 1:  # a window of one row has no width to measure by
            after = np.arange(1, end - right) / (width - 1)
            worth[right + 1 : end] = scaled_sigmoid(after)
    scored = slice(n_probation(n), None)
    return Labelled(worth[scored], window[scored], len(windows))


def together(files: Sequence[Labelled]) -> Labelled:
    """The rows of all files, with the windows counted through."""
    windows, n_windows = [], 0
    for file in files:
        windows.append(np.where(file.window == OUTSIDE, OUTSIDE, file.window + n_windows))
        n_windows += file.n_windows
    worth = np.concatenate([file.worth for file in files])
    return Labelled(worth, np.concatenate(windows), n_windows)


def best_score(rows: Labelled, anomaly: FloatArray, profile: Profile) -> Score:
    """The highest score that any one threshold gives; the benchmark chooses it on the labels."""
    order = np.argsort(-anomaly, kind="stable")
    falling, window = anomaly[order], rows.window[order]
    gains, is_new = _swept(rows.worth[order], window, profile)
    is_last = np.append(falling[1:] != falling[:-1], True)  # of rows with equal anomaly scores
    best = int(np.argmax(np.where(is_last, gains, -np.inf)))
    if gains[best] <= 0:
        return Score(0.0, float("inf"), 0, 0)
    taken = slice(0, best + 1)
    n_found, n_false = int(is_new[taken].sum()), int((window[taken] == OUTSIDE).sum())
    score = _normalised(rows, float(gains[best]), profile)
    return Score(score, float(falling[best]), n_found, n_false)


def score_at(rows: Labelled, anomaly: FloatArray, threshold: float, profile: Profile) -> Score:
    """The score at a threshold that was chosen beforehand; below 0 where silence is better."""
    detected = anomaly >= threshold
    if not detected.any():
        return Score(0.0, threshold, 0, 0)
    window = rows.window[detected]
    gains, is_new = _swept(rows.worth[detected], window, profile)
    n_found, n_false = int(is_new.sum()), int((window == OUTSIDE).sum())
    return Score(_normalised(rows, float(gains[-1]), profile), threshold, n_found, n_false)


def _swept(worth: FloatArray, window: Array, profile: Profile) -> tuple[FloatArray, Array]:
    """Detect one row after the other.

    Returns:
        How far the raw score is above that of no detection, after each row; and whether the row is
        the first one that is detected of its window.
    """
    gains, is_new = profile.false * worth, np.zeros(len(worth), bool)
    for one in np.unique(window[window != OUTSIDE]):
        at = np.flatnonzero(window == one)
        best = np.maximum.accumulate(np.append(-profile.missed, profile.found * worth[at]))
        gains[at] = np.diff(best)
        is_new[at[0]] = True
    return np.cumsum(gains), is_new


def _normalised(rows: Labelled, gain: float, profile: Profile) -> float:
    """0 for no detection; 100 for one at the first row of each window, and no other."""
    n_scored = len(np.unique(rows.window[rows.window != OUTSIDE]))
    return 100 * gain / (profile.found * rows.n_windows + profile.missed * n_scored)
