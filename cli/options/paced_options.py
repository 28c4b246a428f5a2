"""Declare the options of `edgefold profile` for a stream at its own rate; measure what they ask."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from edgefold.cli.options.bundle_options import contenders, engine_options, positive_number

EXAMPLE = (
    "edgefold profile bundles/sensor --paced 1,10,50 "
    "--paced-backend onnxruntime --paced-backend tensorrt"
)
MAX_RATE_HZ = 10_000.0  # a sleep ends some 50 µs late: beyond this there is no pause left


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --paced, --paced-backend and --paced-seconds."""
    group = parser.add_argument_group("the stream's own rate")
    group.add_argument(
        "--paced",
        action="append",
        type=_rates,
        metavar="HZ[,HZ]",
        help="then predict and learn at this rate, asleep between arrivals, under the governor as "
        "it is: latency from the moment an arrival was due, clocks, and power above idle where "
        "there is a sensor; several rates in one list, or the option again",
    )
    group.add_argument(
        "--paced-backend",
        action="append",
        metavar="NAME",
        help="measure this backend at each rate; give it again for others, which take turns in "
        "blocks, and the rate from which one needs less power is told. Threads as onnxruntime:2 "
        "(default: --backend)",
    )
    group.add_argument(
        "--paced-seconds",
        type=positive_number,
        metavar="S",
        help="of each backend at each rate (default 60, or as long as 100 arrivals take, but 300 "
        "at most; below 100 arrivals there is no p99)",
    )


def require_sense(args: argparse.Namespace) -> None:
    """Refuse --paced-backend and --paced-seconds without --paced, and a backend named twice."""
    if not args.paced:
        for option in ("paced_backend", "paced_seconds"):
            if getattr(args, option) is not None:
                args.usage_error(f"argument --{option.replace('_', '-')}: it goes with --paced")
        return
    asked = contenders(args, "paced-backend", args.paced_backend or [args.backend])
    labels = [contender.label for contender in asked]
    if len({*labels}) < len(labels):
        args.usage_error(f"argument --paced-backend: one is named twice: {', '.join(labels)}")


def measure(
    args: argparse.Namespace, progress: Callable[[str], None], expect_hash: str | None
) -> dict[str, Any]:
    """Measure the stream at the rates of --paced; return an empty dict without that option.

    Returns:
        A dict whose key `paced` has the record of `edgefold.devices.profile.paced.measure_bundle`.
    """
    if not args.paced:
        return {}
    from edgefold.devices.profile.paced import PacedOptions, measure_bundle

    options = PacedOptions(
        rates_hz=tuple(sorted({rate_hz for rates in args.paced for rate_hz in rates})),
        backends=tuple(contenders(args, "paced-backend", args.paced_backend or [args.backend])),
        seconds=args.paced_seconds,
        replay=str(args.power_replay) if args.power_replay else None,
    )
    return {
        "paced": measure_bundle(args.bundle, options, engine_options(args), progress, expect_hash)
    }


def finish(record: dict[str, Any]) -> None:
    """Raise the error that ends the command, if Ctrl-C was pressed or a backend did not open.

    Raises:
        KeyboardInterrupt: Ctrl-C ended the paced part; everything was printed.
        BackendError: Some backend did not open; the others were measured and printed.
    """
    paced = record.get("paced")
    if paced is None:
        return
    if paced["interrupted"]:
        raise KeyboardInterrupt
    if paced["refused"]:
        from edgefold.runtime.errors import BackendError

        raise BackendError("not paced: " + "; ".join(paced["refused"].values()))


def _rates(text: str) -> list[float]:
    try:
        rates_hz = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of rates such as 1,10") from None
    for rate_hz in rates_hz:
        if not 0 < rate_hz <= MAX_RATE_HZ:
            raise argparse.ArgumentTypeError(
                f"{rate_hz:g} Hz is not above 0 and up to {MAX_RATE_HZ:,.0f} Hz"
            )
    return rates_hz
