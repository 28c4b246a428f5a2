"""Declare the options by which others watch a loop: Prometheus and Home Assistant."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.options.bundle_options import positive_number

if TYPE_CHECKING:
    from edgefold.cli.loop.discovery import SeriesUnit

LOOPBACK = "127.0.0.1"


def add_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on metrics."""
    group = parser.add_argument_group(
        "monitoring",
        "What the loop does and how well its forecasts hold, for Prometheus (needs the metrics\n"
        "extra) and for Home Assistant. docs/monitoring.md names the metrics, and the alert rules\n"
        "and the board that lie in deploy/.",
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
    group.add_argument(
        "--home-assistant",
        metavar="URL",
        help="show each sensor in Home Assistant, by the MQTT discovery of the broker at "
        "mqtt://[USER@]HOST[:PORT][/PREFIX] (needs the mqtt extra; the prefix is homeassistant): "
        "its expected value and band, its alarm and its log score. After ? come, besides the "
        "options of --input: every=S, the least time between two states of a sensor (default 10; "
        "an alarm is sent at once), expire=S, after which a state without news is unknown, and "
        "hold=S, how long an alarm shows at least (default 60)",
    )
    group.add_argument(
        "--home-assistant-unit",
        type=series_unit,
        action="append",
        default=[],
        metavar="[SERIES=]UNIT[,CLASS]",
        help="the unit in which Home Assistant shows a sensor's values, and its device class, as "
        "'°C,temperature' or '*/humidity=%%,humidity'; may be given several times, and the first "
        "one that fits counts",
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


def series_unit(text: str) -> SeriesUnit:
    """Read a unit of a series, for argparse; without a series it is that of all."""
    from edgefold.cli.loop.discovery import SeriesUnit

    pattern, separator, unit = text.rpartition("=")
    unit, _, device_class = unit.partition(",")
    if not unit.strip() and not device_class.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names no unit, as '°C,temperature' does")
    return SeriesUnit(pattern if separator else "*", unit.strip(), device_class.strip())
