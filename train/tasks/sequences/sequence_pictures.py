"""Draw the probabilities of the classes along held-out recordings, above the true classes."""

from __future__ import annotations

import io

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from edgefold.train.contract import StreamingModel
from edgefold.train.tasks.sequences.sequence_scores import answers
from edgefold.train.tasks.sequences.sequence_sources import UNLABELLED, LabelledTokens, SequenceSet

N_WINDOWS = 12
"""Number of windows whose tokens are drawn: up to two of each recording, or more where there are
few recordings."""
UNKNOWN = (0.9, 0.9, 0.9)


def draw_probabilities(
    sequences: SequenceSet, model: StreamingModel, format: str, seed: int, title: str
) -> bytes:
    """Draw stacked probabilities of the classes, and in a band below the class of each token.

    A vertical line marks where a recording begins and the stream is reset. Where a recording has
    only one label, it stands for all of its tokens.

    Args:
        sequences: The recordings.
        model: The model, in evaluation mode.
        format: File format: png, svg or pdf.
        seed: Seed that chooses the recordings.
        title: Title of the picture.

    Returns:
        The content of the picture file.
    """
    order = np.random.default_rng(seed).permutation(len(sequences.held_out))
    chosen: list[LabelledTokens] = []
    n_tokens = N_WINDOWS * sequences.window
    n_most = max(2 * sequences.window, n_tokens // len(order))
    for index in order:
        n_left = n_tokens - sum(map(len, chosen))
        if n_left > 0:
            chosen.append(_beginning(sequences.held_out[index], min(n_left, n_most)))
    probabilities = np.exp(np.concatenate(answers(model, chosen, sequences)))
    truth = np.concatenate([_shown(recording.y) for recording in chosen])
    starts = np.cumsum([len(recording) for recording in chosen])[:-1]
    colours = colormaps["tab10" if probabilities.shape[1] <= 10 else "gist_ncar"]
    shades = [
        colours(k if probabilities.shape[1] <= 10 else (k + 0.5) / probabilities.shape[1])
        for k in range(probabilities.shape[1])
    ]
    figure = Figure(figsize=(11, 3.6))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))
    pace = sequences.rate_hz or 1.0
    times = np.arange(len(probabilities)) / pace
    upper.stackplot(times, probabilities.T, colors=shades, labels=sequences.classes, step="post")
    upper.set(ylabel="probability", ylim=(0, 1), title=title)
    cells = ListedColormap([UNKNOWN, *shades])
    extent = (0, len(probabilities) / pace, 0, 1)
    band = {"cmap": cells, "vmin": 0, "vmax": len(shades), "aspect": "auto", "extent": extent}
    lower.imshow(truth[None] + 1, **band)
    lower.set(yticks=[], ylabel="truth", xlabel="seconds" if sequences.rate_hz else "tokens")
    for axes in (upper, lower):
        for start in starts:
            axes.axvline(start / pace, color="black", linewidth=0.7)
    upper.set_xlim(0, extent[1])
    upper.legend(loc="center left", bbox_to_anchor=(1.0, 0.4), fontsize=8, frameon=False)
    figure.tight_layout()
    file = io.BytesIO()
    figure.savefig(file, format=format, dpi=130)
    return file.getvalue()


def _beginning(recording: LabelledTokens, n: int) -> LabelledTokens:
    return LabelledTokens(tuple(part[:n] for part in recording.parts), recording.y[:n])


def _shown(y: np.ndarray) -> np.ndarray:
    labels = np.unique(y[y != UNLABELLED])
    return np.full_like(y, labels[0]) if len(labels) == 1 else y
