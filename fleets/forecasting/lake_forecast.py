"""Forecast all sensors of a lake on several processes, and go on after any stop.

    census ──> splits, if files hold rows of many shards ──> RESULTS/.work/split/..
           └─> shards ──> units of work on processes ──> RESULTS/forecasts/part-00000.parquet, ..
                                                    └──> one unit joins: sensors.parquet, alarms.csv

RESULTS/.work holds what is done; `edgefold.fleets.work.work_folder` describes it. Forecasts do not
depend on the number of processes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from edgefold.fleets.forecasting.census import Census
from edgefold.fleets.forecasting.job import JOIN, SPLIT, JobSetup
from edgefold.fleets.forecasting.settings import ForecastSettings
from edgefold.fleets.forecasting.shard_result import ShardResult, SummaryFile
from edgefold.fleets.forecasting.shard_rows import ROW_BYTES
from edgefold.fleets.forecasting.split_rows import MOST_READINGS, Split, splits_of
from edgefold.fleets.work.unit import Agenda, Hear, JobSource, WorkUnit
from edgefold.fleets.work.work_folder import remove_work, work_folder
from edgefold.runtime.errors import MemoryLimitError, OutputError
from edgefold.runtime.hashing import sha256

WORK, JOINED, ALL_SPLIT = ".work", "joined", "all-split"
FOLDERS = ("forecasts", "ahead")
FILES = ("sensors.parquet", "sensors.csv", "alarms.csv", "scores.parquet", "worst.png")
PROCESS_BYTES = 220_000_000
"""Memory of a process besides the rows of its shard: Python, pyarrow, the model; measured."""

Runner = Callable[[Agenda, JobSource, Hear], None]
"""Runs the units of an agenda, as `Crew.run` does."""


def require_room(folder: Path) -> None:
    """Refuse a folder that holds finished results.

    Raises:
        OutputError: It does, or it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder with --out.")
    there = _results_in(folder)
    if there and not (folder / WORK).exists():
        raise OutputError(
            f"{folder} holds {', '.join(there)} already; replace with --force, or choose another "
            "folder with --out."
        )


def _results_in(folder: Path) -> list[str]:
    return [name for name in (*FILES, *FOLDERS) if (folder / name).exists()]


def remove_results(folder: Path) -> None:
    """Remove the results of an earlier command; other files stay."""
    for name in _results_in(folder):
        place = folder / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def require_memory(census: Census, n_columns: int, n_processes: int, limit: int) -> None:
    """Refuse shards that do not fit into memory.

    Args:
        census: The sensors in shards.
        n_columns: The number of columns of values.
        n_processes: The number of processes.
        limit: The bytes that all processes may take together.

    Raises:
        MemoryLimitError: They would take more.
    """
    largest = max(census.shards, key=lambda shard: shard.n_rows)
    each = PROCESS_BYTES + largest.n_rows * (ROW_BYTES + 8 * (n_columns - 1))
    if each * n_processes > limit:
        raise MemoryLimitError(
            f"{n_processes} processes with up to {largest.n_rows:,} rows each need some "
            f"{each * n_processes / 1e9:.2g} GB of memory, and {limit / 1e9:.2g} GB are free or "
            "allowed. Take fewer --processes or fewer --columns, leave rows out with --filter, or "
            "allow more with --memory-limit."
        )


def plan_of(settings: ForecastSettings, engine: str, n_shards: int) -> dict[str, str]:
    """Return all on which results depend, as texts by subject."""
    lake, choice, model = settings.lake, settings.choice, settings.model
    files = json.dumps([[file.identity, file.n_rows] for file in lake.files])
    return {
        "command": "forecast 1",
        "files": f"{len(lake.files)} {sha256(files.encode()).hexdigest()[:16]}",
        "columns": json.dumps([choice.by, choice.time, choice.values]),
        "filter": lake.filter.text if lake.filter else "",
        "model": f"{engine} {model.false_alarms!r}",
        "results": f"{settings.with_ahead} {settings.with_scores} {settings.n_skipped}",
        "shards": str(n_shards),
    }


def forecast_lake(
    settings: ForecastSettings,
    census: Census,
    folder: Path,
    engine: str,
    restart: bool,
    run: Runner,
    hear: Hear,
    draw: Callable[[ShardResult], None],
) -> ShardResult:
    """Forecast all sensors and write the results.

    Args:
        settings: What is forecast.
        census: The sensors in shards.
        folder: The folder of results.
        engine: The bundle, and what runs it: results of another one may differ in the last bits.
        restart: Whether finished results and unfinished work in the folder are dropped.
        run: Runs the units.
        hear: Receives news on the progress.
        draw: Draws the pictures of the worst sensors.

    Returns:
        The summaries of all sensors, the scores of all together, and the worst sensors' pictures.

    Raises:
        OutputError: The folder holds unfinished work of another plan.
        WorkError: Processes died again and again.
    """
    place = folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    plan = plan_of(settings, engine, len(census.shards))
    n_columns = len(settings.choice.values)
    with work_folder(place / WORK, plan, restart, "--force") as work:
        if restart:
            remove_results(place)
        names = tuple(f"shard-{shard.number:05}" for shard in census.shards)
        units = [
            WorkUnit(
                name,
                shard,
                f"sensors {shard.start:,} to {shard.stop - 1:,}",
                n_rows=shard.n_rows * n_columns,
                is_remote=True,
            )
            for name, shard in zip(names, census.shards, strict=True)
        ]
        units.append(WorkUnit(JOINED, JOIN, "the tables of all sensors", after=names))
        edges = (*(shard.start for shard in census.shards), len(census.keys))
        is_split = census.n_readings(settings.lake) > MOST_READINGS
        splits = splits_of(settings.lake) if is_split else ()
        setup = JobSetup(settings, census.keys, place, names, work, edges, splits)
        source = JobSource("edgefold.fleets.forecasting.job", "open_job", setup)
        if splits:
            run(Agenda(_split_units(settings, splits), work), source, hear)
        run(Agenda(units, work), source, hear)
        result = SummaryFile.read(work / JOINED)
        draw(result)
    remove_work(place / WORK)
    return result


def _split_units(settings: ForecastSettings, splits: Sequence[Split]) -> list[WorkUnit]:
    """Return the units that split the lake, and the last one that ends them."""
    names = tuple(f"split-{split.number:05}" for split in splits)
    units = [
        WorkUnit(
            name,
            split,
            f"rows of {settings.lake.files[split.file].path}",
            n_rows=split.n_rows,
            is_remote=True,
        )
        for name, split in zip(names, splits, strict=True)
    ]
    return [*units, WorkUnit(ALL_SPLIT, SPLIT, "the splits", after=names)]
