"""Start what watches a loop, as the options of `edgefold run` ask for it."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.loop.message_input import tell
from edgefold.runtime.brokers.client_name import digits_of
from edgefold.runtime.errors import DataError, Remedy, install_extra

if TYPE_CHECKING:
    from edgefold.runtime.loop.loop import PredictionLoop
    from edgefold.runtime.loop.watcher import Watchers
    from edgefold.runtime.sources.row_source import RowSource
    from edgefold.runtime.stream.stream import Stream


def require_packages(args: argparse.Namespace) -> None:
    """Raise DataError if a package that the options on watching need is not installed."""
    if (
        not (args.metrics is None and args.metrics_file is None)
        and find_spec("prometheus_client") is None
    ):
        raise DataError(
            "metrics need the package prometheus-client, which is not installed: "
            f"{install_extra('metrics')}.",
            Remedy("gives metrics to Prometheus", install_extra("metrics")),
        )
    if args.home_assistant:
        from edgefold.runtime.brokers.mqtt_connection import require_paho

        require_paho()


def start_metrics(
    args: argparse.Namespace,
    opened: ExitStack,
    watchers: Watchers,
    loop: PredictionLoop,
    source: RowSource,
) -> None:
    """Start the metrics of a loop; do nothing where no option asks for them.

    Args:
        args: The options of the command.
        opened: Receives what must be closed at the end of the run.
        watchers: Receives what the loop must call.
        loop: The loop, which has not begun.
        source: The input of the loop.

    Raises:
        OutputError: The port cannot be listened at, or the file cannot be written.
    """
    if args.metrics is None and args.metrics_file is None:
        return
    from importlib.metadata import version

    from edgefold.cli.metrics.families import LoopCollector, RunFacts
    from edgefold.cli.metrics.loop_metrics import LoopMetrics
    from edgefold.cli.metrics.outlets import MetricsFile, MetricsServer, registry_of
    from edgefold.runtime.sensors.shipped_bundle import word_of

    metrics = LoopMetrics(loop, tell)
    name = args.metrics_name or (
        args.metrics_file.stem if args.metrics_file else Path(word_of(str(args.bundle))).name
    )
    facts = RunFacts(
        name,
        version("edgefold"),
        loop.sensors.first.adapter.settings.get("false_alarms"),
        args.snapshot is not None,
    )
    collector = LoopCollector(metrics, loop, source, facts)
    watchers.add(metrics)
    if args.metrics is not None:
        host, port = args.metrics
        server = MetricsServer(host, port, registry_of(collector))
        opened.enter_context(server)
        tell(f"metrics at {server.url}")
    if args.metrics_file is not None:
        file = MetricsFile(args.metrics_file, collector, args.metrics_every, tell)
        watchers.add(opened.enter_context(file))


def start_home_assistant(
    args: argparse.Namespace,
    opened: ExitStack,
    watchers: Watchers,
    loop: PredictionLoop,
    stream: Stream,
) -> None:
    """Show a loop in Home Assistant; do nothing where no option asks for it.

    Args:
        args: The options of the command.
        opened: Receives what must be closed at the end of the run.
        watchers: Receives what the loop must call.
        loop: The loop, which has not begun.
        stream: The open stream.

    Raises:
        DataError: The address is not usable, or the loop would read what it publishes.
    """
    if args.home_assistant is None:
        return
    from importlib.metadata import version

    from edgefold.cli.loop.discovery import LoopIdentity
    from edgefold.cli.loop.home_assistant import (
        HomeAssistant,
        home_assistant_address,
        require_no_circle,
        seconds,
    )
    from edgefold.runtime.predictions import SensorForecast
    from edgefold.runtime.sensors.shipped_bundle import word_of

    address = home_assistant_address(args.home_assistant)
    columns = loop.sensors.first.columns
    is_general = isinstance(stream.manifest.prediction, SensorForecast)
    identity = LoopIdentity(
        _identity(args),
        "sensor" if args.input == "-" else Path(args.input).stem,
        Path(word_of(str(args.bundle))).name,
        version("edgefold"),
        round(seconds(address, "expire", 1.0)) if "expire" in address.options else 0,
        is_general or columns.has_errors,
        is_general or columns.has_band,
        is_general or stream.manifest.prediction.has_score,
    )
    require_no_circle(address, args.input, identity)
    watchers.add(
        opened.enter_context(HomeAssistant(address, identity, args.home_assistant_unit, tell))
    )


def _identity(args: argparse.Namespace) -> str:
    """Return digits that stay the same for a loop of this machine: by its snapshot, or its input.

    A new identity at each start would leave devices in Home Assistant that never come back.
    """
    place = os.path.realpath(args.snapshot) if args.snapshot else f"of {args.input}"
    return digits_of(place)
