"""Forecast a lake: handle the arguments of `edgefold forecast` for Parquet, and print results.

`edgefold.fleets.forecasting` does the work.
"""

from __future__ import annotations

import argparse
import glob
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import (
    backend_lines,
    column_names,
    positive,
)
from edgefold.cli.options.flags import options_of
from edgefold.cli.terminal import printable, say
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.errors import DataError, install_extra
from edgefold.runtime.rows.row_format import FormatOptions

if TYPE_CHECKING:
    from edgefold.fleets.forecasting.census import Census
    from edgefold.fleets.forecasting.settings import ForecastSettings
    from edgefold.fleets.forecasting.shard_result import ShardResult
    from edgefold.runtime.sensors.sensors import Sensors

ENDS = (".parquet", ".parq", ".pq")
FILE_ENDS = (*ENDS, ".csv", ".tsv", ".txt", ".json", ".jsonl", ".png")
"""Ends of names that no folder of results has."""
TRIAL_ROWS = 300
"""Made-up rows by which the time of a row is measured: after 64 rows the model works as ever."""
ONLY_HERE = ("by", "filter", "processes", "scheduler", "backtest", "skip")
MOST_REFUSED = 0.05
"""The share of rows that may be refused without a hint."""
SLOW_ROWS = 50_000
"""The most rows of a shard on a backend without compiled C: a minute where a row takes 1 ms."""
ENGINE = ("name", "version", "rules")
"""Entries of a report that identify the engine that makes the forecasts."""


def is_lake(inputs: Sequence[str]) -> bool:
    """Return whether inputs are Parquet: a file that is named so, a folder, or a glob of them."""
    return any(_is_parquet(each) for each in inputs)


def _is_parquet(text: str) -> bool:
    if text.lower().endswith(ENDS) or os.path.isdir(text):
        return True
    if os.path.exists(text) or not glob.has_magic(text):
        return False
    found = glob.iglob(text, recursive=True)
    return any(path.lower().endswith(ENDS) or os.path.isdir(path) for path in found)


def _names_or_none(text: str) -> list[str]:
    """Read names of columns, for argparse; [] for an empty text."""
    return column_names(text) if text.strip() else []


def add_lake_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only a lake of Parquet files has."""
    lake = parser.add_argument_group(
        "Parquet",
        "FILE is Parquet where it ends with .parquet, or is a folder or a glob of such files.",
    )
    lake.add_argument(
        "--by",
        metavar="A,B,..",
        type=_names_or_none,
        help="the columns that name the sensor of each row, also those of folders such as site=3 "
        "(default: found, as --series); '' if all rows are of one sensor",
    )
    lake.add_argument(
        "--filter",
        metavar="TEXT",
        help="take only some rows, as in \"temp > 3 and site in ('a', 'b')\"",
    )
    lake.add_argument(
        "--backtest",
        action="store_true",
        help="write scores.parquet, too: how good the forecasts were of 1 to 48 rows and a season "
        "ahead, for each sensor",
    )
    lake.add_argument(
        "--skip",
        metavar="N",
        type=int,
        help="the number of each sensor's first rows that --backtest does not score (default 0)",
    )
    lake.add_argument(
        "--processes", metavar="N", type=positive, help="processes (default: one a processor)"
    )
    lake.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="let the workers of this dask scheduler forecast, such as tcp://10.0.0.5:8786; they "
        "see the files and --out by the same paths (needs the dask extra)",
    )


def require_table(args: argparse.Namespace) -> None:
    """End the command with an error if it has options of a lake, or several inputs, without one."""
    if len(args.inputs) > 1:
        args.usage_error("several inputs must be Parquet: end each with .parquet, or name a folder")
    missing = args.inputs[0]
    if missing != "-" and not os.path.exists(missing) and not os.path.splitext(missing)[1]:
        args.usage_error(f"{missing} does not exist, neither as a file nor as a folder")
    for name in ONLY_HERE:
        if getattr(args, name) not in (None, False):
            args.usage_error(f"argument --{name}: only for Parquet; FILE is read as CSV or JSON")


def run_lake(args: argparse.Namespace) -> int:
    """Forecast the lake, write all files, print the results, and return DONE."""
    from edgefold.cli.lakes.lake_columns import open_sensors
    from edgefold.fleets.forecasting.census import MOST_ROWS, take_census
    from edgefold.fleets.forecasting.lake_forecast import require_memory, require_room
    from edgefold.fleets.forecasting.settings import ForecastSettings, ModelChoice
    from edgefold.runtime.stop_signal import sigterm_interrupts

    _require_lake(args)
    by = [args.series] if args.by is None and args.series else args.by
    if args.series == "":
        by = []
    folder = Path(args.out or "results")
    n_processes = args.processes or len(os.sched_getaffinity(0))
    with sigterm_interrupts():
        if not args.force or not folder.is_dir():
            require_room(folder)
        lake, choice = open_sensors(args.inputs, by, args.time, args.columns, args.filter)
        bundle = None if args.bundle is None else os.path.abspath(args.bundle)
        model = ModelChoice(bundle, args.backend, args.false_alarms, args.engine_cache)
        settings = ForecastSettings(lake, choice, model, args.ahead, args.backtest, args.skip or 0)
        with model.open() as sensors:
            report = sensors.backend_report
            say("\n".join(backend_lines(report)))
            engine = " ".join([sensors.bundle_hash[:16], *(str(report[name]) for name in ENGINE)])
            row_s = _row_s(sensors)
        # All processes open the backend that was opened here: another one rounds otherwise.
        settings = replace(settings, model=replace(model, backend=str(report["name"])))
        most_rows = MOST_ROWS if BACKENDS[str(report["name"])].runs_c else SLOW_ROWS
        most_rows = max(most_rows // len(choice.values), 1)
        census = take_census(lake, choice.by, most_rows=most_rows)
        if not census.keys:
            raise DataError(f"{args.inputs[0]}: no row names a sensor in {', '.join(choice.by)}.")
        limit = args.memory_limit or _free_memory()
        n_processes = min(n_processes, len(census.shards))
        require_memory(census, len(choice.values), n_processes, limit)
        print(printable("\n".join(_plan_lines(settings, census))))
        _tell_time(args, report, settings, census, row_s, n_processes)
        start_s = time.monotonic()
        result, picture = _forecast(args, settings, census, folder, engine, n_processes)
        lasted_s = time.monotonic() - start_s
    from edgefold.cli.lakes.lake_text import result_lines

    lines = result_lines(result, settings, census, lasted_s)
    lines += _repeat_lines(result, settings, census)
    print(printable("\n".join(lines)))
    kinds = ["forecasts/", *["ahead/"] * args.ahead, "sensors.parquet", "sensors.csv"]
    kinds += ["alarms.csv", *["scores.parquet"] * args.backtest, *filter(None, [picture])]
    print(printable(f"written       {folder}: {', '.join(kinds)}"))
    if not picture:
        print(f"picture       not drawn without matplotlib: {install_extra('report')} brings it")
    return ExitCode.DONE


def _repeat_lines(result: ShardResult, settings: ForecastSettings, census: Census) -> list[str]:
    """Return a line on what may be meant where many rows were refused; [] if they were few."""
    from edgefold.fleets.forecasting.repeated_times import parting_columns

    n_refused = sum(each.n_refused for each in result.summaries)
    n_rows = sum(each.n_rows for each in result.summaries)
    choice = settings.choice
    if n_refused <= MOST_REFUSED * n_rows or not choice.time:
        return []
    worst = max(result.summaries, key=lambda each: each.n_refused)
    line = f"note          {n_refused / n_rows:.0%} of the rows were refused"
    columns = parting_columns(settings.lake, choice, census.keys[worst.place])
    if columns:
        meant = ",".join([*choice.by, columns[0]])
        return [f"{line}: their times came before; is --by {meant} meant?"]
    return [f"{line}: do several sensors share a name, or rows come twice?"]


def _require_lake(args: argparse.Namespace) -> None:
    """End the command with an error if options do not fit a lake."""
    wrong = [each for each in args.inputs if not _is_parquet(each)]
    if wrong:
        args.usage_error(f"{wrong[0]} is not Parquet, and other inputs are; forecast it alone")
    if args.beside:
        args.usage_error(
            "argument --with: does not exist for Parquet; a lake's sensors are forecast "
            "each from its own rows. Write the rows of one sensor as CSV to use it"
        )
    if args.siblings is not None:
        args.usage_error("argument --siblings: only for CSV and JSON; a lake's sensors start cold")
    if given := options_of(FormatOptions, args).given:
        name = next(iter(given)).replace("_", "-")
        args.usage_error(f"argument --{name}: only for CSV and JSON; Parquet states its types")
    if args.by is not None and args.series is not None:
        args.usage_error("argument --series: it is --by of one column; give one of both")
    if args.skip is not None and not args.backtest:
        args.usage_error("argument --skip: only with --backtest")
    if args.skip is not None and args.skip < 0:
        args.usage_error("argument --skip: give 0 or more rows")
    if args.out == "-":
        args.usage_error("argument --out: name a folder, since there are several files")
    if args.out and Path(args.out).suffix.lower() in FILE_ENDS and not os.path.isdir(args.out):
        args.usage_error(
            f"argument --out: {args.out} is named like a file, and a lake's results are several "
            "files; name a folder"
        )


def _free_memory() -> int:
    from edgefold.cli.forecasting import free_memory

    return free_memory()


def _row_s(sensors: Sensors) -> float:
    """Return the seconds that a row takes here, by some made-up rows."""
    values = [float(at % 24) for at in range(TRIAL_ROWS)]
    sensors.step_rows(None, values[:64])
    start_s = time.perf_counter()
    sensors.step_rows(None, values[64:])
    return (time.perf_counter() - start_s) / (TRIAL_ROWS - 64)


def _plan_lines(settings: ForecastSettings, census: Census) -> list[str]:
    """Return lines on files and columns."""
    lake, choice = settings.lake, settings.choice
    n_bytes = sum(file.stamp.n_bytes for file in lake.files)
    files = "1 file" if len(lake.files) == 1 else f"{len(lake.files):,} files"
    by = ", ".join(choice.by) or "none: all rows are of one"
    n = len(census.keys) * len(choice.values)
    lines = [
        f"lake          {files}, {lake.n_rows:,} rows, {n_bytes / 1e6:,.1f} MB",
        f"sensors       {n:,}, named by {by}" if choice.by else f"sensors       {n:,}",
        f"times         {_typed(settings, choice.time) if choice.time else 'rows are counted'}",
        f"values        {', '.join(_typed(settings, name) for name in choice.values)}",
    ]
    if lake.filter is not None:
        lines.append(f"filter        {lake.filter.text}: {int(census.n_rows.sum()):,} rows")
    if census.n_unnamed:
        names = " or ".join(choice.by)
        lines.append(f"note          {census.n_unnamed:,} rows have no {names} and are left out")
    return lines


def _typed(settings: ForecastSettings, name: str) -> str:
    return f"{name} ({settings.lake.columns[name].type})"


def _tell_time(
    args: argparse.Namespace,
    report: dict[str, object],
    settings: ForecastSettings,
    census: Census,
    row_s: float,
    n_processes: int,
) -> None:
    """Say how long the work takes, and what makes it faster."""
    from edgefold.cli.faster import tell_faster
    from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
    from edgefold.runtime.series.durations import duration

    n = int(census.n_rows.sum()) * len(settings.choice.values)
    where = f"{n_processes} processes" if n_processes > 1 else "1 process"
    share = n * row_s / n_processes
    if args.scheduler:
        where, share = "one thread; the cluster's threads share this", n * row_s
    say(
        f"time          some {duration(share)} on {where}, besides their start and the tables and "
        f"picture at the end: a row takes {row_s * 1e6:,.0f} us"
    )
    tell_faster(str(args.bundle or shipped_bundle()), report)


def _forecast(
    args: argparse.Namespace,
    settings: ForecastSettings,
    census: Census,
    folder: Path,
    engine: str,
    n_processes: int,
) -> tuple[ShardResult, str]:
    """Run the work with a line of progress; return its result, and the picture's name or ""."""
    from edgefold.cli.work_progress import WorkProgress
    from edgefold.fleets.forecasting.lake_forecast import WORK, forecast_lake
    from edgefold.fleets.work.crew import Crew
    from edgefold.fleets.work.dask_crew import DaskCrew
    from edgefold.fleets.work.unit import Agenda, Hear, JobSource

    def crew(agenda: Agenda, source: JobSource, hear: Hear) -> None:
        own = Crew(source, n_processes)
        if args.scheduler:
            DaskCrew(source, args.scheduler, own).run(agenda, hear)
        else:
            own.run(agenda, hear)

    drawn: list[str] = []

    def draw(result: ShardResult) -> None:
        if _draw(folder / "worst.png", result, settings, census):
            drawn.append("worst.png")

    progress = WorkProgress()
    try:
        result = forecast_lake(
            settings, census, folder, engine, args.force, crew, progress.hear, draw
        )
    except KeyboardInterrupt:
        progress.clear()
        if any((folder / WORK).glob("s[hp]*-?????")):
            say(f"stopped   {folder / WORK} keeps what is done: the same command goes on")
        else:
            say("stopped   nothing is kept yet: no part was done")
        raise
    finally:
        progress.clear()
    return result, drawn[0] if drawn else ""


def _draw(path: Path, result: ShardResult, settings: ForecastSettings, census: Census) -> bool:
    """Draw the worst sensors; return whether there is a picture."""
    from edgefold.fleets.forecasting.part_file import SensorNames
    from edgefold.fleets.forecasting.shard_rows import LakeTimes

    try:
        from edgefold.cli.plots.worst_sensors import draw_worst
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return False
    from edgefold.cli.files import write_output

    if not result.pictures:
        return False
    choice, lake = settings.choice, settings.lake
    names = SensorNames([lake.columns[n] for n in choice.by], choice.names_columns)
    titles = [
        "/".join(names.texts(census.keys[each.summary.place], each.summary.column))
        for each in result.pictures
    ]
    times = LakeTimes(lake.columns[choice.time] if choice.time else None)
    n = len(result.summaries)
    title = f"The worst {len(titles)} of {n:,} sensors: most alarms per row, then worst log score"
    is_dated = times.is_dated or (
        bool(choice.time) and all(_looks_dated(each.times[0]) for each in result.pictures)
    )
    write_output(path, draw_worst("png", title, titles, result.pictures, is_dated))
    return True


def _looks_dated(time: float) -> bool:
    """Return whether the first time of a sensor is taken for seconds since 1970."""
    from edgefold.runtime.sensors.time_parsing import kind_of

    return kind_of(float(time)) == "dates"
