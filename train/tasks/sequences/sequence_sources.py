"""Load sequences of tokens with labels, which come with Edgefold or from local files.

    source          a token                      a label                     held out
    digits-rows     a row of 8 pixels            after a digit's last row    the last 360 digits
    exercises       6 channels of a smartwatch   at each reading             3 of 10 people
    gtzan           128 VGGish features          after a track's last one    a tenth of each genre
    thumos14        features of a video chunk    at each one                 213 test videos
    human-activity  4 tags of a person           at each time point          a fifth of the windows

Nothing is downloaded. `data/README.md` has sources and licences of what comes with Edgefold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.train.tasks.images.image_sources import HELD_OUT_DIGITS, built_in
from edgefold.train.tasks.sequences.human_activity import ACTIVITIES, read_windows, split_windows

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
UNLABELLED = -1


@dataclass(frozen=True, slots=True)
class LabelledTokens:
    """Holds one sequence of T tokens with labels; a stream is reset before it.

    Attributes:
        parts: Arrays (T, X_i) whose columns together are the tokens; they may be mapped from files.
        y: Class of each token, or `UNLABELLED`, (T,).
        truth: True for the classes of each token, (T, K), where it may have several; else None.
    """

    parts: tuple[NDArray[Any], ...]
    y: Labels
    truth: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def tokens(self, start: int = 0, stop: int | None = None) -> Floats:
        """Return the tokens (n, X) from place `start` to before `stop`, in raw units."""
        tokens: Floats = np.concatenate([part[start:stop] for part in self.parts], 1, dtype="f4")
        return tokens


@dataclass(frozen=True, slots=True)
class SequenceSet:
    """Holds the recordings of a source.

    Attributes:
        training, held_out: Recordings for training and for scores; they are of different digits,
            people, tracks, videos or windows.
        classes: Names of the K classes.
        window: W, the number of tokens of a training window.
        n_scored: Number of last tokens of a training window that have labels and are scored.
        shift, scale: (X,); a model reads (tokens - shift) / scale in place of raw tokens.
        rate_hz: Tokens a second; 0 where they have no time.
        has_background: Whether class 0 stands for none of the actions.
        note: Text on what the set is made of.
    """

    training: Sequence[LabelledTokens]
    held_out: Sequence[LabelledTokens]
    classes: tuple[str, ...]
    window: int
    n_scored: int
    shift: Floats
    scale: Floats
    rate_hz: float = 0.0
    has_background: bool = False
    note: str = ""

    @property
    def n_inputs(self) -> int:
        """Return X, how many numbers a token has."""
        return len(self.shift)


def standardised(recordings: Sequence[LabelledTokens]) -> tuple[Floats, Floats]:
    """Return shift and scale (X,) that give each column mean 0 and standard deviation 1.

    The scale of a constant column is 1.
    """
    tokens = np.concatenate([recording.tokens() for recording in recordings]).astype(np.float64)
    std = tokens.std(0)
    scale = np.where(std > 1e-6 * np.abs(tokens).max(0), std, 1)
    return tokens.mean(0).astype("f4"), scale.astype("f4")


def labelled_last(tokens: NDArray[Any], label: int) -> LabelledTokens:
    """Make a recording of tokens (T, X) in which only the last token has a label."""
    y = np.full(len(tokens), UNLABELLED, np.int64)
    y[-1] = label
    return LabelledTokens((tokens,), y)


# What comes with Edgefold -------------------------------------------------------------------------

BUILT_IN = "built_in_sequences.npz"
MIDDLE_GREY = 8.0
"""Middle of the range of a pixel, 0 to 16."""
ENDLESS_DIGITS = 3
"""Number of digits in a window of the endless stream."""
READING_STEPS = (0.01, 0.01, 0.01, 0.02, 0.02, 0.02)
"""Unit of the stored readings, in the units of the accelerometer and the gyroscope."""
EXERCISES = (
    *("pendulum", "abduction", "forward elevation", "internal rotation", "external rotation"),
    *("trapezius extension", "upright row"),
)
HELD_OUT_PEOPLE = (8, 9, 10)
EXERCISES_HZ = 12.5


def _built_in(*names: str) -> list[NDArray[Any]]:
    with (
        as_file(files("edgefold.train.tasks.sequences") / BUILT_IN) as path,
        np.load(path) as arrays,
    ):
        return [arrays[name] for name in names]


def digits(endless: bool = False) -> SequenceSet:
    """Return the digits of scikit-learn as sequences: each row of pixels is a token.

    Args:
        endless: Whether the digits of each part follow each other in one stream without a reset, in
            random order: in the file they come as 0, 1, 2, .. again and again.
    """
    (images,), (labels,) = built_in("digits"), _built_in("digit_labels")
    each = [labelled_last(image, label) for image, label in zip(images, labels, strict=True)]
    training, held_out = each[:-HELD_OUT_DIGITS], each[-HELD_OUT_DIGITS:]
    if endless:
        random = np.random.default_rng(0)
        training, held_out = (
            [_joined([part[i] for i in random.permutation(len(part))])]
            for part in (training, held_out)
        )
    size = images.shape[-1]
    grey = np.full(size, MIDDLE_GREY, "f4")
    return SequenceSet(
        training,
        held_out,
        classes=tuple(map(str, range(10))),
        window=size * (ENDLESS_DIGITS if endless else 1),
        n_scored=1,
        shift=grey,
        scale=grey,
        note=f"{len(images) - HELD_OUT_DIGITS:,} digits of {size} rows, {HELD_OUT_DIGITS} held out",
    )


def _joined(recordings: Sequence[LabelledTokens]) -> LabelledTokens:
    tokens = np.concatenate([recording.tokens() for recording in recordings])
    return LabelledTokens((tokens,), np.concatenate([recording.y for recording in recordings]))


def exercises() -> SequenceSet:
    """Return shoulder exercises as a smartwatch's accelerometer and gyroscope see them, at 12.5 Hz.

    A window lasts 5.1 s, in which an exercise is done two or three times.
    """
    names = ("readings", "lengths", "labels", "subjects")
    readings, lengths, labels, subjects = _built_in(*(f"exercise_{name}" for name in names))
    values = (readings.T * np.array(READING_STEPS)).astype("f4")
    each = np.split(values, np.cumsum(lengths)[:-1].astype(int))
    parts: tuple[list[LabelledTokens], list[LabelledTokens]] = ([], [])
    for tokens, label, subject in zip(each, labels, subjects, strict=True):
        y = np.full(len(tokens), label, np.int64)
        parts[subject in HELD_OUT_PEOPLE].append(LabelledTokens((tokens,), y))
    training, held_out = parts
    shift, scale = standardised(training)
    return SequenceSet(
        training,
        held_out,
        classes=EXERCISES,
        window=64,
        n_scored=16,
        shift=shift,
        scale=scale,
        rate_hz=EXERCISES_HZ,
        note=f"{len(training)} recordings of 7 people, {len(held_out)} of 3 others held out",
    )


# A file that another task reads too ---------------------------------------------------------------


def human_activity(file: Path) -> SequenceSet:
    """Return the windows of the task human-activity as sequences of time points."""
    windows = read_windows(file)
    training, held_out = (
        [
            LabelledTokens((x.numpy(),), y[:, 0].numpy().astype(np.int64))
            for x, y in zip(part.x, part.y, strict=True)
        ]
        for part in split_windows(windows)
    )
    first = {number: name for name, number in reversed(ACTIVITIES.items())}
    n, (shift, scale) = windows.x.shape[1], standardised(training)
    return SequenceSet(
        training,
        held_out,
        classes=tuple(first[number] for number in sorted(first)),
        window=n,
        n_scored=n,
        shift=shift,
        scale=scale,
        note=f"{len(training):,} windows of {n} time points, {len(held_out):,} held out",
    )
