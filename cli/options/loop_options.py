"""Declare the options of `edgefold run`, and read their values."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.options.bundle_options import (
    add_siblings_argument,
    add_stream_arguments,
    alarm_rate,
    byte_size,
    column_names,
    positive,
    positive_number,
    seed,
)
from edgefold.cli.options.candidate_options import add_candidate_arguments
from edgefold.cli.options.flags import add_flags
from edgefold.cli.options.metrics_options import add_metrics_arguments
from edgefold.cli.options.page_options import add_page_arguments
from edgefold.runtime.rows.row_format import FormatOptions
from edgefold.runtime.sources.journal import FILE_BYTES

if TYPE_CHECKING:
    from edgefold.cli.loop.alarm_delivery import AlarmAction
    from edgefold.runtime.sinks.rotation import Rotation


def add_loop_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold run`."""
    rows = parser.add_argument_group(
        "input",
        "Of the general model of sensors, all but the file is found by the first lines where it\n"
        "is left out, as by `edgefold forecast`. A pipe is looked at until a row has come, and\n"
        "then for a second.",
    )
    rows.add_argument(
        "--input",
        required=True,
        metavar="FILE|URL",
        help="rows to read, CSV or JSON lines; - is stdin; mqtt://HOST/TOPIC receives messages; "
        "/dev/ttyUSB0 is a serial line (docs/serial.md)",
    )
    rows.add_argument(
        "--baud",
        type=positive,
        metavar="N",
        help="speed of a serial line, with 8 data bits and no parity; without it the line keeps "
        "its own. With it, a device that is not there yet is waited for",
    )
    rows.add_argument(
        "--time",
        metavar="COL",
        help="a series' or events' column or key of times (default: as in training, else time)",
    )
    rows.add_argument(
        "--value",
        metavar="COL",
        type=column_names,
        help="a series' column or key of values (default: as in training, else value); several, as "
        "roof,cellar, are several sensors. A name that holds a comma stands in double quotes",
    )
    rows.add_argument(
        "--mark",
        metavar="COL",
        help="events' column or key of marks, names or numbers (default: as in training, else "
        "mark); a prediction of events is of the time until the next one, and of its mark",
    )
    rows.add_argument(
        "--columns",
        metavar="X1,..,Y1,..",
        type=lambda text: text.split(","),
        help="columns of inputs, then outputs, of a bundle that is not a series",
    )
    add_flags(rows, FormatOptions)
    rows.add_argument(
        "--strict",
        action="store_true",
        help="stop at the first bad row; what came before it is kept",
    )
    add_message_arguments(parser)
    add_sensor_arguments(parser)
    add_output_arguments(parser)
    add_metrics_arguments(parser)
    add_page_arguments(parser)
    progress = parser.add_argument_group("progress")
    progress.add_argument(
        "--snapshot",
        metavar="FILE",
        type=Path,
        help="save progress here, and resume from it if it exists: a file is then read from the "
        "first row that the snapshot does not know, a pipe from the next row that comes. With a "
        "state that Stream.save, a board or SQL has written, the loop begins",
    )
    progress.add_argument(
        "--source",
        type=source,
        metavar="NAME",
        help="the name of the rows' source, by which `edgefold merge` knows rows that two "
        "snapshots have learned (default: the name of the input's file or topics; none for a "
        "bundle whose states do not join). Boards that read a device, a pipe or a topic of one "
        "name need a name each",
    )
    progress.add_argument(
        "--every",
        type=positive,
        metavar="N",
        help="lines per snapshot (default 100; 1000 where a journal keeps the messages between)",
    )
    progress.add_argument(
        "--force", action="store_true", help="start over, and replace the output and the snapshot"
    )
    progress.add_argument(
        "--next-file",
        action="store_true",
        help="if the input was rotated (renamed, and a new file begun): go on with the new file, "
        "once the old one was read to its end. With the old file it changes nothing, so that it "
        "may stay in the command",
    )
    progress.add_argument(
        "--buffered",
        action="store_true",
        help="collect points and learn them together before the next prediction, with the same "
        "result; saves nothing where each row is predicted, as a series' rows are",
    )
    progress.add_argument(
        "--seed",
        type=seed,
        metavar="N",
        help="of the random numbers that a model computes (default 0); a snapshot keeps its own",
    )
    add_candidate_arguments(parser)
    add_stream_arguments(parser)


def add_message_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on messages of a broker."""
    messages = parser.add_argument_group(
        "messages",
        "--input mqtt://[USER@]HOST[:PORT]/TOPIC[,TOPIC] receives messages by MQTT 5 (needs the\n"
        "mqtt extra); mqtts:// encrypts. Topics may hold + and #. After ? come options: ca=FILE,\n"
        "cert=FILE, key=FILE, insecure=1, client-id=NAME, password-file=FILE; the password may\n"
        "also be in the variable EDGEFOLD_BROKER_PASSWORD. For the general model each number of a\n"
        "message is a row of a sensor, which is named by its topic and key; --time and --value\n"
        "name keys, as outer.inner, and --time received takes the time of receipt. With a\n"
        "snapshot a message is acknowledged once it is on the disk, so that none is lost.",
    )
    messages.add_argument(
        "--sequence",
        metavar="KEY[,KEY]",
        type=column_names,
        help="the key of a number that rises with each message of a topic, or two keys, as "
        "boot,count, of which the first rises when the second starts over; a message that comes "
        "again is known by them. Without it, a row is known by its time",
    )
    messages.add_argument(
        "--window",
        type=positive,
        default=20,
        metavar="N",
        help="the broker pauses after N messages that are not acknowledged; they are forced to the "
        "disk by N/2 (default 20, which most brokers allow)",
    )
    messages.add_argument(
        "--sync",
        type=positive_number,
        default=1.0,
        metavar="S",
        help="force messages to the disk and acknowledge them after S seconds at the latest; a "
        "larger number wears flash storage less (default 1)",
    )
    messages.add_argument(
        "--journal",
        type=byte_size,
        default=2 * FILE_BYTES,
        metavar="SIZE",
        help="size of the journal, two files beside the snapshot that keep messages until a "
        "snapshot knows them (default 8MiB)",
    )
    messages.add_argument(
        "--retire",
        action="store_true",
        help="end the loop for good: leave the topics, learn the messages that wait, and once none "
        "has come for some seconds let the MQTT broker forget the loop's session, which it keeps "
        "for ever otherwise",
    )


def add_sensor_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --stream and --streams, by which one loop serves several sensors."""
    sensors = parser.add_argument_group(
        "streams",
        "Several sensors in one loop. Each has a state and a history of its own. They share the\n"
        "bundle, so they measure the same thing in the same unit; the output names them in a\n"
        "column `stream`. Two forms of input:\n"
        "  a row for each value, with a column that names the sensor: --stream sensor --streams 8\n"
        "  a column of values for each sensor of a series: --value roof,cellar; where a cell is\n"
        "  empty, its sensor stays as it is",
    )
    sensors.add_argument(
        "--stream",
        metavar="COL",
        help="the column of a long file that names the sensor; of the general model of sensors, '' "
        "if all rows are of one",
    )
    sensors.add_argument(
        "--streams",
        type=sensor_count,
        metavar="N",
        help="the most sensors that may come; memory for all of them is taken at the start. Needed "
        "with --stream; of a wide file it is the number of columns. Of the general model's long "
        "files it is by default twice as many as the first lines name, and at least 16",
    )
    add_siblings_argument(sensors)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on where predictions are written, and on alarms in them."""
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        metavar="CSV|URL",
        help="predictions to write, or - for stdout; mqtt://HOST/TOPIC and nats://HOST/SUBJECT "
        "publish each row as JSON under TOPIC/SERIES, at least once",
    )
    output.add_argument(
        "--rotate",
        type=rotation,
        metavar="SIZE|day",
        help="begin a new file where a row would make the output longer than SIZE, as 10MB, or "
        "with each new day of the rows' dates in UTC. Finished files get lasting names beside it, "
        "as predictions.0001.csv or predictions.2024-03-31.csv, and may be moved at any time",
    )
    output.add_argument(
        "--anomaly-z",
        type=float,
        metavar="Z",
        help="flag values further than Z standard deviations from their prediction (default 4)",
    )
    output.add_argument(
        "--false-alarms",
        type=alarm_rate,
        metavar="RATE",
        help="of the general model of sensors: the share of rows that may be alarms where nothing "
        "is wrong (default 1e-4)",
    )
    output.add_argument(
        "--print-alarms",
        action="store_true",
        help="print each alarm of a sensor on stderr when it comes, as is done on a terminal",
    )
    output.add_argument(
        "--alarms",
        metavar="FILE|URL",
        help="of the general model of sensors: a file for the alarms alone, CSV, or JSON lines if "
        "its name ends in .jsonl, .ndjson or .json, or a topic as for --output; it is resumed with "
        "the snapshot as --output is",
    )
    output.add_argument(
        "--on-alarm",
        type=alarm_action,
        metavar="COMMAND|URL",
        help="of the general model of sensors: a command to run in the background for each alarm, "
        "one at a time and for 60 s at most. It gets the alarm on stdin as JSON with the keys "
        "series, event, time, value, since and size, and in the variables EDGEFOLD_EVENT, _TIME, "
        "_VALUE and _SERIES. It is split into words and started without a shell, so write "
        "\"sh -c '...'\" where you need one. https://... is a webhook, to which the JSON is "
        "posted, up to four times until it is taken. The newest 16 alarms wait for it, older ones "
        "are dropped and counted",
    )


def sensor_count(text: str) -> int:
    """Read the largest number of sensors that may come, for argparse."""
    from edgefold.runtime.stream.named_states import MOST_SENSORS

    number = positive(text)
    if number > MOST_SENSORS:
        raise argparse.ArgumentTypeError(f"{number} is more than {MOST_SENSORS:,}")
    return number


def source(text: str) -> str:
    """Read the name of the source of rows, for argparse."""
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError("a name is a text that can be printed")
    return text


def rotation(text: str) -> Rotation:
    """Read when a new output file begins, a size such as 10MB or `day`, for argparse."""
    from edgefold.runtime.sinks.rotation import Rotation

    return Rotation(None if text == "day" else byte_size(text))


def alarm_action(text: str) -> AlarmAction:
    """Read what is done for each alarm, a command or the address of a webhook, for argparse."""
    if text.startswith(("http://", "https://")):
        from edgefold.cli.loop.alarm_webhook import AlarmWebhook

        return AlarmWebhook(text)
    from edgefold.cli.loop.alarm_command import AlarmCommand, command_words

    return AlarmCommand(command_words(text))
