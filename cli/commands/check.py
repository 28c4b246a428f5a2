"""`edgefold check`: replay a bundle's recorded stream on this machine and compare."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import require_writable, write_output
from edgefold.cli.lockstep_options import add_lockstep_arguments, compare_in_lockstep
from edgefold.cli.options import add_stream_arguments, backend_lines, engine_options

if TYPE_CHECKING:
    from edgefold.runtime.golden import CheckReport

SCHEMA = 1
EXAMPLES = (
    "edgefold check bundles/sensor --json check.json",
    "edgefold check bundles/sensor --lockstep onnxruntime tensorrt",
    "edgefold check bundles/sensor --lockstep onnxruntime onnxruntime:2 --points 10000",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_stream_arguments(parser)
    add_lockstep_arguments(parser)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the record here; - is stdout"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; the result is wrong if any prediction is off or two backends part."""
    if args.lockstep is not None and args.json:
        args.usage_error("--json does not go with --lockstep, which writes no record")
    require_writable(args, "json")
    agreed = compare_in_lockstep(args)
    if agreed is not None:
        return ExitCode.DONE if agreed else ExitCode.WRONG_RESULT
    from edgefold.runtime.golden import check_bundle

    report = check_bundle(
        args.bundle, args.backend, args.threads, args.memory_limit, engine_options(args)
    )
    if args.json:
        write_output(args.json, json.dumps(_record(args.bundle, report), indent=1) + "\n")
    print(f"bundle    {args.bundle}, every file as its manifest says")
    print(*backend_lines(report.backend), sep="\n")
    print("\nlargest error against the float64 reference, in units of the scaled output")
    names = list(report.rows[0].errors)
    print(f"{'points':>10}{''.join(f' {name:>10}' for name in names)} {'tolerance':>10}")
    for row in report.rows:
        errors = "".join(f" {row.errors[name]:>10.1e}" for name in names)
        verdict = "ok" if row.worst <= report.tolerance else "OFF"
        print(f"{row.n_points:>10,}{errors} {report.tolerance:>10.0e}  {verdict}")
    if report.passed:
        print(f"\npassed: the worst error is {report.worst:.1e}")
        return ExitCode.DONE
    print(
        f"\nFAILED: the worst error is {report.worst:.1e}, the tolerance {report.tolerance:.0e}. "
        "This backend does not compute what was trained; try another one or report it."
    )
    return ExitCode.WRONG_RESULT


def _record(bundle: str, report: CheckReport) -> dict[str, Any]:
    """Return the report as plain JSON; an error that is not a number is null."""

    def number(error: float) -> float | None:
        return error if math.isfinite(error) else None

    return {
        "schema": SCHEMA,
        "bundle": bundle,
        "backend": report.backend,
        "tolerance": report.tolerance,
        "worst": number(report.worst),
        "passed": report.passed,
        "rows": [
            {"n_points": row.n_points, "errors": {n: number(e) for n, e in row.errors.items()}}
            for row in report.rows
        ],
    }
