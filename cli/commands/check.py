"""`edgefold check`: replay a bundle's recorded stream on this machine and compare."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from edgefold.cli.bundle_process import TIME_LIMIT_MINUTES, in_child
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import require_writable, write_record
from edgefold.cli.options.bundle_options import (
    add_json_argument,
    add_stream_arguments,
    backend_lines,
    engine_options,
    require_trusted,
)
from edgefold.cli.options.lockstep_options import (
    add_lockstep_arguments,
    compare_in_lockstep,
    require_sense,
)
from edgefold.cli.terminal import printable

if TYPE_CHECKING:
    from edgefold.runtime.checking.golden import CheckReport

EXAMPLES = (
    "edgefold check bundles/sensor --json check.json",
    "edgefold check bundles/sensor --lockstep onnxruntime tensorrt",
    "edgefold check bundles/sensor --lockstep onnxruntime onnxruntime:2 --points 10000",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold check`."""
    add_stream_arguments(parser)
    add_lockstep_arguments(parser)
    parser.add_argument(
        "--time-limit",
        type=minutes,
        default=TIME_LIMIT_MINUTES,
        metavar="MINUTES",
        help="give up when one graph takes longer than this to open, or to run once "
        f"(default {TIME_LIMIT_MINUTES:g})",
    )
    add_json_argument(parser)


def minutes(text: str) -> float:
    """Read a positive number of minutes, for argparse."""
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def run(args: argparse.Namespace) -> int:
    """Replay the bundle and print errors; return WRONG_RESULT if one is above the tolerance."""
    require_sense(args)
    require_writable(args, "json")
    args.expect_hash = require_trusted(args, args.bundle)
    result = in_child(replay, args)
    write_record(args.json, result["record"])
    print(f"bundle    {args.bundle}, every file as its manifest says")
    print(printable("\n".join(result["lines"])))
    if result["backend"] and str(args.json) != "-":
        from edgefold.cli.faster import tell_faster

        tell_faster(args.bundle, result["backend"])
    return ExitCode.DONE if result["passed"] else ExitCode.WRONG_RESULT


def replay(args: argparse.Namespace) -> dict[str, Any]:
    """Open the bundle in the child process, and replay its stream or compare two backends.

    Returns:
        A dict with `passed`, `lines` to print, `record` and `backend` (its report); the last two
        are None with --lockstep.
    """
    if args.lockstep is not None:
        passed, lines = compare_in_lockstep(args)
        return {"passed": passed, "lines": lines, "record": None, "backend": None}
    from edgefold.runtime.checking.golden import check_bundle

    report = check_bundle(
        args.bundle,
        args.backend,
        args.threads,
        args.memory_limit,
        engine_options(args),
        args.expect_hash,
        times=True,
    )
    record = _record(args.bundle, report)
    result = {"passed": report.passed, "lines": _lines(report), "record": record}
    return {**result, "backend": report.backend}


def _lines(report: CheckReport) -> list[str]:
    names = list(report.rows[0].errors)
    lines = [
        f"hash      {report.bundle_hash}",
        *([f"capacity  {report.keeps}"] if report.keeps else []),
        *backend_lines(report.backend),
        "\nlargest error against the float64 reference, in units of the scaled output",
        f"{'points':>10}{''.join(f' {name:>10}' for name in names)} {'tolerance':>10}",
    ]
    for row in report.rows:
        errors = "".join(f" {row.errors[name]:>10.1e}" for name in names)
        verdict = "ok" if row.worst <= report.tolerance else "OFF"
        lines.append(f"{row.n_points:>10,}{errors} {report.tolerance:>10.0e}  {verdict}")
    if report.passed:
        return [*lines, f"\npassed: the worst error is {report.worst:.1e}"]
    return [
        *lines,
        f"\nFAILED: the worst error is {report.worst:.1e}, the tolerance {report.tolerance:.0e}. "
        "This backend does not compute what was trained; try another one or report it.",
    ]


def _record(bundle: str, report: CheckReport) -> dict[str, Any]:
    """Return the report as plain JSON; an error that is not a number is null."""
    from edgefold.cli.schemas.check import CheckedMoment, CheckRecord
    from edgefold.runtime.record_fields import as_json

    def number(error: float) -> float | None:
        return error if math.isfinite(error) else None

    record = CheckRecord(
        bundle=bundle,
        bundle_hash=report.bundle_hash,
        backend=report.backend,
        tolerance=report.tolerance,
        worst=number(report.worst),
        passed=report.passed,
        rows=[
            CheckedMoment(row.n_points, {n: number(e) for n, e in row.errors.items()})
            for row in report.rows
        ],
    )
    form: dict[str, Any] = as_json(record)
    return form
