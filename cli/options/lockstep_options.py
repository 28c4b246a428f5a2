"""Declare the options of `edgefold check` for two backends in lockstep, and compare these."""

from __future__ import annotations

import argparse
import math

from edgefold.cli.options.bundle_options import contenders, engine_options, positive
from edgefold.cli.terminal import StatusLine


def add_lockstep_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --lockstep, --bound and --points."""
    group = parser.add_argument_group("two backends side by side")
    group.add_argument(
        "--lockstep",
        nargs=2,
        metavar=("A", "B"),
        help="give the same stream to two backends and compare every state, cache and prediction "
        "after every graph; names the first graph and tensor that part. A and B are names of "
        "backends, with threads as onnxruntime:2",
    )
    group.add_argument(
        "--bound",
        type=float,
        metavar="SHARE",
        help="the largest difference, relative to the tensor's scale (default: the bundle's own "
        "tolerance)",
    )
    group.add_argument(
        "--points",
        type=positive,
        metavar="N",
        help="N rows of the recorded stream, drawn with a fixed seed (default: the stream itself)",
    )


def require_sense(args: argparse.Namespace) -> None:
    """Refuse --bound or --points without --lockstep, and options that it excludes (as --json)."""
    if args.lockstep is None:
        for option in ("bound", "points"):
            if getattr(args, option) is not None:
                args.usage_error(f"argument --{option}: it goes with --lockstep")
        return
    if args.json:
        args.usage_error("--json does not go with --lockstep, which writes no record")
    if args.backend != "auto" or args.memory_limit is not None:
        args.usage_error("argument --lockstep: --backend and --memory-limit do not go with it")
    if args.bound is not None and not (args.bound >= 0 and math.isfinite(args.bound)):
        args.usage_error(f"argument --bound: {args.bound} is not a number from 0 on")
    contenders(args, "lockstep", args.lockstep)


def compare_in_lockstep(args: argparse.Namespace) -> tuple[bool, list[str]]:
    """Compare two backends; return whether they agree, and the lines to print."""
    from edgefold.cli.text.lockstep import lockstep_lines
    from edgefold.runtime.checking.lockstep import run_lockstep

    a, b = contenders(args, "lockstep", args.lockstep)
    line = StatusLine(interval_s=0.2)

    def progress(text: str) -> None:
        if line.is_due:
            line.show(text)

    report = run_lockstep(
        args.bundle,
        a,
        b,
        args.bound,
        args.points,
        engine_options(args),
        progress,
        args.expect_hash,
    )
    line.clear()
    return report.passed, lockstep_lines(report, a, b)
