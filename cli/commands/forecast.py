"""`edgefold forecast`: forecast each row of any sensor's table, with alarms, without training.

This module handles arguments and files. The rows are forecast in `edgefold.cli.forecasting`.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.lakes.forecast_lake import add_lake_arguments, is_lake, require_table, run_lake
from edgefold.cli.options.bundle_options import (
    add_backend_argument,
    add_engine_arguments,
    add_siblings_argument,
    alarm_rate,
    backend_lines,
    byte_size,
    column_names,
    engine_options,
)
from edgefold.cli.options.flags import add_flags, options_of
from edgefold.cli.terminal import StatusLine, printable, say
from edgefold.runtime.errors import install_extra
from edgefold.runtime.rows.row_format import FormatOptions

if TYPE_CHECKING:
    from edgefold.cli.forecasting import ForecastRun, Track
    from edgefold.runtime.rows.csv_fields import Clock
    from edgefold.runtime.rows.detect.columns import Table
    from edgefold.runtime.sensors.named_sensors import FeedView
    from edgefold.runtime.sensors.sensors import Sensors

EXAMPLES = (
    "edgefold forecast sensor.csv",
    "edgefold forecast house.csv --columns roof,cellar --false-alarms 1e-3",
    "edgefold forecast house.csv --ahead --out results.csv",
    "edgefold forecast house.csv --columns living_room --with heater,outdoor",
    "edgefold forecast 'lake/**/*.parquet' --by sensor --out results/",
)

PROGRESS_S, LOGGED_S = 0.2, 30.0
"""Seconds between two lines on the progress, on a terminal and in a file."""
FAN_SLOTS, MOST_FAN = 48, 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold forecast`."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "inputs",
        metavar="FILE",
        nargs="+",
        help="a table, CSV or JSON lines; - is stdin. Or Parquet: files, folders, or globs in "
        "quotes, in which ** stands for any number of folders (needs the parquet extra)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        metavar="PATH",
        help="the file of forecasts, or a folder for it (default: FILE-forecast.csv beside FILE); "
        "the picture and the other files get its name with another end. For Parquet, a folder "
        "(default: results)",
    )
    output.add_argument(
        "--alarms",
        action="store_true",
        help="write one more file, FILE-forecast-alarms.csv, with a line for each incident: when "
        "it began, was alarmed and ended. A row with an event belongs to the open incident of this "
        "event, or, if it is no alarm, to the one that began last; any other alarm begins an "
        "incident. An incident is over after 4 rows in sequence that do not belong to it",
    )
    output.add_argument(
        "--ahead",
        action="store_true",
        help="write two more files: FILE-forecast-ahead.csv, what was forecast after each row of "
        "1 to 48 rows and a season ahead; and FILE-forecast-next.csv, the forecasts of all "
        "rows of the next season (48 rows without one) after the last row",
    )
    output.add_argument(
        "--force",
        action="store_true",
        help="replace the files if they exist; for Parquet, also what an unfinished run has done",
    )
    parser.add_argument(
        "--false-alarms",
        type=alarm_rate,
        default=1e-4,
        metavar="RATE",
        help="the share of rows that may be alarms although all is well (default 1e-4: one in "
        "10,000)",
    )
    rows = parser.add_argument_group("input", "All of these are found where they are left out.")
    rows.add_argument("--time", metavar="COL", help="the column or key of times")
    rows.add_argument(
        "--columns", metavar="A,B,..", type=column_names, help="the columns or keys of values"
    )
    rows.add_argument(
        "--with",
        dest="beside",
        metavar="A,B,..",
        type=column_names,
        action="extend",
        default=[],
        help="columns or keys that may explain the others, such as a switch or the weather "
        "outdoors. How much they help is learned, and they are used where they do. Rows at the "
        "end that have them and no value are forecast with them",
    )
    rows.add_argument(
        "--series",
        metavar="COL",
        help="the column that names the sensor of each row; '' if all rows are of one sensor",
    )
    add_flags(rows, FormatOptions)
    add_lake_arguments(parser)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--bundle",
        type=Path,
        metavar="FOLDER",
        help="another bundle of the general model (default: the one that is shipped)",
    )
    add_siblings_argument(model)
    add_backend_argument(model)
    model.add_argument(
        "--memory-limit",
        type=byte_size,
        metavar="SIZE",
        help="refuse a table whose series would take more memory than SIZE, as 500MiB (default: "
        "what is free); a series takes some 220 kB. For Parquet, of all processes together: some "
        "220 MB each, and 60 bytes for each row of up to 1 million",
    )
    add_engine_arguments(parser)


DESCRIPTION = """\
Forecast each row of a sensor's table from the rows before it, without any training: one model that
is shipped learns each sensor as its rows come. Every column of numbers is a sensor of its own.

    $ edgefold forecast sensor.csv
    sensor.csv                        time,value
                                      2024-01-01 00:00,12.1
                                      2024-01-01 01:00,11.8
    sensor-forecast.csv               time,value,mean,q05,..,q95,log_density,p_value,alarm,event
    sensor-forecast.png               the last rows with their bands, alarms, and what comes

mean and q05 to q95 are what was forecast of a row before its value was seen: 90 % of the values
should lie between q05 and q95. p_value tells how often a value so far out comes by chance. alarm
is 1 where something happened; event names it: value, level shift, stuck, gap, absent, drift,
rhythm, quiet or noisy.

Thousands of sensors in Parquet are forecast on all processors, and the same command goes on after
Ctrl-C or a kill. The folder of results then has forecasts/, sensors.parquet, alarms.csv and a
picture of the worst sensors. docs/fleets.md, docs/sensors.md and docs/alarms.md say more."""


def run(args: argparse.Namespace) -> int:
    """Forecast the table, write all files, print the results, and return DONE."""
    if is_lake(args.inputs):
        return run_lake(args)
    require_table(args)
    args.input = args.inputs[0]
    from edgefold.cli.faster import tell_faster
    from edgefold.cli.run_command import run_command
    from edgefold.cli.text.sensors import siblings_line
    from edgefold.runtime import Sensors
    from edgefold.runtime.rows.csv_reader import open_source
    from edgefold.runtime.rows.detect.columns import open_table
    from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
    from edgefold.runtime.stop_signal import sigterm_interrupts

    with sigterm_interrupts(), open_source(args.input) as file:
        files = _places(args)
        name = "stdin" if args.input == "-" else Path(args.input).name
        format = options_of(FormatOptions, args).given
        table = open_table(file, name, args.time, args.columns, args.series, format, args.beside)
        opened = Sensors.open(
            *(args.bundle, args.backend, args.false_alarms),
            engine=engine_options(args),
            siblings=args.siblings,
        )
        with opened as sensors:
            say("\n".join(backend_lines(sensors.backend_report)))
            if sensors.siblings:
                say(siblings_line(sensors.siblings))
            tell_faster(str(args.bundle or shipped_bundle()), sensors.backend_report)
            if find_spec("matplotlib") is None:
                say(f"picture   not drawn without matplotlib: {install_extra('report')} brings it")
            start_s = time.monotonic()
            found = _forecast(name, file, files, table, sensors, args.memory_limit, args.beside)
            lasted_s = time.monotonic() - start_s
            # What was forecast is in its files by now, whatever becomes of the picture.
            picture, note = _draw(files["picture"], name, found, sensors, table)
            _tell(found, _tracks(found, sensors), table, args.false_alarms, files)
    lines = "1 line" if found.n_lines == 1 else f"{found.n_lines:,} lines"
    print(f"this run      {lines} in {lasted_s:.1f} s")
    kinds = ("csv", "alarms", "ahead", "next")
    names = [str(files[kind]) for kind in kinds if kind in files]
    print(f"written       {', '.join([*names, *filter(None, [picture])])}")
    if note:
        print(f"picture       {note}")
    command = run_command(args, table.columns, found.values, len(found.tracks), files["csv"])
    if table.choice.is_backward:
        command = "`edgefold run sensors` needs the oldest row first: turn the table around for it"
    if args.beside:
        command = f"without {', '.join(args.beside)}: {command}"
    print(f"go on         {printable(command)}")
    return ExitCode.DONE


def _places(args: argparse.Namespace) -> dict[str, Path]:
    """Return the paths of the output files by kind: csv, picture; if asked: alarms, ahead, next.

    Without --force the command ends with an error if one of the files exists.
    """
    from edgefold.cli.files import require_place
    from edgefold.runtime import OutputError

    if args.out in (None, "-") and (args.input == "-" or args.out):
        args.usage_error(
            "argument --out: name a file or a folder, since there are several files; "
            "`edgefold run sensors --input - --output -` writes rows to stdout"
        )
    source = Path("stdin.csv" if args.input == "-" else args.input)
    place = Path(args.out) if args.out else source.with_name(f"{source.stem}-forecast.csv")
    if place.is_dir() or (args.out or "").endswith("/"):
        place /= f"{source.stem}-forecast.csv"
    if place.suffix == ".png":
        args.usage_error("argument --out: name the table of forecasts; the picture is beside it")
    stem = place.with_suffix("") if place.suffix == ".csv" else place
    files = {"csv": place, "picture": Path(f"{stem}.png")}
    if args.alarms:
        files["alarms"] = Path(f"{stem}-alarms.csv")
    if args.ahead:
        files |= {"ahead": Path(f"{stem}-ahead.csv"), "next": Path(f"{stem}-next.csv")}
    require_place(place)
    there = [path for path in files.values() if path.exists()]
    for path in there:
        if source.exists() and path.samefile(source):
            args.usage_error(f"--out would replace {source}, which is read")
        if not path.is_file():
            raise OutputError(f"{path} is not a file; choose another name with --out.")
    if there and not args.force:
        verb = "exists" if len(there) == 1 else "exist"
        raise OutputError(
            f"{' and '.join(map(str, there))} {verb} already; replace with --force, or choose "
            "another name with --out."
        )
    return files


def _forecast(
    name: str,
    file: BinaryIO,
    files: Mapping[str, Path],
    table: Table,
    sensors: Sensors,
    memory_limit: int | None,
    beside: Sequence[str],
) -> ForecastRun:
    """Forecast all rows of a table and write the files; with no usable row, write nothing.

    Args:
        name: Name of the input, for messages.
        file: The input, whose position shows how much is read.
        files: Paths of the output files by kind: csv, alarms, ahead and next.
        table: The opened table of this input.
        sensors: The opened model.
        memory_limit: Bytes that all sensors may take; None for the memory that is free.
        beside: Columns that are covariates of all others.
    """
    from edgefold.cli.forecasting import MANY, SENSOR_BYTES, WARM_BYTES, ForecastRun
    from edgefold.runtime import DataError

    with ExitStack() as stack:
        output = stack.enter_context(_writing(files["csv"]))
        ahead, alarms = (
            stack.enter_context(_writing(files[kind])) if kind in files else None
            for kind in ("ahead", "alarms")
        )
        found = ForecastRun(table, sensors, output, ahead, memory_limit, alarms, beside)
        if (n := max(len(table.choice.values), table.n_named)) >= MANY:
            n_bytes = SENSOR_BYTES + WARM_BYTES * bool(sensors.siblings)
            say(f"memory        {n:,} series take some {n * n_bytes / 1e9:.2g} GB")
        progress = _Progress(name, file, found)
        try:
            found.run(progress.row)
        finally:
            progress.clear()
        if not any(track.n_rows for track in found.tracks.values()):
            raise DataError(f"{name}: no row could be used. {_why(found)}")
        if "next" in files:
            _write_next(stack.enter_context(_writing(files["next"])), found, sensors, table)
    return found


def _why(found: ForecastRun) -> str:
    """Return a sentence on why no row could be used: the first reason with its line."""
    for track in (*found.tracks.values(), found.bad):
        for line, reason, _ in track.reasons.values():
            return f"Line {line}: {reason}"
    return "It has a header and nothing else."


@contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    """Open a text file that replaces `path` once it is whole."""
    from edgefold.runtime.files import replacing

    with replacing(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        yield file


def _tracks(found: ForecastRun, sensors: Sensors) -> list[tuple[Track, FeedView]]:
    """Return the sensors with at least one usable row, each with its clock and season."""
    return [
        (track, sensors.feed(found.sensor_of(track)))
        for track in found.tracks.values()
        if track.n_rows
    ]


def _write_next(file: TextIO, found: ForecastRun, sensors: Sensors, table: Table) -> None:
    """Write to CSV each sensor's forecasts of the next season; without one, `FAN_SLOTS` rows."""
    from edgefold.runtime.rows.csv_fields import write_fields
    from edgefold.runtime.sensors.forecasts import BAND

    write_fields(file, *["series"] * found.is_named, "slots_ahead", "time", *BAND)
    for track, feed in _tracks(found, sensors):
        path = found.path(track, max(feed.season or FAN_SLOTS, track.coming.known[1]))
        for i, (mean, quantiles) in enumerate(zip(path.mean, path.quantiles, strict=True), 1):
            at = table.choice.written(track.last_time + i * feed.pace, track.last)
            numbers = ["" if math.isnan(n) else f"{n:.9g}" for n in (mean, *quantiles)]
            write_fields(file, *[track.name] * found.is_named, str(i), at, *numbers)


def _draw(
    path: Path, name: str, found: ForecastRun, sensors: Sensors, table: Table
) -> tuple[str, str]:
    """Draw the picture; return its path, and a text on why it or a part of it is missing."""
    try:
        from edgefold.cli.plots.sensor_forecasts import Panel, draw_sensors
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return "", f"not drawn: matplotlib is not installed ({install_extra('report')})"
    from edgefold.cli.files import write_output
    from edgefold.cli.forecasting import MOST_PANELS
    from edgefold.cli.text.sensor_forecasts import panel_line

    tracks = _tracks(found, sensors)
    panels = []
    for track, feed in tracks:
        if track.overview is None:
            continue
        n = min(feed.season, MOST_FAN) or FAN_SLOTS
        fan = found.path(track, max(n, FAN_SLOTS, track.coming.known[1]))
        tally = track.tally
        shares = track.n_below / tally.n_forecast if tally.n_forecast else None
        is_known = math.isfinite(fan.mean[0])
        panels.append(
            Panel(
                track.name,
                panel_line(track),
                track.drawn,
                track.overview.pieces(),
                track.marked,
                fan if is_known else None,
                feed.pace,
                feed.season,
                shares,
            )
        )
    if not panels:
        return "", f"not drawn: no row of the first {MOST_PANELS} sensors could be used"
    write_output(path, draw_sensors("png", name, panels, table.choice.is_dated))
    left = len(tracks) - len(panels)
    return str(path), f"shows the first {MOST_PANELS} of {len(tracks)} sensors" if left else ""


def _tell(
    found: ForecastRun,
    tracks: list[tuple[Track, FeedView]],
    table: Table,
    rate: float,
    files: Mapping[str, Path],
) -> None:
    """Print columns, scores, alarms, and the forecasts after the last row.

    `rate` is the share of rows that alarm by chance, as --false-alarms has it, and `files` holds
    the paths of the output files by kind.
    """
    from edgefold.cli.text.sensor_forecasts import (
        ahead_lines,
        covariate_lines,
        score_lines,
        table_lines,
        told_lines,
    )

    clock: Clock = "date" if table.choice.is_dated else "number"
    coming = [(track, feed, found.coming(track)) for track, feed in tracks]
    parts = (
        table_lines(table, found.values),
        score_lines(tracks, clock),
        covariate_lines(found, tracks),
        told_lines(found, rate, str(files["csv"]), str(files.get("alarms", ""))),
        ahead_lines(coming, table.choice, found.is_named),
    )
    for lines in filter(None, parts):
        print("\n".join([*map(printable, lines), ""]))


class _Progress:
    """Shows a line on stderr while a long table is read, or writes one there now and then."""

    def __init__(self, name: str, file: BinaryIO, found: ForecastRun):
        self._line = StatusLine(PROGRESS_S)
        self._name, self._file, self._found = name, file, found
        self._start_s = self._logged_s = time.monotonic()
        try:
            self._n_bytes = os.fstat(file.fileno()).st_size
        except OSError:
            self._n_bytes = 0

    def row(self) -> None:
        """Show the number of lines and the share of the file read, at most every `PROGRESS_S` s.

        If stderr is no terminal, write them there every `LOGGED_S` s.
        """
        is_logged = not self._line.is_live and time.monotonic() - self._logged_s >= LOGGED_S
        if not (self._line.is_due or is_logged):
            return
        n = self._found.n_lines
        parts = [self._name, f"{n:,} lines"]
        parts.append(f"{n / (time.monotonic() - self._start_s):,.0f} lines/s")
        if self._n_bytes and self._file.seekable():
            parts.append(f"{min(1.0, self._file.tell() / self._n_bytes):.0%}")
        self._line.show("   ".join(parts))
        if is_logged:
            self._logged_s = time.monotonic()
            say("   ".join(parts))

    def clear(self) -> None:
        """Remove the line from the terminal."""
        self._line.clear()
