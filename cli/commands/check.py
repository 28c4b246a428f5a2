"""`edgefold check`: replay a bundle's recorded stream on this machine and compare."""

from __future__ import annotations

import argparse

from edgefold.cli.lockstep_options import add_lockstep_arguments, compare_in_lockstep
from edgefold.cli.options import add_stream_arguments, backend_lines, engine_options

EXAMPLES = (
    "edgefold check bundles/sensor",
    "edgefold check bundles/sensor --lockstep onnxruntime tensorrt",
    "edgefold check bundles/sensor --lockstep onnxruntime onnxruntime:2 --points 10000",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_stream_arguments(parser)
    add_lockstep_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if any prediction is off or two backends part."""
    agreed = compare_in_lockstep(args)
    if agreed is not None:
        return 0 if agreed else 1
    from edgefold.runtime.golden import check_bundle

    report = check_bundle(
        args.bundle, args.backend, args.threads, args.memory_limit, engine_options(args)
    )
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
        return 0
    print(
        f"\nFAILED: the worst error is {report.worst:.1e}, the tolerance {report.tolerance:.0e}. "
        "This backend does not compute what was trained; try another one or report it."
    )
    return 1
