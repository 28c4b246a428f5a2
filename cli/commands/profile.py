"""`edgefold profile`: measure latency, memory and energy of each step on this machine.

    gates and baseline are read ──> everything is measured ──> files ──> table ──> gates are judged

Wrong gates and a missing baseline are refused before minutes of measuring; the record is written
whatever becomes of the gates.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import (
    require_kept,
    require_writable,
    write_output,
    write_record,
    written_lines,
)
from edgefold.cli.options import gate_options, paced_options
from edgefold.cli.options.board_options import add_on_argument, require_boards
from edgefold.cli.options.bundle_options import (
    add_record_arguments,
    add_stream_arguments,
    positive,
    positive_number,
    require_trusted,
)
from edgefold.cli.terminal import StatusLine
from edgefold.cli.text.profile import table

if TYPE_CHECKING:
    from edgefold.cli.records.gates import Outcome
    from edgefold.devices.profile.record import ProfileOptions

EXAMPLES = (
    "edgefold profile bundles/sensor --rate 50 --json profile.json --html profile.html",
    "edgefold profile bundles/sensor --fail-if 'update.p99 > 2ms' --fail-if 'needed > 60MB'",
    "edgefold profile bundles/sensor --baseline profile.json --tolerance 10%",
    paced_options.EXAMPLE,
    "edgefold profile bundles/sensor --on pi@kitchen --on pi@roof --json profile.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold profile`."""
    add_stream_arguments(parser)
    parser.add_argument(
        "--updates", type=positive, default=10_000, metavar="N", help="updates (default 10000)"
    )
    parser.add_argument(
        "--queries", type=positive, default=1_000, metavar="N", help="queries (default 1000)"
    )
    parser.add_argument(
        "--rate",
        type=positive_number,
        default=50.0,
        metavar="HZ",
        help="arrivals a second; a step that takes longer than 1/HZ is late (default 50)",
    )
    parser.add_argument(
        "--energy-error",
        type=positive_number,
        default=0.05,
        metavar="SHARE",
        help="measure energy until its standard error is below this share (default 0.05)",
    )
    parser.add_argument(
        "--energy-seconds",
        type=positive_number,
        default=120.0,
        metavar="S",
        help="stop measuring energy after this time (default 120)",
    )
    parser.add_argument(
        "--power-replay",
        type=Path,
        metavar="FILE",
        help="read power from a recording (CSV with time_s,power_w) instead of a sensor, for a "
        "machine without one; the record says that it is not a measurement",
    )
    paced_options.add_arguments(parser)
    gate_options.add_gate_arguments(parser)
    add_record_arguments(parser, "html")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a report here (needs the report extra)"
    )
    add_on_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the bundle, write and print the record, and return the gates' exit code."""
    paced_options.require_sense(args)
    require_boards(args, args.on)
    if not args.on:
        require_writable(args, *args.record_options)
    if args.html:
        from edgefold.cli.plots.matplotlib_check import require_matplotlib

        require_matplotlib("--html")
    if args.on:
        from edgefold.cli.commands.boards.profile import profile_on_boards

        return profile_on_boards(args, _write)
    if args.power_replay:
        _require_recording(args.power_replay)
    for source in (args.power_replay, args.baseline):
        require_kept(args, source, *args.record_options)
    baseline = gate_options.prepare(args)
    from edgefold.devices.profile.profile import Measurement

    line = StatusLine()
    expected = require_trusted(args, args.bundle)
    record = Measurement(args.bundle, _options(args), line.show, expected).run()
    record |= paced_options.measure(args, line.show, expected)
    line.clear()
    from edgefold.cli.records.gates import exit_code
    from edgefold.runtime.record_fields import as_json

    refused, outcomes = gate_options.judge(args, record, baseline)
    record["gates"] = as_json([outcome.record() for outcome in outcomes])
    try:
        _write(args, record, outcomes)
    finally:  # a page that fails and a closed terminal do not affect each other
        print(table(record))
    if outcomes:
        from edgefold.cli.text.figures import gate_lines

        print("\n".join(["gates", *gate_lines(outcomes), ""]))
    for written in written_lines(args.json, args.csv, args.prometheus, args.html):
        print(written)
    paced_options.finish(record)
    if refused:
        from edgefold.runtime.errors import DataError

        raise DataError(refused)
    return exit_code(outcomes) if outcomes else ExitCode.DONE


def _options(args: argparse.Namespace) -> ProfileOptions:
    from edgefold.devices.profile.record import ProfileOptions

    return ProfileOptions(
        n_updates=args.updates,
        n_queries=args.queries,
        rate_hz=args.rate,
        backend=args.backend,
        threads=args.threads,
        memory_limit=args.memory_limit,
        engine_cache=str(args.engine_cache) if args.engine_cache else None,
        cuda_graphs=not args.no_cuda_graphs,
        gpu_wait=args.gpu_wait,
        energy_error=args.energy_error,
        energy_limit_s=args.energy_seconds,
        power_replay=str(args.power_replay) if args.power_replay else None,
    )


def _write(args: argparse.Namespace, record: dict[str, Any], outcomes: list[Outcome]) -> None:
    """Write the record, its figures and the HTML page to the files that the options name."""
    write_record(args.json, record)
    if args.csv or args.prometheus:
        from edgefold.cli.text.figures import profile_csv, profile_prometheus

        if args.csv:
            write_output(args.csv, profile_csv(record))
        if args.prometheus:
            write_output(args.prometheus, profile_prometheus(record, outcomes))
    if args.html:
        from edgefold.cli.plots.html_page import render

        write_output(args.html, render(record))


def _require_recording(path: Path) -> None:
    """Refuse a recording of power that cannot be read, before minutes of measuring.

    Raises:
        DataError: The recording cannot be read; it is an input, so this is not a MeterError.
    """
    from edgefold.devices.power.meters.replay import load_recording
    from edgefold.runtime.errors import DataError, MeterError

    try:
        load_recording(path)
    except MeterError as error:
        raise DataError(str(error)) from error
