"""Define the task of ordered sequences: a filter reads each token and predicts its class.

A batch is windows of W tokens. The first ones are context, whose answers do not count; the answers
to the last ones, the targets, are scored. No label is ever given to the model. Where a recording is
shorter than a window, the mask hides what would lie before its start.

`evaluate` follows whole recordings without a reset, as a device does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.published import SEQUENCES
from edgefold.train.tasks.contract import (
    N_CALIBRATED,
    Episode,
    Task,
    TaskStreams,
    episode_of,
    options_of,
)
from edgefold.train.tasks.sequences import sequence_files, sequence_sources
from edgefold.train.tasks.sequences.sequence_scores import (
    SIDE_BY_SIDE,
    ClassScores,
    answers,
    baselines,
    score,
    scored,
    window_at,
)
from edgefold.train.tasks.sequences.sequence_sources import LabelledTokens, SequenceSet

SOURCES = ("digits-rows", "exercises", "gtzan", "thumos14", "human-activity")
LOCAL = ("gtzan", "thumos14", "human-activity")
"""Sources that are read from the user's own files."""
OPTIONS = ("source", "folder", "endless", "pretrained")

ABOUT = """\
Learn to name the class of a sequence's tokens as they come. Models are filters: with step().

digits-rows (8x8 digits, row by row) and exercises (a smartwatch at 12.5 Hz) come with edgefold.
gtzan, thumos14 and human-activity are read from files of yours; without them the command says what
to download.

1,000 steps on exercises take some three minutes on one core of a two-core x86-64 machine."""


@dataclass(frozen=True, slots=True)
class SequenceOptions:
    """Holds the options of `edgefold train sequences`; no other command has these options."""

    title: ClassVar[str] = "sequences"
    source: str | None = option("default digits-rows", choices=SOURCES, stored="sequence_source")
    folder: Path | None = option(
        "where the arrays of gtzan or thumos14 lie; of human-activity, UCI's file",
        "PATH",
        stored="sequence_folder",
    )
    endless: bool | None = option(
        "of digits-rows: the digits follow each other in one stream without a reset",
        stored="sequence_endless",
    )
    pretrained: str | None = option(
        "what the network of thumos14's features had learned (default kinetics)",
        choices=("kinetics", "anet"),
        stored="sequence_pretrained",
    )


class SequenceTask(Task):
    """Draws windows of labelled sequences from one source.

    Args:
        source: "digits-rows", "exercises", "gtzan", "thumos14" or "human-activity".
        sequences: Recordings of the source, from `load_sequences`.
        options: Options of the command line by which they were loaded.
    """

    option_class = SequenceOptions
    name = "sequences"
    about = ABOUT
    n_outputs = 1
    default_model = "continual-transformer"
    filters, prediction = True, "categorical"
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 1_000,
        "batch": 32,
        "warmup": 100,
        "learning_rate": 2e-3,
    }

    def __init__(self, source: str, sequences: SequenceSet, options: Mapping[str, Any]):
        self.source, self.sequences, self.options = source, sequences, dict(options)
        self.n_inputs = sequences.n_inputs
        self.model_settings = {
            "n_classes": len(sequences.classes),
            "window": sequences.window,
            "endless": any(len(r) > sequences.window for r in sequences.training),
        }
        self.notes = (f"{source}: {sequences.note}",)
        self._ends = _ends(sequences.training, sequences)
        if not len(self._ends):
            raise DataError(f"{source}: no recording for training has a label where one counts.")

    def describe(self) -> dict[str, Any]:
        """Return the task's name, options, class names, shift and scale of x, for config.json."""
        return {
            "name": self.name,
            **self.options,
            "classes": list(self.sequences.classes),
            "x_shift": self.sequences.shift.tolist(),
            "x_scale": self.sequences.scale.tolist(),
        }

    @classmethod
    def from_options(
        cls, args: SequenceOptions, kept: dict[str, Any] | None = None
    ) -> SequenceTask:
        """Load the sequences that the options name and return their task.

        Args:
            args: Options of the command.
            kept: Description of the task of the run that is resumed, if there is one: options that
                the user leaves out are taken from it.

        Raises:
            DataError: A file is missing or has another form, an option belongs to another source,
                or the resumed run has other options.
        """
        if args.folder is not None:
            args = replace(args, folder=args.folder.resolve())
        named = options_of(args, OPTIONS, kept)
        source = named.get("source", SOURCES[0])
        options = {
            "source": source,
            "folder": named.get("folder", ""),
            "endless": named.get("endless", False),
            "pretrained": named.get("pretrained", "kinetics" if source == "thumos14" else ""),
        }
        return cls(options["source"], load_sequences(**options), options)

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        return self.batch(self.sequences.training, self._ends, n_tasks, generator)

    def batch(
        self,
        recordings: Sequence[LabelledTokens],
        ends: Any,
        n_tasks: int,
        generator: torch.Generator,
    ) -> Batch:
        """Draw windows as a batch, with replacement.

        Args:
            recordings: Recordings to draw from.
            ends: Rows (recording, token), the possible ends of windows.
            n_tasks: Number of windows.
            generator: Source of random numbers.
        """
        chosen = ends[torch.randint(len(ends), (n_tasks,), generator=generator).numpy()]
        n = self.sequences.n_scored
        windows, masks = zip(
            *(window_at(recordings[i], end, self.sequences) for i, end in chosen), strict=True
        )
        y = torch.tensor(np.stack([recordings[i].y[end + 1 - n : end + 1] for i, end in chosen]))
        x, mask = torch.stack(windows), torch.stack(masks)[:, :-n]
        return Batch(
            x[:, :-n],
            x.new_zeros(n_tasks, x.shape[1] - n, 1),  # no labels: a filter does not read them
            x[:, -n:],
            y[..., None].float(),
            None if mask.all() else mask,
        )

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Score a model on held-out recordings; return scores and baselines as JSON, and a table.

        The first n_batches batches of 16 recordings are scored; `seed` is not used. The table names
        the model by `names` (run, length of its training), and has published results, too.
        """
        sequences = self.sequences
        recordings = sequences.held_out[: SIDE_BY_SIDE * n_batches]
        model_scores = score(answers(model, recordings, sequences), recordings, sequences)
        rows = {", ".join(names): model_scores, **baselines(sequences, recordings)}
        results = {name: _as_json(asdict(row)) for name, row in rows.items()}
        scores = {self.source: results.pop(", ".join(names)), "baselines": results}
        return scores, self._table(rows, len(recordings))

    def _table(self, rows: Mapping[str, ClassScores], n_recordings: int) -> str:
        key = "-".join(filter(None, (self.source, self.options["pretrained"])))
        published = SEQUENCES.get(key, {})
        with_map = self.sequences.has_background
        width = max(len(name) + (14 if name in published else 0) for name in (*rows, *published))
        heads = ["right, %", "nats", *(["mAP, %", "cmAP, %"] if with_map else [])]
        lines = [
            f"{self.source}: {n_recordings:,} recordings held out, "
            f"{next(iter(rows.values())).n:,} tokens with a label",
            f"{'':{width}}" + "".join(f"{head:>18}" for head in heads),
        ]
        for name, row in rows.items():
            cells = [f"{100 * row.accuracy:.2f} ± {100 * row.accuracy_error:.2f}", f"{row.nll:.3f}"]
            cells += [f"{100 * v:.2f}" for v in (row.mean_ap, row.mean_cap)] if with_map else []
            lines.append(f"{name:{width}}" + "".join(f"{cell:>18}" for cell in cells))
        for name, stated in published.items():
            cells = [f"{m:.2f} ± {s:.2f}" for m, s in zip(stated[::2], stated[1::2], strict=True)]
            cells = ["", "", *cells] if with_map else cells
            of_paper = f"{name}, as published"
            lines.append((f"{of_paper:{width}}" + "".join(f"{c:>18}" for c in cells)).rstrip())
        return "\n".join(lines)

    def draw(self, model: StreamingModel, format: str, seed: int, title: str) -> bytes:
        from edgefold.train.tasks.sequences.sequence_pictures import draw_probabilities

        return draw_probabilities(self.sequences, model, format, seed, title)

    @classmethod
    def streams(cls, described: dict[str, Any], args: SequenceOptions) -> TaskStreams:
        """Return training windows to calibrate a precision such as int8, held-out ones to score it.

        `described` is the result of `describe` when the model was trained.
        """
        task = cls.from_options(args, described)
        training, held_out = task.sequences.training, task.sequences.held_out
        return TaskStreams(
            list(islice(task._windows(training, 20240611), N_CALIBRATED)),
            {"held out": task._windows(held_out, 20240612)},
            f"{N_CALIBRATED} training windows of {task.source}",
            f"held-out windows of {task.source}",
        )

    def _windows(self, recordings: Sequence[LabelledTokens], seed: int) -> Iterator[Episode]:
        generator, described = torch.Generator().manual_seed(seed), self.describe()
        ends = _ends(recordings, self.sequences)
        while True:
            yield episode_of(self.batch(recordings, ends, 1, generator), described)


def load_sequences(source: str, folder: str, endless: bool, pretrained: str) -> SequenceSet:
    """Load the sequences of a source.

    Args:
        source: "digits-rows", "exercises", "gtzan", "thumos14" or "human-activity".
        folder: Local folder or file of the source; empty where it comes with Edgefold.
        endless: Whether digits-rows is one stream without resets.
        pretrained: Data that the network of thumos14's features had learned; else empty.

    Raises:
        DataError: A file is missing or has another content, or an option is of another source.
    """
    if folder and source not in LOCAL:
        raise DataError(f"{source} comes with edgefold; leave --folder out.")
    if endless and source != "digits-rows":
        raise DataError(f"--endless belongs to digits-rows, not to {source}.")
    if pretrained and source != "thumos14":
        raise DataError(f"--pretrained belongs to thumos14, not to {source}.")
    if source == "digits-rows":
        return sequence_sources.digits(endless)
    if source == "exercises":
        return sequence_sources.exercises()
    if source == "human-activity":
        return sequence_sources.human_activity(Path(folder or "data/ConfLongDemo_JSI.txt"))
    if not folder:
        advice = sequence_files.HOW_TO_GET[source]
        raise DataError(f"--source {source} reads local files; give --folder. {advice}")
    if source == "gtzan":
        return sequence_files.gtzan(Path(folder))
    return sequence_files.thumos14(Path(folder), pretrained)


def _ends(recordings: Sequence[LabelledTokens], sequences: SequenceSet) -> Any:
    """Return the last tokens of all possible windows as rows (recording, token), two indices.

    The last n_scored tokens of each such window have labels.
    """
    ends = []
    for index, recording in enumerate(recordings):
        n = sequences.n_scored
        runs = np.cumsum(recording.y != sequence_sources.UNLABELLED)
        runs[n:] -= runs[:-n].copy()
        last = scored(recording, sequences)
        last = last[last >= min(sequences.window, len(recording)) - 1]
        ends += [(index, place) for place in last[runs[last] == n]]
    return np.array(ends, np.int64).reshape(-1, 2)


def _as_json(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores without those that are NaN, which the source does not have."""
    return {name: value for name, value in scores.items() if not math.isnan(value)}
