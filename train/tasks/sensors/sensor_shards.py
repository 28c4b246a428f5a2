"""Store features of many streams in files, computed once by experts (simple predictors).

    FOLDER/
      made-of.json           slots of a stream, seed
      probe.npz              some streams and their features, to detect that the experts changed
      00000-256-features.npy (256, T, F) float16
      00000-256-answers.npy  (256, T, 3) float32: z, whether it counts, log density of the experts

The experts learn online, so they must read each stream from its start. No training changes them:
they read a shard, which is up to 256 streams, once, all its streams at the same time. The network
then reads the files, mapped into memory, as often as it likes. Each shard has its own generator:
missing shards can be made in any order and come out with the same bits. Of a shard's files the
answers are written last, and each file is written as a whole or not at all.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError, TrainingError
from edgefold.runtime.files import replacing, write_atomic
from edgefold.runtime.series.durations import duration
from edgefold.train.models.sensors.features import N_FEATURES
from edgefold.train.models.sensors.model import Sensors, WatchedStreams
from edgefold.train.tasks.sensors.sensor_corpus import draw_piece, draw_stream, read_corpus
from edgefold.train.tasks.sensors.sensor_prior import FAMILIES, draw_sensor

SHARD = 256
"""Number of streams that the experts read at the same time: a step takes little longer than for
one stream."""
PROBE_SEED, PROBE_SLOTS = 20240609, 160
PROBE_BOUND, PROBE_SHARE = 0.02, 0.01
"""Relative difference that counts as a change of the probe, and the share of its numbers that may
differ by more: another machine rounds in another way."""
SPARE_BYTES = 1 << 28
INTERVAL_S = 20.0
Z, COUNTS, LOG_DENSITY = range(3)


@dataclass(frozen=True, slots=True)
class StreamSet:
    """Describes a set of random streams: their number, their time steps, the seed of the draw."""

    n_streams: int = 8_000
    n_slots: int = 2_048
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_streams < 1 or self.n_slots < 64:
            raise TrainingError(
                f"{self.n_streams} streams of {self.n_slots} slots were asked for; give at least "
                "one stream and 64 slots."
            )

    def rows(self, shard: int) -> Array:
        """Draw the S streams of a shard (file) again from the seed; return their rows, (T, S, 4).

        Columns are as in `DrawnSensor`.
        """
        random, corpus = np.random.default_rng((self.seed, shard)), read_corpus()
        drawn = [draw_stream(random, self.n_slots, corpus).rows for _ in range(self.size(shard))]
        return np.stack(drawn, 1)

    def size(self, shard: int) -> int:
        """Return the number of streams of shard (file) number `shard`."""
        return min(SHARD, self.n_streams - shard * SHARD)

    @property
    def n_shards(self) -> int:
        return -(-self.n_streams // SHARD)


Say = Callable[[str], None]
Maker = Callable[[StreamSet, list[int], Say], Iterator[tuple[int, tuple[Array, Array]]]]
"""Makes shards of a set by their numbers, and yields the number and the arrays of each."""


class Shards:
    """Makes and reads the files with the network's features and targets of a set of streams.

    Args:
        folder: Folder of the files; made if missing.
        streams: The set of streams.
    """

    def __init__(self, folder: Path, streams: StreamSet):
        self.folder, self.streams = folder, streams
        self._parts: list[tuple[Array, Array]] = []

    def complete(self, say: Say, maker: Maker | None = None) -> None:
        """Make the files that are missing, and open all files.

        Args:
            say: Takes a line of text on the progress.
            maker: Makes shards on other machines; None makes them here.

        Raises:
            TrainingError: The folder holds other streams, the disk has no room for these, or the
                maker cannot make them.
        """
        missing = [k for k in range(self.streams.n_shards) if not self._files(k)[1].exists()]
        self._agree(features_of_probe())
        if missing:
            n_missing = sum(self.streams.size(shard) for shard in missing)
            self._require_room(n_missing)
            say(
                f"experts go over {n_missing:,} streams of {self.streams.n_slots:,} slots, kept in "
                f"{self.folder}; a run that stops goes on from there"
            )
        n_done, began_s = 0, time.monotonic()
        said_s = began_s
        for shard, arrays in (maker or made_here)(self.streams, missing, say):
            self._keep(shard, arrays)
            n_done += self.streams.size(shard)
            now_s = time.monotonic()
            if now_s - said_s > INTERVAL_S and n_done < n_missing:
                left_s = (now_s - began_s) / n_done * (n_missing - n_done)
                say(f"{n_done:,} of {n_missing:,} streams, about {duration(left_s)} left")
                said_s = now_s
        self._parts = [self._open(shard) for shard in range(self.streams.n_shards)]

    def batch(self, streams: Array, starts: Array, n_rows: int) -> tuple[Array, Array]:
        """Return n_rows = N consecutive rows of B streams.

        Args:
            streams: Numbers of the streams, (B,).
            starts: First row that is read of each, (B,).
            n_rows: N, the number of rows.

        Returns:
            Features (B, N, F) and answers (B, N, 3), both float32. Columns of the answers are
            the value's normal quantile z under the experts' forecast; 1 where z is learned, else 0;
            and the log density of the experts in nats.
        """
        features, answers = [], []
        for stream, start in zip(streams.tolist(), starts.tolist(), strict=True):
            part, at = self._parts[stream // SHARD], stream % SHARD
            features.append(part[0][at, start : start + n_rows])
            answers.append(part[1][at, start : start + n_rows])
        return np.stack(features).astype(np.float32), np.stack(answers)

    def _files(self, shard: int) -> tuple[Path, Path]:
        head = f"{shard:05}-{self.streams.size(shard)}"
        return self.folder / f"{head}-features.npy", self.folder / f"{head}-answers.npy"

    def _keep(self, shard: int, arrays: tuple[Array, Array]) -> None:
        for path, array in zip(self._files(shard), arrays, strict=True):
            with replacing(path) as beside, beside.open("wb") as file:
                np.save(file, array)

    def _open(self, shard: int) -> tuple[Array, Array]:
        features, answers = self._files(shard)
        try:
            return np.load(features, mmap_mode="r"), np.load(answers, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise DataError(
                f"{features} or its answers cannot be read ({error}); remove both, and the run "
                "makes them again."
            ) from error

    def _agree(self, probe: Array) -> None:
        """Check that the folder holds features of these streams by the present experts.

        In a new folder, write the files by which later runs check this.

        Args:
            probe: `features_of_probe`.

        Raises:
            DataError: Such a file cannot be read.
            TrainingError: The folder holds features of other streams or by other experts.
        """
        made_of = {name: v for name, v in asdict(self.streams).items() if name != "n_streams"}
        path, kept = self.folder / "made-of.json", self.folder / "probe.npz"
        rows = _probe_rows()
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as beside, beside.open("wb") as file:
                np.savez(file, rows=rows, features=probe)
            write_atomic(path, json.dumps(made_of).encode())
            return
        try:
            content = json.loads(path.read_text())
            with np.load(kept) as arrays:
                same = content == made_of and all(
                    is_close(arrays[name], array)
                    for name, array in (("rows", rows), ("features", probe))
                )
        except (OSError, ValueError, KeyError) as error:
            raise DataError(
                f"{self.folder} is no folder of streams, or is damaged ({error}); choose another "
                "with --data-cache."
            ) from error
        if not same:
            raise TrainingError(
                f"{self.folder} holds streams that were made with other options or by another "
                "version of the experts; remove it, or choose another with --data-cache."
            )

    def _require_room(self, n_streams: int) -> None:
        needed = n_streams * self.streams.n_slots * (2 * N_FEATURES + 12)
        free = shutil.disk_usage(self.folder).free
        if free < needed + SPARE_BYTES:
            raise TrainingError(
                f"the streams take {needed / 1e9:.1f} GB and {self.folder} has {free / 1e9:.1f}; "
                "choose another place with --data-cache, or fewer with --series."
            )


def made_here(
    streams: StreamSet, missing: list[int], say: Say
) -> Iterator[tuple[int, tuple[Array, Array]]]:
    """Make shards in this process, one after the other: a `Maker`."""
    model = Sensors()
    for shard in missing:
        yield shard, make_shard(model, streams, shard)


def make_shard(model: Sensors, streams: StreamSet, shard: int) -> tuple[Array, Array]:
    """Draw the streams of a shard, let the experts go over them, and return `arrays_of` them."""
    return arrays_of(model.watched(torch.from_numpy(streams.rows(shard))))


def features_of_probe() -> Array:
    """Return the features of the probe's streams by the experts of this process."""
    return arrays_of(Sensors().watched(torch.from_numpy(_probe_rows())))[0]


def arrays_of(watched: WatchedStreams) -> tuple[Array, Array]:
    """Return features (B, T, F) of streams in float16 and their answers (B, T, 3) in float32.

    Columns of the answers are z, counts and log_density of `WatchedStreams`.
    """
    features = watched.features.transpose(0, 1).half().contiguous()
    answers = torch.stack([watched.z, watched.counts, watched.log_density], -1).transpose(0, 1)
    return features.numpy(), answers.contiguous().numpy()


def _probe_rows() -> Array:
    """Return the `DrawnSensor` rows (T, B, 4) of B streams, one of each kind, always the same."""
    random, corpus = np.random.default_rng(PROBE_SEED), read_corpus()
    drawn = [draw_sensor(random, PROBE_SLOTS, family) for family in FAMILIES]
    drawn.append(draw_piece(random, PROBE_SLOTS, corpus))
    return np.stack([stream.rows for stream in drawn], 1)


def is_close(one: Array, other: Array) -> bool:
    """Return whether two arrays have one shape, and 99 % of numbers differ < 0.02 (1 + |other|)."""
    if one.shape != other.shape:
        return False
    one, other = one.astype(np.float64), other.astype(np.float64)
    apart = np.abs(one - other) > PROBE_BOUND * (1 + np.abs(other))
    return bool(apart.mean() <= PROBE_SHARE)
