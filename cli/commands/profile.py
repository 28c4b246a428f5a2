"""`edgefold profile`: measure latency, memory and energy of each step on this machine.

    gates and baseline are read ──> everything is measured ──> files ──> table ──> gates are judged

Wrong gates and a missing baseline are refused before minutes of measuring; the record is written
whatever becomes of the gates.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import name_of, require_kept, require_writable, write_output
from edgefold.cli.options import add_record_arguments, add_stream_arguments, percentage, positive
from edgefold.cli.terminal import StatusLine
from edgefold.cli.text.profile import table

if TYPE_CHECKING:
    from edgefold.cli.gates import Outcome
    from edgefold.devices.profile.profile import ProfileOptions

EXAMPLES = (
    "edgefold profile bundles/sensor --rate 50 --json profile.json --html profile.html",
    "edgefold profile bundles/sensor --fail-if 'update.p99 > 2ms' --fail-if 'needed > 60MB'",
    "edgefold profile bundles/sensor --baseline profile.json --tolerance 10%",
)
TOLERANCE = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_stream_arguments(parser)
    parser.add_argument(
        "--updates", type=positive, default=10_000, metavar="N", help="updates (default 10000)"
    )
    parser.add_argument(
        "--queries", type=positive, default=1_000, metavar="N", help="queries (default 1000)"
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=50.0,
        metavar="HZ",
        help="arrivals a second; a step longer than 1/HZ missed its deadline (default 50)",
    )
    parser.add_argument(
        "--energy-error",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="measure energy until its standard error is below this share (default 0.05)",
    )
    parser.add_argument(
        "--energy-seconds",
        type=float,
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
    _add_gates(parser)
    add_record_arguments(parser, "html")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a report here (needs the report extra)"
    )


def _add_gates(parser: argparse.ArgumentParser) -> None:
    gates = parser.add_argument_group("gates, which set the exit code")
    gates.add_argument(
        "--fail-if",
        action="append",
        type=_gate,
        default=[],
        metavar="GATE",
        help="fail with exit code 5 if this is true of the figures, such as 'update.p99 > 2ms', "
        "'update.missed > 1%%' or 'needed > 60MB'; may be repeated. A figure that was not "
        "measured, or was disturbed, gives exit code 4. A wrong name lists the right ones",
    )
    gates.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="fail with exit code 5 if a figure is above that of this earlier record by more than "
        "the tolerance, with its whole interval; unlike conditions are refused",
    )
    gates.add_argument(
        "--tolerance", type=percentage, metavar="PERCENT", help="of --baseline (default 10%%)"
    )


def _gate(text: str) -> Any:
    from edgefold.cli.gates import parse_gate

    return parse_gate(text)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    for option in ("rate", "energy_error", "energy_seconds"):
        value = getattr(args, option)
        if not (value > 0 and math.isfinite(value)):
            name = option.replace("_", "-")
            args.usage_error(f"argument --{name}: {value} is not a positive number")
    if args.tolerance is not None and not args.baseline:
        args.usage_error("--tolerance belongs to --baseline")
    require_writable(args, *args.record_options)
    if args.html:
        _require_matplotlib()
    if args.power_replay:
        _require_recording(args.power_replay)
    for source in (args.power_replay, args.baseline):
        require_kept(args, source, *args.record_options)
    if args.fail_if:
        _require_known(args)
    baseline = _baseline(args.baseline)
    from edgefold.devices.profile.profile import Measurement

    line = StatusLine()
    record = Measurement(args.bundle, _options(args), line.show).run()
    line.clear()
    from edgefold.cli.gates import exit_code

    refused, outcomes = _judged(args, record, baseline)
    record["gates"] = [
        {
            "gate": outcome.gate,
            "figure": outcome.figure.name,
            "unit": outcome.figure.unit,
            "value": outcome.figure.value,
            "verdict": outcome.verdict,
            "reason": outcome.reason,
        }
        for outcome in outcomes
    ]
    try:
        _write(args, record, outcomes)
    finally:  # a page that fails and a closed terminal do not affect each other
        print(table(record))
    if outcomes:
        from edgefold.cli.text.figures import gate_lines

        print("\n".join(["gates", *gate_lines(outcomes), ""]))
    for path in (args.json, args.csv, args.prometheus, args.html):
        if path:
            print(f"written  {name_of(path)}")
    if refused:
        from edgefold.runtime.errors import DataError

        raise DataError(refused)
    return exit_code(outcomes) if outcomes else ExitCode.DONE


def _options(args: argparse.Namespace) -> ProfileOptions:
    from edgefold.devices.profile.profile import ProfileOptions

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
    """Write the files that the options name; the record first."""
    if args.json:
        import json

        write_output(args.json, json.dumps(record, indent=1) + "\n")
    if args.csv or args.prometheus:
        from edgefold.cli.text.figures import profile_csv, profile_prometheus

        if args.csv:
            write_output(args.csv, profile_csv(record))
        if args.prometheus:
            write_output(args.prometheus, profile_prometheus(record, outcomes))
    if args.html:
        from edgefold.cli.plots.html_page import render

        write_output(args.html, render(record))


def _require_known(args: argparse.Namespace) -> None:
    """Refuse gates over figures that this bundle does not have; usage_error lists those it has.

    The manifest is read as JSON alone: numpy must not be loaded before memory is read.
    """
    import json

    from edgefold.cli.figures import names_of
    from edgefold.cli.gates import explain_unknown

    try:
        manifest = json.loads((Path(args.bundle) / "manifest.json").read_bytes())
        steps = {graph["step"] for graph in manifest["graphs"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # to open it will tell what is wrong with it
    if wrong := explain_unknown(args.fail_if, names_of(steps)):
        args.usage_error(wrong)


def _baseline(path: Path | None) -> dict[str, Any] | None:
    """Return the record of the baseline.

    Raises:
        OSError: It is missing.
        DataError: It is not a profile, or one that was disturbed.
    """
    if path is None:
        return None
    from edgefold.cli.comparison import unsettled
    from edgefold.cli.figures import kind_of, read_record
    from edgefold.runtime.errors import DataError

    record = read_record(path)
    if kind_of(record) != "profile":
        raise DataError(f"{path} is no profile; give what `edgefold profile --json` wrote.")
    if reason := unsettled(record):
        raise DataError(f"{path} cannot be a baseline, it was {reason}. Measure it again.")
    return record


def _judged(
    args: argparse.Namespace, record: dict[str, Any], baseline: dict[str, Any] | None
) -> tuple[str, list[Outcome]]:
    """Return why the baseline is refused, empty if it is not, and what became of each gate."""
    if not args.fail_if and baseline is None:
        return "", []
    from edgefold.cli.comparison import compare, unlike, unsettled
    from edgefold.cli.gates import judge_gates, judge_ratios

    outcomes = judge_gates(args.fail_if, record)
    if baseline is None:
        return "", outcomes
    if found := unlike(baseline, record):
        return (
            f"{args.baseline} and this profile do not compare: {'; '.join(found)}. Make a baseline "
            "under the conditions of now.",
            outcomes,
        )
    tolerance = TOLERANCE if args.tolerance is None else args.tolerance
    ratios = compare(baseline, record)
    return "", [*outcomes, *judge_ratios(ratios, tolerance, unsettled(record))]


def _require_recording(path: Path) -> None:
    """Refuse a recording of power that cannot be read: here, not after minutes of measuring.

    Raises:
        DataError: As `load_recording`'s error: it is an input, and no sensor.
    """
    from edgefold.devices.power.meters.replay import load_recording
    from edgefold.runtime.errors import DataError, MeterError

    try:
        load_recording(path)
    except MeterError as error:
        raise DataError(str(error)) from error


def _require_matplotlib() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("matplotlib is needed for --html", name="matplotlib")
