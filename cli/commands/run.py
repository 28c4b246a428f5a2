"""`edgefold run`: predict each row of a CSV, then update the model with it.

This module handles arguments and signals. The loop is in `edgefold.runtime.loop.loop`, and its
messages are in `edgefold.cli.loop.run_progress`.
"""

from __future__ import annotations

import argparse
import math
import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.loop.message_input import both, source_options, warn_of_losses
from edgefold.cli.loop.run_progress import Progress
from edgefold.cli.loop.service_manager import ServiceManager
from edgefold.cli.loop.steady_memory import SteadyMemory
from edgefold.cli.loop.watching import require_packages, start_home_assistant, start_metrics
from edgefold.cli.options.bundle_options import (
    backend_lines,
    open_stream,
)
from edgefold.cli.options.flags import options_of
from edgefold.cli.options.loop_options import add_loop_arguments
from edgefold.cli.options.page_options import page_of, require_page, say_where
from edgefold.cli.terminal import printable, say
from edgefold.runtime.rows.row_format import FormatOptions
from edgefold.runtime.sinks.row_sink import sink_prefix_of
from edgefold.runtime.sources.row_source import prefix_of, source_name
from edgefold.runtime.stop_signal import StopSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgefold.runtime import Manifest
    from edgefold.runtime.loop.arrival import RowAdapter
    from edgefold.runtime.rows.csv_columns import Columns
    from edgefold.runtime.rows.detect.columns import TableColumns
    from edgefold.runtime.sources.row_source import RowSource

EXAMPLES = (
    "edgefold run sensors --input data.csv --output forecasts.csv --false-alarms 1e-4",
    "edgefold run bundles/sensor --input data.csv --output predictions.csv \\\n"
    "      --snapshot state.npz --every 100",
    "edgefold run sensors --input mqtt://broker.local/home/+/temperature --snapshot state.npz \\\n"
    "      --output forecasts.csv --alarms alarms.csv",
    "edgefold run sensors --input /dev/ttyUSB0 --baud 115200 --output forecasts.csv",
    "sensor-reader | edgefold run bundles/sensor --input - --output -",
    "edgefold run bundles/sensor --input house.csv --value roof,cellar,attic \\\n"
    "      --output house-predictions.csv --rotate day --snapshot house.npz",
)

LEAST_STREAMS = 16
"""Least number of sensors to make room for where a column that names them was detected."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold run`."""
    add_loop_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Check the options and run the loop until the input ends or a signal asks to stop.

    Returns:
        DONE when the input ended or a signal asked to stop, with everything on disk; REFUSED if at
        least the last 20 rows of a sensor were all refused, some of them in this run.
    """
    if args.rotate and (args.output in (None, "-") or sink_prefix_of(args.output)):
        args.usage_error("argument --rotate: name a file with --output; a pipe has no parts")
    if args.anomaly_z is not None and not (args.anomaly_z > 0 and math.isfinite(args.anomaly_z)):
        args.usage_error(f"argument --anomaly-z: {args.anomaly_z} is not a positive number")
    for option, name in (("--output", args.output), ("--alarms", args.alarms)):
        if name and args.snapshot and not _is_text(name):
            args.usage_error(
                f"argument {option}: its name is not UTF-8, and a snapshot cannot keep it; choose "
                "another name"
            )
    if args.keep_rows and not args.snapshot:
        args.usage_error("argument --keep-rows: name a --snapshot, next to which rows are kept")
    if args.retire and not (args.snapshot and prefix_of(args.input).startswith("mqtt")):
        args.usage_error(
            "argument --retire: it ends the session that an MQTT broker keeps for a --snapshot; "
            "give the --input and the --snapshot of the loop"
        )
    require_page(args)
    if args.output == args.alarms == "-":
        args.usage_error("argument --alarms: --output has standard output already; name a file")
    with StopSignal() as stop:
        from edgefold.runtime.loop.run_files import refuse_same_files, snapshot_lock

        require_packages(args)
        refuse_same_files(args.input, args.output, args.snapshot, args.alarms, args.metrics_file)
        if prefix_of(args.input):
            from edgefold.runtime.brokers.own_messages import refuse_own_messages

            outputs = ("--output", args.output), ("--alarms", args.alarms)
            refuse_own_messages(args.input, outputs)
            if args.snapshot:
                warn_of_losses(args.input)
        with snapshot_lock(args.snapshot):
            return _run(args, stop)


def _is_text(name: str) -> bool:
    """Return whether all bytes of a file's name stand for characters of UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _n_streams(args: argparse.Namespace) -> int:
    """Return how many sensors the loop is for; 0 for one sensor that the input does not name."""
    n_columns = len(args.value or ())
    if args.stream and n_columns > 1:
        args.usage_error(
            "argument --stream: a long file has one column of values, and --value names "
            f"{n_columns}; leave out one of the two options"
        )
    if args.stream:
        if args.streams is None:
            args.usage_error(
                "argument --stream: say with --streams N how many sensors may come; memory for "
                "all of them is taken at the start"
            )
        return int(args.streams)
    _require_streams(args, n_columns)
    return n_columns if n_columns > 1 else 0


def _require_streams(args: argparse.Namespace, n_columns: int) -> None:
    """Refuse a --streams that differs from the number of columns of values in a wide file."""
    if args.streams not in (None, max(n_columns, 1)):
        args.usage_error(
            f"argument --streams: {args.streams} sensors need --stream COL, the column of a long "
            "file that names the sensor, or as many columns of a wide file, --value a,b,c"
        )


def _run(args: argparse.Namespace, signal_stop: StopSignal) -> int:
    from edgefold.runtime import DataError
    from edgefold.runtime.bundle.manifest_file import load_manifest
    from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
    from edgefold.runtime.loop.watcher import Watchers
    from edgefold.runtime.predictions import SensorForecast
    from edgefold.runtime.sinks.row_sink import SinkOptions, open_row_sink
    from edgefold.runtime.sources.row_source import open_row_source

    if args.candidate is not None:
        from edgefold.cli.loop.candidate import open_candidate, take_candidate_that_took_over

        take_candidate_that_took_over(args)
    manifest = load_manifest(args.bundle, False)
    is_general = isinstance(manifest.prediction, SensorForecast)
    watchers = Watchers()
    stop: Callable[[], bool] = signal_stop
    retirement = None
    if args.retire:
        from edgefold.cli.loop.retirement import Retirement

        stop = retirement = Retirement(signal_stop, args.sync)
        watchers.add(retirement)
    of_source = source_options(args, stop, is_general, watchers.idle, manifest.task)
    page = page_of(args)
    with ExitStack() as opened:
        service = opened.enter_context(ServiceManager(os.environ))  # it may wait long for rows
        watchers.add(service)
        watchers.add(SteadyMemory())
        if page is not None:  # the progress, which is added later, removes what both read
            watchers.add(opened.enter_context(page).watcher)
            of_source = replace(of_source, tell=both(of_source.tell, page.watcher.tell))
            say_where(page, args)

        def open_source() -> RowSource:
            return opened.enter_context(closing(open_row_source(args.input, of_source)))

        source, table = None, None
        if is_general and not args.gives_messages:  # the input shows how many sensors need slots
            source = open_source()
            try:
                table, n_streams = _find_table(args, manifest, source)
            except DataError:
                if not stop():
                    raise
                say("stopped       before the first rows showed their columns; nothing was written")
                return ExitCode.DONE
        else:
            n_streams = _n_streams(args)
        service.opens()
        stream = opened.enter_context(open_stream(args, args.bundle, n_streams))
        source = source or open_source()
        if retirement is not None:
            retirement.attach(source)
        z = 4.0 if args.anomaly_z is None else args.anomaly_z
        options = LoopOptions(
            *(args.every, z, args.strict, args.force, args.next_file, of_source.tell),
            args.source or (source_name(args.input) if stream.manifest.of_step("merge") else ""),
        )
        adapters, columns = _adapters(args, stream.manifest, n_streams, table)
        if args.siblings is not None:
            _start_warm(args, adapters, stream.manifest, opened)
        to = SinkOptions(
            stop, args.rotate, "--output", args.snapshot, of_source.tell, watchers.idle
        )
        output = open_row_sink(args.output, to)
        alarms = open_row_sink(args.alarms, replace(to, rotation=None, option="--alarms"))
        kept = trial = None
        if args.keep_rows:
            from edgefold.runtime.trial.kept_rows import KeptRows

            kept = KeptRows(Path(f"{args.snapshot}.rows"), args.keep_rows)
            opened.enter_context(closing(kept))
        if args.candidate is not None:

            def adapters_of(other: Manifest) -> tuple[list[RowAdapter], Columns | None]:
                return _adapters(args, other, n_streams, table)

            service.opens()
            trial = open_candidate(args, adapters, columns, adapters_of, opened)
        loop = PredictionLoop(
            *(stream, adapters, source, output, args.snapshot, options, columns, alarms),
            *(kept, trial),
        )
        if page is not None:
            page.attach(loop, source)
        keeps = stream.manifest.keeps
        delivery = None
        if args.on_alarm:
            from edgefold.cli.loop.alarm_delivery import AlarmDelivery

            delivery = opened.enter_context(AlarmDelivery(args.on_alarm))
        progress = Progress(loop, source, output, keeps, args.print_alarms, delivery)
        watchers.add(progress)
        service.status = progress.status
        start_metrics(args, opened, watchers, loop, source)
        start_home_assistant(args, opened, watchers, loop, stream)
        try:
            loop.run(stop, watchers)
            progress.tell()
            if retirement is not None and retirement.is_done:
                source.retire()
        finally:
            progress.clear()
            service.stops()
        report = stream.backend_report
    say("\n".join(backend_lines(report)))
    from edgefold.cli.faster import tell_faster  # it is used once, at the end

    tell_faster(args.bundle, report)
    say(progress.summary(signal_stop(), args.snapshot))
    if table is not None:
        from edgefold.cli.text.sensor_forecasts import unread_lines

        say("".join(f"{line}\n" for line in unread_lines(table, "--value")), end="")
    return ExitCode.REFUSED if progress.has_lost else ExitCode.DONE


def _find_table(
    args: argparse.Namespace, manifest: Manifest, source: RowSource
) -> tuple[TableColumns | None, int]:
    """Find the columns of the input as `edgefold forecast` does, or take them from the snapshot.

    Returns:
        The columns (None if the options name all), and the number of sensors; see `_n_streams`.
    """
    from edgefold.cli.forecasting import MANY, SENSOR_BYTES, WARM_BYTES
    from edgefold.cli.text.sensor_forecasts import table_lines
    from edgefold.runtime import SnapshotError
    from edgefold.runtime.loop.sensor_rows import find_columns, kept_columns

    given = options_of(FormatOptions, args).given
    columns, n_named = None, 0
    if args.snapshot and args.snapshot.exists() and not args.force:
        columns, n_named = kept_columns(args.snapshot, manifest, given)
        if columns is None:
            return None, _n_streams(args)
        choice = columns.choice
        time, values = args.time or "".join(choice.time[:1]), tuple(args.value or choice.values)
        if (time, values, args.stream or choice.series) != (
            "".join(choice.time[:1]), choice.values, choice.series,
        ):  # fmt: skip
            raise SnapshotError(
                f"snapshot {args.snapshot} was made of the columns {', '.join(choice.columns)}; "
                "give the same options as before, or start over with --force."
            )
    else:
        table = find_columns(source, args.time, args.value, args.stream, given)
        if table is None:
            return None, _n_streams(args)
        columns, n_named = table.columns, table.n_named
        say("\n".join(map(printable, table_lines(table, table.choice.values))))
    n_series = max(n_named, len(columns.choice.values))
    if n_series >= MANY:
        n_bytes = SENSOR_BYTES + WARM_BYTES * (args.siblings is not None)
        say(f"memory        {n_series:,} series take some {n_series * n_bytes / 1e9:.2g} GB")
    if columns.choice.series:
        return columns, args.streams or max(LEAST_STREAMS, 2 * n_named)
    _require_streams(args, len(columns.choice.values))
    return columns, len(columns.choice.values) if columns.choice.is_named else 0


def _adapters(
    args: argparse.Namespace, manifest: Manifest, n_streams: int, table: TableColumns | None
) -> tuple[list[RowAdapter], Columns | None]:
    """Return an adapter for each sensor, which converts its rows to points, and the columns.

    The columns say which sensor a value is of; None for one sensor that the input does not name.
    """
    from edgefold.runtime import DataError
    from edgefold.runtime.loop.adapters import adapter_for
    from edgefold.runtime.rows.sensor_columns import LongColumns, WideColumns

    value = args.value[0] if args.value else None
    format = options_of(FormatOptions, args).given
    adapters = [
        adapter_for(manifest, args.time, value, args.columns, format, args.mark, table)
        for _ in range(n_streams or 1)
    ]
    _of_sensors(args, adapters, manifest.path)
    if args.rotate and args.rotate.by_day and not adapters[0].is_dated:
        raise DataError(
            f"the rows of {args.bundle} have no dates, so --rotate day has no days to go by; give "
            "a size, as --rotate 10MB."
        )
    if table is not None:
        table.names_single = False
        return adapters, table if n_streams else None
    if args.stream:
        return adapters, LongColumns(adapters[0].columns, args.stream)
    return adapters, (
        WideColumns(adapters[0].columns, args.time, args.value) if n_streams else None
    )


def _start_warm(
    args: argparse.Namespace, adapters: Sequence[RowAdapter], manifest: Manifest, opened: ExitStack
) -> None:
    """Let new sensors start by the states of --siblings; other models refuse it (DataError).

    Args:
        args: The options of the command.
        adapters: The adapters of the model in service.
        manifest: The manifest of its bundle.
        opened: Closes at the end the stream that runs the siblings.
    """
    from edgefold.cli.text.sensors import siblings_line
    from edgefold.runtime import DataError
    from edgefold.runtime.loop.sensor_rows import SensorRows
    from edgefold.runtime.sensors.warm.fleet import Fleet
    from edgefold.runtime.sensors.warm.siblings import read_siblings

    rows = [adapter for adapter in adapters if isinstance(adapter, SensorRows)]
    if not rows:
        raise DataError(
            f"{manifest.path} learns nothing of siblings, which the general model of sensors does "
            "alone; leave out --siblings."
        )
    siblings = read_siblings(args.siblings, manifest)
    fleet = Fleet(opened.enter_context(open_stream(args, args.bundle, len(siblings))), siblings)
    for adapter in rows:
        adapter.start_warm(fleet)
    say(siblings_line([sibling.name for sibling in siblings]))


def _of_sensors(args: argparse.Namespace, adapters: list[RowAdapter], bundle: Path) -> None:
    """Set --false-alarms in the adapters of the general model of sensors; check --rotate day.

    Other models refuse --false-alarms, --alarms and --on-alarm, and the general model refuses
    --anomaly-z (DataError).
    """
    from edgefold.runtime import DataError
    from edgefold.runtime.loop.sensor_rows import SensorRows

    first = adapters[0]
    if not isinstance(first, SensorRows):
        if args.on_alarm or args.alarms:
            raise DataError(
                f"{bundle} gives no alarms, which the general model of sensors does alone; "
                "leave out --alarms and --on-alarm, and look for anomaly 1 in the output."
            )
        if args.false_alarms is not None:
            raise DataError(
                f"{bundle} states no rate of false alarms, which the general model of sensors "
                "does alone; give --anomaly-z instead of --false-alarms."
            )
        return
    if args.anomaly_z is not None:
        raise DataError(
            f"{bundle} is the general model of sensors, whose alarms have a stated rate; give "
            "--false-alarms instead of --anomaly-z."
        )
    if args.gives_messages or (args.rotate and args.rotate.by_day):
        first.require_dates()
    for adapter in adapters:
        assert isinstance(adapter, SensorRows)
        adapter.share_columns(first)
        if args.false_alarms is not None:
            adapter.watch_at(args.false_alarms)
