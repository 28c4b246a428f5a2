"""`edgefold doctor`: show what is installed, what is missing, and how to install it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import name_of, require_writable, write_output

EXAMPLES = (
    "edgefold doctor bundles/sensor --json doctor.json",
    "edgefold doctor",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "bundle",
        metavar="BUNDLE",
        nargs="?",
        help="folder written by `edgefold export`; each backend then opens it and runs a step, "
        "which takes TensorRT a while",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the record here; - is stdout"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; the machine fails if no backend opens."""
    require_writable(args, "json")
    from dataclasses import asdict

    from edgefold.cli.doctor.record import DoctorHost, examine
    from edgefold.cli.doctor.remedies import remedies
    from edgefold.cli.text.doctor import render

    record = examine(DoctorHost(), args.bundle)
    advice = remedies(record)
    text = render(record, advice, _width())
    try:
        if args.json:
            import json

            record["advice"] = [
                {"kind": kind, **asdict(remedy)} for kind in advice for remedy in advice[kind]
            ]
            write_output(args.json, json.dumps(record, indent=1) + "\n")
            text += f"written     {name_of(args.json)}\n"
    finally:  # a full disk and a closed terminal do not affect each other
        print(text, end="")
    opens = any(entry["opens"] for entry in record["backends"])
    return ExitCode.DONE if opens else ExitCode.MACHINE


def _width() -> int:
    try:
        return max(60, min(os.get_terminal_size().columns, 120))
    except OSError:  # a pipe or a file
        return 100
