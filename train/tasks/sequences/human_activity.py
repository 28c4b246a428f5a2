"""Define the task human-activity: name what a person does, from the places of four worn tags.

The data are UCI's "Localization Data for Person Activity" (Kaluza et al. 2010), prepared as in the
papers that compare on it (Rubanova et al. 2019; Shukla and Marlin 2021; Feng et al. 2024, section
4.3): readings within 10 ms are one time point, the mean where a tag has several; windows of 50
time points, each beginning 25 after the one before; four fifths of the windows for training, drawn
at random, so that windows of both parts overlap. The file names eleven activities; those papers'
preparation merges them to seven, and so does this one.

A window's 50 points are context and targets alike. x is the time since the window's beginning in
units of 1.5 s, x, y and z in metres of left ankle, right ankle, chest and belt, 0 for a tag without
reading, and four numbers that are 1 for tags with one. y is the activity's number. Context points
have the number of no activity, because a model shall not see the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.settings import PAPER_RECIPE
from edgefold.train.tasks.contract import Recipe, Task, hits

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/00196/ConfLongDemo_JSI.txt"
TAGS = ("010-000-024-033", "010-000-030-096", "020-000-033-111", "020-000-032-221")
"""Names in the file of the tags at left ankle, right ankle, chest and belt."""
ACTIVITIES = {
    "walking": 0,
    "falling": 1,
    "lying": 2,
    "lying down": 2,
    "sitting": 3,
    "sitting down": 3,
    "standing up from lying": 4,
    "standing up from sitting": 4,
    "standing up from sitting on the ground": 4,
    "standing up from sit on grnd": 4,
    "on all fours": 5,
    "sitting on the ground": 6,
}
N_ACTIVITIES, UNKNOWN = 7, 7
TICKS_A_POINT = 10**5
"""Ticks of 100 ns, the file's unit of time, in a time point of 10 ms, as in the published
preparation."""
WINDOW, STRIDE = 50, 25
WINDOW_S = 1.5
"""Approximate length of a window in seconds, by which times are divided."""
TEST_SHARE = 0.2
EVALUATION_BATCH = 32


@dataclass(frozen=True, slots=True)
class Windows:
    """Holds n windows of 50 time points: inputs x (n, 50, 17) and activities y (n, 50, 1).

    Columns of x: time, 12 coordinates of four tags, and for each tag 1 if it has a reading, else 0.
    """

    x: Tensor
    y: Tensor


def read_windows(path: Path) -> Windows:
    """Read a file in UCI's form and cut all its recordings into windows.

    Raises:
        DataError: There is no such file, a line has another form, or no recording is long enough.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}). Download {URL} and give its place with "
            "--file, or of the task sequences with --folder."
        ) from error
    recordings: dict[str, _TagReadings] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                name, tag, ticks, _, *place, activity = line.strip().split(",")
                recordings.setdefault(name, _TagReadings(int(ticks))).add(
                    TAGS.index(tag), int(ticks), [float(v) for v in place], ACTIVITIES[activity]
                )
            except (ValueError, KeyError, IndexError) as error:
                raise DataError(
                    f"{path}, line {number} is not recording,tag,ticks,date,x,y,z,activity as in "
                    f"{URL}: {line[:80]!r}."
                ) from error
    windows = [window for recording in recordings.values() for window in recording.windows()]
    if not windows:
        raise DataError(f"{path} has no recording of more than {WINDOW} time points.")
    x, y = (torch.from_numpy(np.stack(part)).float() for part in zip(*windows, strict=True))
    return Windows(x, y)


def split_windows(windows: Windows) -> tuple[Windows, Windows]:
    """Return windows for training, then held-out ones (a fifth); the random split never changes."""
    order = torch.randperm(len(windows.x), generator=torch.Generator().manual_seed(42))
    n_test = max(1, round(TEST_SHARE * len(order)))
    test, train = (
        Windows(windows.x[part], windows.y[part]) for part in (order[:n_test], order[n_test:])
    )
    return train, test


class _TagReadings:
    """Collects the readings of one recording by time point, and cuts them into windows.

    Args:
        first: Time of the first reading, in ticks of 100 ns.
    """

    def __init__(self, first: int):
        self.first = first
        self.points: dict[int, list[tuple[int, list[float]]]] = {}
        self.activities: dict[int, int] = {}

    def add(self, tag: int, ticks: int, place: list[float], activity: int) -> None:
        if len(place) != 3:
            raise ValueError("a place has three numbers")
        point = round((ticks - self.first) / TICKS_A_POINT)
        self.points.setdefault(point, []).append((tag, place))
        self.activities.setdefault(point, activity)

    def windows(self) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Cut the recording into windows; return x (50, 17) and y (50, 1) of each."""
        times = np.array(sorted(self.points))
        rows = np.zeros((len(times), 1 + 4 * len(TAGS)))
        for row, time in zip(rows, times, strict=True):
            for tag in range(len(TAGS)):
                places = [place for pairs, place in self.points[time] if pairs == tag]
                if places:
                    row[1 + 3 * tag : 4 + 3 * tag] = np.mean(places, 0)
                    row[1 + 3 * len(TAGS) + tag] = 1
        labels = np.array([[self.activities[time]] for time in times])
        pairs = []
        for start in range(0, len(times) - WINDOW, STRIDE):
            x, y = rows[start : start + WINDOW].copy(), labels[start : start + WINDOW]
            seconds = (times[start : start + WINDOW] - times[start]) / 100
            x[:, 0] = seconds / WINDOW_S
            pairs.append((x, y))
        return pairs


@dataclass(frozen=True, slots=True)
class HumanActivityOptions:
    """Holds the options of `edgefold train human-activity`."""

    file: Path = option(
        "the data's file (data/ConfLongDemo_JSI.txt)", default=Path("data/ConfLongDemo_JSI.txt")
    )


class HumanActivityTask(Task):
    """Draws windows of a local file, in which a model names the activity at each time point.

    Args:
        file: Path of UCI's file, see `URL`.
    """

    option_class = HumanActivityOptions
    name = "human-activity"
    about = f"Learn to tell a person's activity from four tags. Download {URL} for --file."
    n_inputs = 1 + 4 * len(TAGS)
    n_outputs = 1
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 5_000,
        "batch": 16,
        "warmup": 200,
        "learning_rate": 5e-4,
        "threads": 1,
    }
    recipe = Recipe({**PAPER_RECIPE, "steps": 100_000, "batch": 16})  # the paper states no steps
    prediction = "categorical"
    model_settings: Mapping[str, Any] = {
        "n_classes": N_ACTIVITIES + 1,
        "order": "axis",
        "reward": "accuracy",
        "fourier_std": 1.5,
    }

    def __init__(self, file: Path):
        self.file = file
        windows = read_windows(file)
        self.train, self.test = split_windows(windows)
        n_windows, n_test = len(windows.x), len(self.test.x)
        self.notes = (f"{n_windows:,} windows, {n_test:,} of them held out",)

    @classmethod
    def from_options(
        cls, args: HumanActivityOptions, kept: dict[str, Any] | None = None
    ) -> HumanActivityTask:
        return cls(Path(kept["file"]) if kept else args.file)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "file": str(self.file.resolve())}

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        return _batch(
            self.train, torch.randint(0, len(self.train.x), (n_tasks,), generator=generator)
        )

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Return the share of held-out time points whose activity is right, as JSON and as text.

        The first n_batches batches of 32 windows are scored; `seed` is not used. The text begins
        with `names`, the run and how long it was trained.
        """
        parts = torch.arange(len(self.test.x)).split(EVALUATION_BATCH)[:n_batches]
        right = torch.cat([hits(model, _batch(self.test, part)) for part in parts])
        share = right.mean().item()
        scores = {"accuracy": share, "n_windows": len(right)}
        return {self.name: scores}, f"{names[0]}, {names[1]}: {100 * share:.1f} % right"


def _batch(windows: Windows, chosen: Tensor) -> Batch:
    x, y = windows.x[chosen], windows.y[chosen]
    return Batch(x, torch.full_like(y, UNKNOWN), x, y)
