"""`edgefold profile`: measure latency, memory and energy of each step on this machine."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from edgefold.cli import paced_options
from edgefold.cli.files import require_kept, require_writable, write_output
from edgefold.cli.options import add_stream_arguments, positive
from edgefold.cli.terminal import StatusLine
from edgefold.cli.text.profile import table

EXAMPLES = (
    "edgefold profile bundles/sensor --rate 50 --json profile.json --html profile.html",
    paced_options.EXAMPLE,
)


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
    paced_options.add_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record here")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a report here (needs the report extra)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    for option in ("rate", "energy_error", "energy_seconds"):
        value = getattr(args, option)
        if not (value > 0 and math.isfinite(value)):
            name = option.replace("_", "-")
            args.usage_error(f"argument --{name}: {value} is not a positive number")
    paced_options.require_sense(args)
    require_writable(args, "json", "html")
    if args.html:
        _require_matplotlib()
    if args.power_replay:
        from edgefold.devices.power.meters.replay import load_recording

        load_recording(args.power_replay)  # fail here, not after minutes of measuring
        require_kept(args, args.power_replay, "json", "html")
    from edgefold.devices.profile.profile import Measurement, ProfileOptions

    options = ProfileOptions(
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
    line = StatusLine()
    record = Measurement(args.bundle, options, line.show).run()
    record |= paced_options.measure(args, line.show)
    line.clear()
    if args.json:
        import json

        write_output(args.json, json.dumps(record, indent=1) + "\n")
    try:
        if args.html:
            from edgefold.cli.plots.html_page import render

            write_output(args.html, render(record))
    finally:  # a page that fails and a closed terminal do not affect each other
        print(table(record))
    for path in (args.json, args.html):
        if path:
            print(f"written  {path}")
    paced_options.finish(record)
    return 0


def _require_matplotlib() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("matplotlib is needed for --html", name="matplotlib")
