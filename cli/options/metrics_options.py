"""Declare the options by which others watch a loop: Prometheus and Home Assistant."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgefold.cli.options.bundle_options import positive_number

LOOPBACK = "127.0.0.1"


def add_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on metrics."""
    group = parser.add_argument_group(
        "monitoring",
        "What the loop does and how well its forecasts hold, for Prometheus (needs the metrics\n"
        "extra). docs/monitoring.md names the metrics, the alert rules and the board in deploy/.",
    )
    group.add_argument(
        "--metrics",
        type=host_and_port,
        metavar="[HOST:]PORT",
        help="answer GET /metrics at this port of the loopback address; at 0.0.0.0:PORT for every "
        "machine that reaches this one, without a password",
    )
    group.add_argument(
        "--metrics-file",
        type=textfile,
        metavar="FILE.prom",
        help="write the metrics to this file instead, or as well, for node-exporter's textfile "
        "collector: no port is needed. It is replaced as a whole, and once more at the end",
    )
    group.add_argument(
        "--metrics-every",
        type=positive_number,
        default=15.0,
        metavar="S",
        help="seconds between two writes of that file (default 15)",
    )
    group.add_argument(
        "--metrics-name",
        metavar="NAME",
        help="the label loop=NAME of all metrics, by which several loops of one machine differ "
        "(default: that file's name without .prom, else the bundle's name)",
    )


def host_and_port(text: str) -> tuple[str, int]:
    """Read PORT, HOST:PORT or [IPV6]:PORT, for argparse; without a host it is the loopback."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, as 9101 or 0.0.0.0:9101 is")
    return host, int(port)


def textfile(text: str) -> Path:
    """Read the name of a file for node-exporter, for argparse."""
    if not text.endswith(".prom"):
        raise argparse.ArgumentTypeError(
            f"{text!r} does not end in .prom, and node-exporter reads no other files"
        )
    return Path(text)
