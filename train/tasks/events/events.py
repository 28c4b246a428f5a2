"""Define the task of events from a file: rows of time and mark, or JODIE's files Mooc and Reddit.

The clock of each sequence starts at its first event; a model predicts the gaps of the other events.
Where a file has several sequences, a fifth of them is held out, drawn at random. Of the sequences
in JODIE's files 60 % are for training, 20 % for the choice of settings (not used here) and 20 % are
held out, as in Shchur et al. 2020, "Intensity-Free Learning of Temporal Point Processes". A single
sequence is split in time: its last fifth is held out.

Models see windows: `window` events of a sequence, or all events of a shorter one. Before a held-out
window a model sees up to `window` earlier events as history, which does not count in the scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.runtime.rows.event_columns import EventColumns
from edgefold.runtime.rows.row_format import (
    FormatOptions,
    kept_columns,
    kept_format,
)
from edgefold.runtime.series.options import find_series
from edgefold.train.batch import Batch
from edgefold.train.models.events.event_model import EventModel, event_batch
from edgefold.train.models.events.poisson import Poisson
from edgefold.train.tasks.events.event_files import JODIE, JODIE_URL, EventFile, read_events
from edgefold.train.tasks.events.event_scores import HeldOutEvents
from edgefold.train.tasks.events.event_task import EVALUATION_BATCH, EventTask, sequences

HELD_OUT = 0.2
LEAST = 3
"""Smallest number of events of a sequence that is used; the first event only starts the clock."""
WISH = (
    "data/aftershocks.csv comes with Edgefold; any CSV file or JSON lines with a time and a mark "
    f"will do; mooc.csv and reddit.csv are at {JODIE_URL} (put them into data/)"
)


@dataclass(frozen=True, slots=True)
class EventsOptions:
    """Holds the options of `edgefold train events`; None stands for the value that a run keeps."""

    title: ClassVar[str] = "events"
    csv: Path | None = option(f"the events, needed: {WISH}", "FILE")
    time: str | None = option(
        "column or key of times, numbers or dates (default time, timestamp, datetime, date or ts, "
        "or the first of two columns)",
        "COL",
    )
    mark: str | None = option(
        "column or key of marks, words or numbers (default mark, or the second of two columns)",
        "COL",
    )
    sequence: str | None = option(
        "column or key that names the sequence of a row, as user or machine (default: all rows are "
        "one sequence)",
        "COL",
    )
    window: int | None = option("most events that training sees at once (256)", "N")
    bad_rows: Literal["refuse", "skip"] | None = option(
        "where a row cannot be read: refuse the file (default), or skip the row",
    )
    format: FormatOptions = field(default_factory=FormatOptions)


class EventsTask(EventTask):
    """Draws windows of the events of one file for training, and holds others out for scores.

    Args:
        file: Events of the file.
        described: Entries that say how the file was read: `file`, `format`, `window` and more.
    """

    option_class = EventsOptions
    name = "events"
    about = f"""\
Learn from a file when the next event comes and which: rows of a time and a mark, of one sequence or
of several (--sequence). data/aftershocks.csv comes with Edgefold; any CSV file or JSON lines will
do. Mooc and Reddit are read as they are published at {JODIE_URL}.

Marks may be words. A fifth is held out: sequences, or the end of a single one."""

    def __init__(self, file: EventFile, described: dict[str, Any]):
        self.described, self.window = described, int(described["window"])
        long_enough = [times for times in file.sequences if len(times) >= LEAST]
        if not long_enough:
            raise DataError(f"{described['file']} has no sequence of {LEAST} events or more.")
        raw = [_gaps(events) for events in long_enough]
        if len(raw) == 1:
            n = int((1 - HELD_OUT) * len(raw[0]))
            train, test = [raw[0][:n]], [(raw[0], n)]
        else:
            order = np.random.default_rng(0).permutation(len(raw))
            n_test = max(1, round(HELD_OUT * len(raw)))
            n_train = round(0.6 * len(raw)) if file.is_jodie else len(raw) - n_test
            train = [raw[place] for place in order[:n_train]]
            test = [(raw[place], 0) for place in order[-n_test:]]
        scale = float(np.mean(np.concatenate(train)[:, 0])) if train and len(train[0]) else 0.0
        if not scale > 0:
            raise DataError(
                f"the events of {described['file']} that are for training all come at the same "
                "moment; name the right column of times with --time."
            )
        super().__init__(scale, file.marks)
        self.train = [self._scaled(events) for events in train]
        blocks = np.array([-(-len(events) // self.window) for events in train])
        self._blocks = torch.from_numpy(np.repeat(np.arange(len(train)), blocks))
        windows = [piece for events, n in test for piece in self._pieces(events, n)]
        self.test = sorted(windows, key=lambda piece: len(piece[0]))
        self.notes = _notes(file, described, train, sum(len(e) - n for e, n in test))

    def _scaled(self, events: FloatArray) -> Tensor:
        return torch.from_numpy(events / np.array([self.time_scale, 1.0])).float()

    def _pieces(self, events: FloatArray, first: int) -> list[tuple[Tensor, int]]:
        """Cut held-out windows from a sequence of (gap, mark), (N, 2), from event `first` on.

        Returns:
            For each window its events (n, 2), scaled, and how many of them are only history.
        """
        starts = range(first, len(events), self.window)
        history = [min(start, self.window) for start in starts]
        return [
            (self._scaled(events[start - before : start + self.window]), before)
            for start, before in zip(starts, history, strict=True)
        ]

    @classmethod
    def from_options(cls, args: EventsOptions, kept: dict[str, Any] | None = None) -> EventsTask:
        """Read the file that the options name and return its task.

        An option that is None is as in `kept`, what a resumed run stores; without `kept` it has its
        default. DataError is raised where no file is found, or its events are not the run's.
        """
        before = kept or {}
        path = args.csv or find_series(before)
        if path is None:
            name = before.get("file")
            where = f"{name} is neither here nor in data/; " if name else ""
            raise DataError(f"{where}give --csv FILE. {WISH}.")

        def chosen(name: str, default: Any) -> Any:
            given = getattr(args, name)
            return before.get(name, default) if given is None else given

        format = kept_format(before, args.format.given)
        skip, window = chosen("bad_rows", "refuse") == "skip", chosen("window", 256)
        if window < 2:
            raise DataError(f"--window is {window}; windows of events need at least 2.")
        columns = EventColumns(
            args.time,
            chosen("mark", None),
            format=format,
            remembered=kept_columns(before),
        )
        sequence = chosen("sequence", None)
        file = read_events(path, columns, sequence, skip)
        described = {
            "file": path.name,
            "columns": list(file.columns),
            "clock": file.clock,
            "sequence": sequence,
            "window": window,
            "bad_rows": "skip" if skip else "refuse",
            "format": format.to_json(),
        }
        task = cls(file, described)
        now = task.describe()
        changed = [name for name in before if name != "file" and now.get(name) != before[name]]
        if changed:
            raise DataError(
                f"{path} and these options give other events than the run was trained on "
                f"({', '.join(changed)} differ); give the same file with --csv."
            )
        return task

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **self.described}

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw windows of events so that each event comes about equally often."""
        chosen = self._blocks[torch.randint(len(self._blocks), (n_tasks,), generator=generator)]
        parts = []
        for events in (self.train[place] for place in chosen.tolist()):
            most = max(1, len(events) - self.window + 1)
            start = int(torch.randint(most, (), generator=generator))
            parts.append(events[start : start + self.window])
        return event_batch(*sequences(parts))

    def held_out(self, n_batches: int, seed: int) -> list[HeldOutEvents]:
        """Return batches of held-out windows; where there are more, the seed chooses n_batches."""
        parts = []
        firsts = range(0, len(self.test), EVALUATION_BATCH)  # windows of about the same length
        for place in np.random.default_rng(seed).permutation(len(firsts))[:n_batches]:
            pieces = self.test[firsts[place] : firsts[place] + EVALUATION_BATCH]
            events, real = sequences([events for events, _ in pieces])
            begins = torch.tensor([before for _, before in pieces])
            parts.append(
                HeldOutEvents(events, real & (torch.arange(events.shape[1]) >= begins[:, None]))
            )
        return parts

    def references(self) -> Mapping[str, EventModel]:
        """Return a Poisson process that is fitted to the training part, by its name."""
        return {"a Poisson process": Poisson.fitted(torch.cat(self.train), len(self.marks))}


def _gaps(events: FloatArray) -> FloatArray:
    """Turn n events of (time, mark) into n - 1 of (gap, mark); a gap is the time since the last."""
    return np.stack([np.diff(events[:, 0]), events[1:, 1]], 1)


def _notes(
    file: EventFile, described: Mapping[str, Any], train: list[FloatArray], n_test: int
) -> tuple[str, ...]:
    name, n_events = described["file"], sum(map(len, file.sequences))
    n, published = len(file.sequences), JODIE.get(described["file"])
    counts = n_events, n, len(file.marks)
    differs = (
        f"the published {name} has {published[0]:,} rows, {published[1]:,} users and "
        f"{published[2]:,} items: this one is another or a part of it"
        if file.is_jodie and published not in (None, counts)
        else ""
    )
    n_short = sum(len(events) < LEAST for events in file.sequences)
    return (
        f"{name}: {n_events:,} events in {n:,} {'sequences' if n > 1 else 'sequence'}, "
        f"{len(file.marks):,} marks",
        f"{sum(map(len, train)):,} events are for training, {n_test:,} are held out",
        *([differs] if differs else []),
        *([f"{file.n_bad:,} lines were skipped, as asked"] if file.n_bad else []),
        *([f"{file.n_moved:,} events stood out of order; sorted by time"] if file.n_moved else []),
        *([f"{n_short:,} sequences have fewer than {LEAST} events; left out"] if n_short else []),
    )
