"""Define the task of the general model of sensors: made-up sensors and pieces of real series.

The model is a mixture of experts, simple predictors that learn online, and a network that corrects
their mixture. The experts have no weights, so that training has two stages:

    draw streams ──> experts and mixture go over each once ──> shards of features and z on disk
    shards ──> batches of consecutive rows ──> the network learns to correct the mixture

A batch begins at the first row of a stream in one half of the cases: there the network learns what
to do while experts are young. In the other half it begins anywhere, with an empty memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from edgefold.runtime.errors import TrainingError
from edgefold.runtime.options import option
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.models.sensors.features import N_FEATURES
from edgefold.train.tasks.contract import N_CALIBRATED, Episode, Task, TaskStreams, options_of
from edgefold.train.tasks.sensors.sensor_prior import VALUE, DrawnSensor, draw_sensor
from edgefold.train.tasks.sensors.sensor_scores import answers_of, as_json, scores_by_family, table
from edgefold.train.tasks.sensors.sensor_shards import (
    COUNTS,
    LOG_DENSITY,
    Maker,
    Shards,
    StreamSet,
    Z,
)

N_ROWS = 1_024
"""Number of rows of a stream in a batch."""
FROM_START = 0.5
CACHE = "streams"
OPTIONS = ("series", "slots", "rows", "data_seed")
"""Names of the options that a run keeps. `CACHE` is the folder of the shards in a run's folder."""
HELD_OUT_SEED = 20240606
MOST_STREAMS, EVALUATED_SLOTS = 1_024, 1_600
"""Largest number of streams of an evaluation, and slots of each: it takes one to two minutes."""


OWN = StreamSet()


@dataclass(frozen=True, slots=True)
class SensorsOptions:
    """Holds the options of `edgefold train sensors`; None where the user left an option out.

    Then a resumed run keeps its value, and a new run takes the default.

    Attributes:
        out: Folder of the run.
    """

    title: ClassVar[str] = "streams"
    series: int | None = option(f"streams that are drawn ({OWN.n_streams:,})", "N")
    slots: int | None = option(f"slots of each ({OWN.n_slots:,})", "N")
    rows: int | None = option(f"consecutive rows of a stream in a batch ({N_ROWS:,})", "N")
    data_seed: int | None = option(f"of the streams ({OWN.seed})", "N")
    data_cache: Path | None = option(
        f"where what the experts saw is kept (default: {CACHE} in the run's folder); runs with the "
        "same streams can share it, and it may be removed after training",
        "FOLDER",
    )
    scheduler: str = option(
        "let the workers of this dask cluster go over the streams, such as tcp://10.0.0.5:8786; "
        "they need Edgefold with the extras train and dask, and no files (default: this machine)",
        "ADDRESS",
        default="",
    )
    out: Path | None = None


class SensorsTask(Task):
    """Draws consecutive rows of streams, with features from the experts (simple predictors).

    Args:
        cache: Folder of the files with features (shards); `prepare` makes it.
        drawn: The set of streams that are drawn.
        n_rows: Number of rows of a stream in a batch.
        kept_cache: Text by which the run's description names `cache`; empty for the default folder,
            which lies in the run's folder.
        scheduler: Address of a dask scheduler whose workers make the files; empty: this process.
    """

    option_class = SensorsOptions
    name = "sensors"
    n_inputs, n_outputs = 4, 1
    n_features = N_FEATURES
    default_model = "sensors"
    filters, prediction = True, "sensor-forecast"
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 20_000,
        "batch": 16,
        "warmup": 200,
        "learning_rate": 2e-3,
        "threads": 1,
    }
    about = """\
Learn the general model of sensors, as it is shipped: a network that corrects online experts, from
made-up sensors and pieces of real series. The experts first go over all streams, which takes
minutes and some GB of disk; then the network trains on what they saw. See docs/tasks.md."""

    def __init__(
        self,
        cache: Path = Path(CACHE),
        drawn: StreamSet | None = None,
        n_rows: int = N_ROWS,
        kept_cache: str = "",
        scheduler: str = "",
    ):
        self.scheduler = scheduler
        self.cache, self.drawn, self.kept_cache = cache, drawn or StreamSet(), kept_cache
        self.n_rows = min(n_rows, self.drawn.n_slots)
        if self.n_rows < 1:
            raise TrainingError(f"a batch of {n_rows} rows was asked for; give at least one.")
        self._shards: Shards | None = None

    @classmethod
    def from_options(cls, args: SensorsOptions, kept: dict[str, Any] | None = None) -> SensorsTask:
        """Return the task of the streams that the options name.

        Args:
            args: Options of the command.
            kept: Description of the task of the run that is resumed, if there is one: options that
                the user leaves out are taken from it.

        Raises:
            TrainingError: The resumed run has other options, or they make no sense.
        """
        settings = options_of(args, OPTIONS, kept, TrainingError)
        cache = args.data_cache or (kept or {}).get("cache", "")
        defaults = StreamSet()
        drawn = StreamSet(
            settings.get("series", defaults.n_streams),
            settings.get("slots", defaults.n_slots),
            settings.get("data_seed", defaults.seed),
        )
        place = Path(cache or Path(args.out or "") / CACHE)
        return cls(place, drawn, settings.get("rows", N_ROWS), str(cache), args.scheduler)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "series": self.drawn.n_streams,
            "slots": self.drawn.n_slots,
            "rows": self.n_rows,
            "data_seed": self.drawn.seed,
            "cache": self.kept_cache,
        }

    def prepare(self, say: Callable[[str], None]) -> None:
        """Draw streams and write the experts' features to `cache` where missing; open the files."""
        shards = Shards(self.cache, self.drawn)
        maker: Maker | None = None
        if self.scheduler:
            from edgefold.train.tasks.sensors.shard_cluster import made_by_workers

            maker = partial(made_by_workers, self.scheduler)
        shards.complete(say, maker)
        self._shards = shards

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw rows of n_tasks = B streams.

        Returns:
            A batch whose `x_context` are the features, (B, N, F); `y_context` the values as normal
            scores z under the experts, (B, N, 1); `mask` the rows in which z counts, (B, N); and
            `y_target` the log density of the experts, (B, N, 1). `x_target` has no rows.
        """
        if self._shards is None:
            self.prepare(lambda _: None)
            assert self._shards is not None
        streams = torch.randint(self.drawn.n_streams, (n_tasks,), generator=generator)
        last = self.drawn.n_slots - self.n_rows
        starts = torch.randint(last + 1, (n_tasks,), generator=generator)
        starts = starts * (torch.rand(n_tasks, generator=generator) >= FROM_START)
        features, answers = map(
            torch.from_numpy, self._shards.batch(streams.numpy(), starts.numpy(), self.n_rows)
        )
        return Batch(
            features,
            answers[..., Z : Z + 1],
            features[:, :0],
            answers[..., LOG_DENSITY : LOG_DENSITY + 1],
            answers[..., COUNTS] > 0,
        )

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Score the model's gain over its experts, and its calibration, on held-out streams.

        At most 16 n_batches streams are drawn with `seed`. `names`, the run and how long it was
        trained, head the table. The scores are returned as JSON and as a table.
        """
        from tqdm import tqdm

        n_streams = min(16 * n_batches, MOST_STREAMS)
        streams = held_out(n_streams, EVALUATED_SLOTS, seed)
        with tqdm(
            total=n_streams, desc="evaluate", unit="stream", leave=False, disable=None
        ) as bar:
            answers = answers_of(model, streams, bar.update)
        scores = scores_by_family(answers, np.array([stream.family for stream in streams]))
        return {self.name: as_json(scores)}, table(scores, ", ".join(names))

    @classmethod
    def streams(cls, described: dict[str, Any], args: Any) -> TaskStreams:
        """Return held-out streams to calibrate a precision such as int8, and none to score.

        A forecast of this model is scored by its own later answer, not by a given target. The
        arguments are not used.
        """
        tables = [
            stream.rows.astype(np.float64) for stream in held_out(N_CALIBRATED, EVALUATED_SLOTS, 0)
        ]
        return TaskStreams(
            [Episode(rows, rows[:, VALUE : VALUE + 1], len(rows)) for rows in tables],
            calibrated_on=f"{N_CALIBRATED} made-up sensors",
        )


def held_out(n_streams: int, n_slots: int, seed: int) -> list[DrawnSensor]:
    """Draw made-up sensors for an evaluation, with seeds that no training uses."""
    random = np.random.default_rng((HELD_OUT_SEED + seed, 1 << 32))
    return [draw_sensor(random, n_slots) for _ in range(n_streams)]
