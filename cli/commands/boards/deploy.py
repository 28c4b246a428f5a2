"""`edgefold deploy`: bring edgefold, a bundle or a static program to boards, and check it there."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.board_options import (
    add_ssh_arguments,
    board,
    folder_of_boards,
    n_at_once,
    require_boards,
    ssh_options,
)
from edgefold.cli.options.bundle_options import (
    BUNDLE_HELP,
    add_trust_arguments,
    bundle_of,
    require_trusted,
)
from edgefold.cli.terminal import printable, say

if TYPE_CHECKING:
    from edgefold.cli.remote.boards import BoardResult
    from edgefold.cli.remote.deployment import Order, Rows
    from edgefold.cli.remote.units import Service

EXAMPLES = (
    "edgefold deploy pi@kitchen --wheel dist --bundle bundles/sensor",
    "edgefold deploy pi@kitchen pi@roof --bundle bundles/sensor --dry-run",
    "edgefold deploy pi@kitchen --bundle bundles/sensor --library dist/edgefold_sensor.so",
    "edgefold deploy pi@kitchen --wheel dist --service edgefold-mqtt@home",
    "edgefold deploy root@router --program dist/edgefold-sensor-run",
    "edgefold deploy pi@kitchen --rollback --bundle bundles/sensor",
)
PYTHON = "python3"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold deploy`."""
    parser.add_argument(
        "boards",
        nargs="+",
        type=board,
        metavar="USER@HOST",
        help="boards, as ssh takes them: an alias of ssh and ssh://USER@HOST:PORT too",
    )
    parser.add_argument(
        "--bundle",
        type=bundle_of,
        metavar="BUNDLE",
        help=f"{BUNDLE_HELP}; copied to bundles/NAME of the board's folder if it differs there",
    )
    parser.add_argument(
        "--wheel",
        type=Path,
        metavar="PATH",
        help="install this wheel of edgefold; what it needs comes from the board's network. Of a "
        "folder each board gets the wheels that fit it, and nothing else is used: it must hold "
        "numpy's too",
    )
    parser.add_argument(
        "--program",
        type=Path,
        metavar="FILE",
        help="copy this static program of `edgefold build --program`; the board needs no Python",
    )
    parser.add_argument(
        "--library",
        type=Path,
        metavar="FILE",
        help="copy this library of the bundle, which `edgefold build --target` made, and let the "
        "board prove and keep it",
    )
    parser.add_argument(
        "--extra",
        action="append",
        default=[],
        metavar="NAME",
        help="install this extra of edgefold too, such as cpu; may be repeated",
    )
    parser.add_argument(
        "--system-site-packages",
        action="store_true",
        help="let edgefold use packages of the board's system too, such as numpy, or TensorRT on "
        "a Jetson",
    )
    parser.add_argument(
        "--python",
        default=PYTHON,
        metavar="NAME",
        help=f"Python of the boards, a name or a path (default {PYTHON})",
    )
    parser.add_argument(
        "--service",
        type=service,
        metavar="UNIT@NAME",
        help="write the unit of systemd for this loop, such as edgefold-mqtt@home or "
        "edgefold-cpu@sensor, with the board's folder and user in it, and print the commands that "
        "start it; they need root, and nothing here does",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="look at the boards and show what would be done"
    )
    parser.add_argument(
        "--rollback",
        action="store_true",
        help="go back to the previous bundle (with --bundle), program (with --program), or "
        "edgefold (with neither); once more goes forward again",
    )
    add_trust_arguments(parser)
    add_ssh_arguments(parser, "ssh (docs/boards-at-a-distance.md)")


def service(text: str) -> Service:
    """Read the name of a service, for argparse."""
    from edgefold.cli.remote.units import service_of

    try:
        return service_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Deploy to all boards, print a table, and return the exit code."""
    from edgefold.cli.remote.boards import BoardProgress, code_of_all, on_boards, say_failures
    from edgefold.cli.remote.connection import Connection
    from edgefold.cli.remote.deployment import Deployment

    require_boards(args, args.boards)
    _require_sense(args)
    order = _order(args)
    tables: dict[str, Rows] = {}
    messages: list[str] = []  # they follow the table, as the errors of other boards do

    def work(connection: Connection, progress: BoardProgress) -> ExitCode:
        def show(text: str) -> None:
            progress.show(connection.name, text)

        rows = tables.setdefault(connection.name, {})
        deployment = Deployment(connection, order, rows, show, messages.append)
        return deployment.go_back() if args.rollback else deployment.deploy()

    results = on_boards(args.boards, ssh_options(args), work, n_at_once(args))
    _print(results, tables, order.dry_run)
    for message in messages:
        say(message)
    say_failures(results)
    return code_of_all([r.code if r.value is None else r.value for r in results])


def _require_sense(args: argparse.Namespace) -> None:
    if not (args.bundle or args.wheel or args.program or args.service or args.rollback):
        args.usage_error("nothing to deploy: give --bundle, --wheel, --program or --service")
    for option in ("extra", "system_site_packages"):
        if getattr(args, option) and not args.wheel:
            args.usage_error(f"argument --{option.replace('_', '-')}: it goes with --wheel")
    for option in ("library", "expect_hash", "trusted_key"):
        if getattr(args, option) and not args.bundle:
            args.usage_error(f"argument --{option.replace('_', '-')}: it goes with --bundle")
    if args.rollback and (args.wheel or args.library or args.service or args.dry_run):
        args.usage_error("argument --rollback: it goes with --bundle or --program, or stands alone")


def _order(args: argparse.Namespace) -> Order:
    """Return the order, after every file here was looked at."""
    from edgefold.cli.remote.bundle import BundleToUse
    from edgefold.cli.remote.deployment import Order
    from edgefold.cli.remote.program import processors_of
    from edgefold.cli.remote.wheels import read_wheels

    if args.program and not args.rollback:
        processors_of(args.program)
    if args.library:
        args.library.stat()
    expected = require_trusted(args, args.bundle) if args.bundle else None
    return Order(
        folder=folder_of_boards(args),
        python=args.python,
        bundle=BundleToUse(args.bundle) if args.bundle else None,
        wheels=tuple(read_wheels(args.wheel)) if args.wheel else (),
        extras=tuple(args.extra),
        is_offline=bool(args.wheel) and args.wheel.is_dir(),
        sees_system=args.system_site_packages,
        library=args.library,
        program=args.program,
        expect_hash=expected,
        dry_run=args.dry_run,
        service=args.service,
    )


def _print(results: Sequence[BoardResult[ExitCode]], tables: dict[str, Rows], is_dry: bool) -> None:
    """Print what was found and done, a column for each board."""
    from edgefold.cli.remote.table import side_by_side, terminal_width

    columns = []
    for result in results:
        failed = result.error is not None or result.value
        ended = "FAILED, see below" if failed else "looked at" if is_dry else "done"
        columns.append({**tables.get(result.name, {}), "ended": ended})
    labels = dict.fromkeys(label for column in columns for label in column if label != "ended")
    rows = {label: [column.get(label, "-") for column in columns] for label in (*labels, "ended")}
    table = side_by_side([result.name for result in results], rows, terminal_width())
    print(printable(table), flush=True)
