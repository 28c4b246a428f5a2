"""Prepare the source of a loop's rows from the options of `edgefold run`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgefold.cli.options.flags import options_of
from edgefold.cli.terminal import StatusLine, printable, say
from edgefold.runtime.rows.row_format import FormatOptions, kept_format
from edgefold.runtime.sources.message_rows import COLUMNS, MessageKeys
from edgefold.runtime.sources.row_source import SourceOptions, gives_messages, prefix_of

EVERY, EVERY_WITH_JOURNAL = 100, 1000
"""Lines per snapshot where the user names no number."""
MOST_SENSORS = 64
"""Number of sensors of messages for which there is room, unless --streams names another."""
MOST_OF_A_BOARD = 16
"""The same for a serial line."""


def source_options(
    args: argparse.Namespace,
    stop: Callable[[], bool],
    of_sensors: bool,
    idle: Callable[[], None],
    task: Mapping[str, Any],
) -> SourceOptions:
    """Return what the source must know; of messages for the general model, name their columns.

    `args` is changed: `gives_messages` is set; --time and --value then name keys of messages, and
    the rows that are made of messages have the columns series, time and value.

    Args:
        args: The options of the command.
        stop: Function that returns whether to stop.
        of_sensors: Whether the bundle is the general model of sensors.
        idle: Function that is called while the source waits for rows.
        task: The description of the bundle's task.
    """
    keys = MessageKeys(args.time, tuple(args.value or ()), tuple(args.sequence or ()))
    is_message, columns = bool(prefix_of(args.input)), tuple(args.columns or args.value or ())
    if args.sequence and (not is_message or len(args.sequence) > 2):
        args.usage_error(
            "argument --sequence: it names one or two keys in the messages of a broker"
        )
    args.gives_messages = gives_messages(args.input, args.baud)  # once: a device may go away
    if of_sensors and args.gives_messages:
        args.stream, args.time, args.value = COLUMNS[0], None, None
        args.streams = args.streams or (MOST_SENSORS if is_message else MOST_OF_A_BOARD)
    args.every = args.every or (EVERY_WITH_JOURNAL if is_message and args.snapshot else EVERY)
    return SourceOptions(
        stop,
        args.snapshot,
        keys,
        of_sensors,
        args.window,
        args.sync,
        args.journal // 2,
        tell,
        idle,
        args.retire,
        args.baud,
        columns,
        kept_format(task, options_of(FormatOptions, args).given),
    )


def warn_of_losses(url: str, root: Path = Path("/")) -> None:
    """Report a mosquitto of this machine that loses much of what waits for the loop when it ends.

    Args:
        url: The loop's input.
        root: The folder that holds etc and proc.
    """
    if not prefix_of(url).startswith("mqtt"):
        return
    from edgefold.cli.doctor.broker_losses import is_grave, losses_at_a_stop
    from edgefold.cli.doctor.local_broker import is_local
    from edgefold.cli.doctor.mosquitto_settings import find_settings
    from edgefold.runtime.brokers.mqtt_connection import mqtt_address

    address = mqtt_address(url)
    settings = find_settings(root, address.port) if is_local(address.host) else None
    if settings is not None and is_grave(settings):
        worst = next(losses_at_a_stop(settings))
        tell(
            f"the broker may lose messages that wait for this loop: {worst}; the line to write is "
            f"given by: edgefold doctor --input {address}"
        )


def tell(sentence: str) -> None:
    """Print a sentence of a source that waits."""
    StatusLine().clear()
    say(printable(f"edgefold: {sentence}"))


def both(first: Callable[[str], None], second: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that gives a sentence to two others."""

    def tell(sentence: str) -> None:
        first(sentence)
        second(sentence)

    return tell
