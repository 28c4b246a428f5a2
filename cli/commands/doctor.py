"""`edgefold doctor`: show what is installed, what is missing, and how to install it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edgefold.cli.bundle_process import CRASHES, OF_WHOM
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import name_of, require_writable, write_record
from edgefold.cli.options.board_options import add_on_argument, require_boards
from edgefold.cli.options.bundle_options import (
    BUNDLE_HELP,
    add_json_argument,
    add_trust_arguments,
    bundle_of,
    require_trusted,
)
from edgefold.cli.terminal import printable

EXAMPLES = (
    "edgefold doctor bundles/sensor --json doctor.json",
    "edgefold doctor --input mqtt://localhost/home/#",
    "edgefold doctor",
    "edgefold doctor --on pi@kitchen --on pi@roof",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold doctor`."""
    parser.add_argument(
        "bundle",
        metavar="BUNDLE",
        nargs="?",
        type=bundle_of,
        help=f"{BUNDLE_HELP}; each backend then opens it and runs a step, "
        "which takes TensorRT a while",
    )
    broker = parser.add_argument_group("a message broker (docs/brokers.md)")
    broker.add_argument(
        "--input",
        metavar="URL",
        help="the broker of `edgefold run --input`, mqtt://HOST/TOPIC or nats://HOST/SUBJECT: what "
        "it grants, and which messages it may lose that it has acknowledged, with the line of its "
        "configuration that prevents it. A mosquitto of this machine is asked by its files",
    )
    broker.add_argument(
        "--broker-config",
        metavar="FILE",
        type=Path,
        help="read this configuration of mosquitto, such as a copy from another machine",
    )
    add_trust_arguments(parser)
    add_json_argument(parser)
    add_on_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Examine the machine and print the report; return DONE.

    It is MACHINE if no backend opens, and REFUSED if the broker does not answer.

    Raises:
        BundleError: No backend opens, and one crashed or took too long in a graph of the bundle.
    """
    require_boards(args, args.on)
    if args.bundle is None and (args.expect_hash or args.trusted_key):
        args.usage_error("--expect-hash and --trusted-key belong to a BUNDLE")
    if args.broker_config and not args.input:
        args.usage_error("argument --broker-config: name the broker with --input")
    if args.on:
        from edgefold.cli.commands.boards.doctor import doctor_on_boards

        return doctor_on_boards(args)
    require_writable(args, "json")
    expected = require_trusted(args, args.bundle)
    from dataclasses import asdict

    from edgefold.cli.doctor.record import DoctorHost, examine
    from edgefold.cli.doctor.remedies import remedies
    from edgefold.cli.text.doctor import render
    from edgefold.runtime.bundle.manifest_file import load_manifest
    from edgefold.runtime.errors import BundleError
    from edgefold.runtime.record_fields import as_json

    report = None
    if args.input:
        from edgefold.cli.doctor.broker import examine_broker, remedies_of

        report = examine_broker(args.input, args.broker_config)
    record = examine(DoctorHost(), args.bundle, expected)
    advice = remedies(record)
    if report is not None:
        record["broker"] = as_json(report)
        advice["safer"] = remedies_of(report)
    text = render(record, advice, _width())
    if args.bundle and (keeps := load_manifest(args.bundle, verify=False).keeps):
        text += f"state       {keeps}\n"
    try:
        if args.json:
            record["advice"] = [
                {"kind": kind, **asdict(remedy)} for kind in advice for remedy in advice[kind]
            ]
            write_record(args.json, record)
            text += f"written     {name_of(args.json)}\n"
    finally:  # a full disk and a closed terminal do not affect each other
        print(printable(text), end="")
    if any(entry["opens"] for entry in record["backends"]):
        return ExitCode.DONE if report is None or report.answers else ExitCode.REFUSED
    for entry in record["backends"]:
        place = entry.get("crashed_in")
        if place and place["signal"] in (None, *CRASHES):
            what = "crashes" if place["signal"] else "takes too long for"
            raise BundleError(
                f"{args.bundle} {what} the backend {entry['name']}, at the graph {place['graph']}. "
                f"{OF_WHOM}"
            )
    return ExitCode.MACHINE


def _width() -> int:
    try:
        return max(60, min(os.get_terminal_size().columns, 120))
    except OSError:  # a pipe or a file
        return 100
