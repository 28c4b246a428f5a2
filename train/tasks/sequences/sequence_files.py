"""Read GTZAN and THUMOS14 as features that others have computed: numpy files in a local folder.

The published pipelines keep such features in pickles. Pickles can run code and are not loaded; the
form here is plain arrays, as repositories of online action detection share them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.errors import DataError
from edgefold.train.tasks.sequences.sequence_sources import (
    UNLABELLED,
    LabelledTokens,
    SequenceSet,
    labelled_last,
    standardised,
)

GENRES = (
    *("blues", "classical", "country", "disco", "hiphop"),
    *("jazz", "metal", "pop", "reggae", "rock"),
)
TRACK_SHAPE = (120, 128)
N_TRACKS = 1000
ONE_IN = 10
"""Every tenth of a genre's tracks, in the order of their names, is held out."""

VIDEO_PARTS = {"training": "video_validation_", "held_out": "video_test_"}
"""Beginning of the file names of each part. Models are trained on the data set's validation part,
because its training part is cut to single actions."""
N_VIDEOS = {"training": 200, "held_out": 213}
ACTIONS = (
    *("background", "baseball pitch", "basketball dunk", "billiards", "clean and jerk"),
    *("cliff diving", "cricket bowling", "cricket shot", "diving", "frisbee catch", "golf swing"),
    *("hammer throw", "high jump", "javelin throw", "long jump", "pole vault", "shot put"),
    *("soccer penalty", "tennis swing", "throw discus", "volleyball spiking"),
)
N_ACTIONS = len(ACTIONS) - 1
N_COLUMNS = (N_ACTIONS, N_ACTIONS + 2)
"""Possible numbers of columns of a video's targets: one for each action, or in addition one for
background before them and one for ambiguous tokens after them."""
VIDEO_WINDOW = 64

HOW_TO_GET = {
    "gtzan": (
        "GTZAN (Tzanetakis and Cook 2002) is 1,000 tracks of 30 s in 10 genres, 1.2 GB, for "
        "example at https://www.kaggle.com/datasets/andradaolteanu/gtzan-dataset-music-genre-"
        "classification. Run VGGish, trained on AudioSet, on clips of 1 s that begin 0.25 s after "
        "each other, 120 a track with zeros behind the end, and save each track by numpy.save as "
        "FOLDER/GENRE/NAME.npy, (120, 128), with the genres' folders named "
        f"{', '.join(GENRES)}."
    ),
    "thumos14": (
        "Features of THUMOS14's 413 videos are at https://github.com/zhaoyue-zephyrus/TeSTra, in "
        "the form of https://github.com/amazon-science/long-short-term-transformer: --folder is "
        "the folder that holds rgb_kinetics_resnet50, flow_kinetics_bninception (or those of anet) "
        "and target_perframe, each with a video's array as video_validation_0000051.npy: features "
        "(T, D), targets (T, 22)."
    ),
}
"""Text for each source on where its files are found, their form, and where to put them."""


def gtzan(folder: Path) -> SequenceSet:
    """Read the tracks of GTZAN as VGGish features, (120, 128) each, with a label at the last token.

    Raises:
        DataError: A genre has fewer than two tracks, or a track is not an array of finite numbers
            of that shape.
    """
    training: list[LabelledTokens] = []
    held_out: list[LabelledTokens] = []
    for label, genre in enumerate(GENRES):
        paths = sorted((folder / genre).glob("*.npy"))
        if len(paths) < 2:
            raise DataError(
                f"{folder / genre} holds {len(paths)} tracks as .npy files, and each genre needs "
                f"two or more. {HOW_TO_GET['gtzan']}"
            )
        for number, path in enumerate(paths):
            tokens = _array(path, "gtzan")
            if tokens.shape != TRACK_SHAPE:
                raise _other_form(path, tokens, f"{TRACK_SHAPE}, 120 clips of 128", "gtzan")
            unfit = np.flatnonzero(~np.isfinite(tokens).all(1))
            if len(unfit):
                raise DataError(f"{path}, token {unfit[0]}, is not finite; compute it again.")
            is_held_out = number % ONE_IN == min(ONE_IN, len(paths)) - 1
            (held_out if is_held_out else training).append(labelled_last(tokens, label))
    n = len(training) + len(held_out)
    shift, scale = standardised(training)
    whole = "" if n == N_TRACKS else f" (the data set has {N_TRACKS:,})"
    return SequenceSet(
        training,
        held_out,
        classes=GENRES,
        window=TRACK_SHAPE[0],
        n_scored=1,
        shift=shift,
        scale=scale,
        rate_hz=4.0,
        note=f"{n:,} tracks{whole}, {len(held_out)} of them held out",
    )


def thumos14(folder: Path, pretrained: str) -> SequenceSet:
    """Read the videos of THUMOS14 as features of pictures (rgb) and motion (flow), a label a token.

    Args:
        folder: Folder of the files, see `HOW_TO_GET`.
        pretrained: Data that the network of the features had learned: "kinetics" or "anet".

    Raises:
        DataError: A folder or the videos of a part are missing, or arrays of a video do not agree.
    """
    places = [_only(folder, f"{kind}_{pretrained}*") for kind in ("rgb", "flow")]
    places.append(_only(folder, "target_perframe"))
    parts: dict[str, list[LabelledTokens]] = {}
    widths = [0, 0]
    for part, prefix in VIDEO_PARTS.items():
        paths = sorted(places[-1].glob(f"{prefix}*.npy"))
        if not paths:
            raise DataError(f"{places[-1]} has no {prefix}*.npy. {HOW_TO_GET['thumos14']}")
        parts[part] = [_video([place / path.name for place in places], widths) for path in paths]
    n_tokens = [sum(map(len, recordings)) for recordings in parts.values()]
    note = ", ".join(
        f"{len(videos):,} videos of {N_VIDEOS[part]} ({part.replace('_', ' ')}, {n:,} tokens)"
        for (part, videos), n in zip(parts.items(), n_tokens, strict=True)
    )
    ones = np.ones(sum(widths), "f4")
    return SequenceSet(
        parts["training"],
        parts["held_out"],
        classes=ACTIONS,
        window=VIDEO_WINDOW,
        n_scored=1,
        shift=0 * ones,
        scale=ones,
        has_background=True,
        note=note,
    )


def _only(folder: Path, pattern: str) -> Path:
    """Return the only folder in `folder` whose name fits the pattern; raise DataError otherwise."""
    folders = sorted(path for path in folder.glob(pattern) if path.is_dir())
    if len(folders) != 1:
        names = ", ".join(path.name for path in folders) or "none"
        raise DataError(
            f"{folder} must hold one folder {pattern}, and holds {names}. {HOW_TO_GET['thumos14']}"
        )
    return folders[0]


def _video(paths: list[Path], widths: list[int]) -> LabelledTokens:
    """Read one video from its files of rgb features, flow features and targets.

    Arrays of one video may differ by some tokens at the end, because flow needs two frames: all are
    cut to the shortest.

    Args:
        paths: Paths of the three files.
        widths: Numbers of columns of rgb and of flow that the video must have. Start with [0, 0]:
            the call for the first video writes its numbers into this list.
    """
    *features, targets = (_array(path, "thumos14") for path in paths)
    for index, (path, array) in enumerate(zip(paths, features, strict=False)):
        if array.ndim != 2 or array.shape[1] != (widths[index] or array.shape[1]):
            wanted = f"(T, {widths[index] or 'D'}) as of the first video"
            raise _other_form(path, array, wanted, "thumos14")
        widths[index] = array.shape[1]
    if targets.ndim != 2 or targets.shape[1] not in N_COLUMNS:
        wanted = f"(T, {N_COLUMNS[1]}), background, {N_ACTIONS} actions, ambiguous"
        raise _other_form(paths[-1], targets, wanted, "thumos14")
    n = min(map(len, (*features, targets)))
    if not n:
        raise DataError(f"{paths[-1]}: the video has no tokens. {HOW_TO_GET['thumos14']}")
    present = np.asarray(targets[:n]) > 0
    if present.shape[1] == N_ACTIONS:
        nothing = ~present.any(1, keepdims=True)
        present = np.concatenate([nothing, present, np.zeros_like(nothing)], 1)
    y = present.argmax(1)
    y = np.where(present.any(1) & (y <= N_ACTIONS), y, UNLABELLED)
    return LabelledTokens(tuple(array[:n] for array in features), y, present[:, : N_ACTIONS + 1])


def _array(path: Path, source: str) -> NDArray[Any]:
    """Map the array of a .npy file into memory; only numbers are read, because pickles run code.

    Where this fails, the DataError explains how to get the files of `source`.
    """
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a numpy array ({error}). {HOW_TO_GET[source]}"
        ) from error
    if array.dtype.kind not in "fiub":
        raise _other_form(path, array, "numbers", source)
    return array


def _other_form(path: Path, array: NDArray[Any], wanted: str, source: str) -> DataError:
    return DataError(
        f"{path} is {array.dtype} of shape {array.shape}, and must be {wanted}. "
        f"{HOW_TO_GET[source]}"
    )
