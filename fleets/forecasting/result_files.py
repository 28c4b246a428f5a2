"""Write the results that concern all sensors: tables of sensors, alarms and scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from edgefold.fleets.forecasting.census import Key
from edgefold.fleets.forecasting.part_file import SensorNames
from edgefold.fleets.forecasting.sensor_summary import SensorSummary
from edgefold.fleets.forecasting.settings import ForecastSettings
from edgefold.fleets.forecasting.shard_result import N_WORST, ShardResult
from edgefold.fleets.forecasting.shard_rows import LakeTimes
from edgefold.runtime.files import replacing
from edgefold.runtime.rows.csv_fields import write_fields
from edgefold.runtime.sensors.alarms.incidents import NAMES
from edgefold.runtime.sensors.alarms.verdict import Event
from edgefold.runtime.sensors.tables.backtest import BacktestScore

EVENTS = [event for event in get_args(Event) if event]
"""Events, each with a column of its alarms."""
COUNTS = ("rows", "refused", "without_time", "moved", "empty", "missing")
SCORES = ("coverage_90", "mae", "persistence", "log_density")


def write_results(
    folder: Path,
    settings: ForecastSettings,
    keys: Sequence[Key],
    results: Iterable[ShardResult],
) -> ShardResult:
    """Write the files on all sensors.

    Args:
        folder: The folder of results.
        settings: What was forecast.
        keys: The names of all sensors, sorted.
        results: The results of all shards in their order.

    Returns:
        All summaries, the scores of all sensors together, and the pictures of the worst sensors.
    """
    lake, choice = settings.lake, settings.choice
    names = SensorNames([lake.columns[n] for n in choice.by], choice.names_columns)
    joined = ShardResult()
    for result in results:
        joined.summaries += result.summaries
        joined.incidents += result.incidents
        joined.scores += result.scores
        joined.pictures += result.pictures
        joined.pictures.sort(key=lambda each: each.summary.rank)
        del joined.pictures[N_WORST:]
    times = LakeTimes(lake.columns[choice.time] if choice.time else None)
    table = _sensor_table(names, keys, times, joined.summaries)
    _write_parquet(folder / "sensors.parquet", table)
    ends = {name: times.written(table[name]) for name in ("first", "last")}
    _write_csv(folder / "sensors.csv", table, ends)
    with (
        replacing(folder / "alarms.csv") as beside,
        beside.open("w", encoding="utf-8", newline="") as file,
    ):
        write_fields(file, *choice.names, *NAMES)
        for place, column, fields in joined.incidents:
            write_fields(file, *names.texts(keys[place], column), *fields)
    if settings.with_scores:
        _write_parquet(folder / "scores.parquet", _score_table(names, keys, joined.scores))
        joined.scores = _together(joined.scores)
    joined.incidents = []
    return joined


def _write_parquet(path: Path, table: Any) -> None:
    from pyarrow.parquet import write_table

    with replacing(path) as beside:
        write_table(table, beside, compression="zstd")


def _write_csv(path: Path, table: Any, texts: Mapping[str, Sequence[str]]) -> None:
    """Write a table as CSV; `texts` holds the columns that are texts already."""
    columns = {
        name: texts.get(name) or map(_field, table[name].to_pylist()) for name in table.column_names
    }
    with (
        replacing(path) as beside,
        beside.open("w", encoding="utf-8", newline="") as file,
    ):
        write_fields(file, *table.column_names)
        for row in zip(*columns.values(), strict=True):
            write_fields(file, *row)


def _field(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _sensor_table(
    names: SensorNames,
    keys: Sequence[Key],
    times: LakeTimes,
    summaries: Sequence[SensorSummary],
) -> Any:
    """Return a table with a line for each sensor."""
    import pyarrow as pa

    named = [(keys[each.place], each.column) for each in summaries]
    columns = dict(
        zip(
            [field.name for field in names.fields()],
            names.arrays(named, [1] * len(named)),
            strict=True,
        )
    )
    for name in COUNTS:
        attribute = {"without_time": "n_timeless"}.get(name, f"n_{name}")
        columns[name] = pa.array([getattr(each, attribute) for each in summaries], pa.int64())
    columns["pace"] = _numbers(each.pace for each in summaries)
    columns["season"] = pa.array([each.season for each in summaries], pa.int64())
    columns["season_name"] = pa.array([each.season_name or None for each in summaries], pa.string())
    scores = ("coverage_90", "mae", "persistence", "mean_log_density")
    for name, attribute in zip(SCORES, scores, strict=True):
        columns[name] = _numbers(getattr(each, attribute) for each in summaries)
    columns["alarms"] = pa.array([each.n_alarms for each in summaries], pa.int64())
    for event in EVENTS:
        counts = [each.alarms.get(event, 0) for each in summaries]
        columns[f"alarms_{event.replace(' ', '_')}"] = pa.array(counts, pa.int64())
    for name in ("first", "last"):
        columns[name] = times.array_of([getattr(each, name) for each in summaries])
    columns["first_refusal"] = pa.array([each.refusal or None for each in summaries], pa.string())
    return pa.table(columns)


def _numbers(numbers: Iterable[float]) -> Any:
    import pyarrow as pa

    return pa.array([None if math.isnan(n) else n for n in numbers], pa.float64())


def _score_table(names: SensorNames, keys: Sequence[Key], scores: Sequence[tuple[Any, ...]]) -> Any:
    """Return a table with a line for each sensor and horizon."""
    import pyarrow as pa

    named = [(keys[place], column) for place, column, *_ in scores]
    columns = dict(
        zip(
            [field.name for field in names.fields()],
            names.arrays(named, [1] * len(named)),
            strict=True,
        )
    )
    columns["horizon"] = pa.array([line[2] for line in scores], pa.string())
    columns["n"] = pa.array([line[3] for line in scores], pa.int64())
    for at, name in enumerate(BacktestScore._fields[1:], 4):
        columns[name] = _numbers(line[at] for line in scores)
    return pa.table(columns)


def _together(scores: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return for each horizon: forecasts, sensors, median ratio, mean coverage of all forecasts."""
    found: list[tuple[Any, ...]] = []
    for horizon in dict.fromkeys(line[2] for line in scores):
        own = [BacktestScore(*line[3:]) for line in scores if line[2] == horizon and line[3]]
        ratios = sorted(each.ratio for each in own if not math.isnan(each.ratio))
        n = sum(each.n for each in own)
        coverage = sum(each.n * each.coverage_90 for each in own) / n if n else math.nan
        middle = ratios[len(ratios) // 2] if ratios else math.nan
        found.append((horizon, n, len(own), middle, coverage))
    return found
