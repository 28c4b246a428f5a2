"""Declare and read the options of commands that work on boards at a distance."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgefold.cli.options.bundle_options import positive
from edgefold.cli.remote.address import Address, board_address
from edgefold.cli.remote.boards import AT_ONCE
from edgefold.cli.remote.connection import SshOptions, person_is_there

FOLDER = "~/edgefold"
HIGHEST_PORT = 65535
NEEDS_ON = ("ssh_option", "ssh_config", "identity", "port", "board_dir", "at_once")


def board(text: str) -> Address:
    """Read a board's address, for argparse."""
    try:
        return board_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def board_folder(text: str) -> str:
    """Read the folder of a board, for argparse; it may not hold control characters."""
    if not text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} does not name a folder")
    return text.rstrip("/") or "/"


def port(text: str) -> int:
    """Read a number of a port, for argparse."""
    number = positive(text)
    if number > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and {HIGHEST_PORT}")
    return number


def add_on_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --on and the options of ssh for a command that runs here without it."""
    group = add_ssh_arguments(parser, "boards at a distance (docs/boards-at-a-distance.md)")
    group.add_argument(
        "--on",
        action="append",
        type=board,
        metavar="USER@HOST",
        help="run the command on this board by ssh, with the edgefold that is installed there, and "
        "bring the record back; an alias of ssh or ssh://USER@HOST:PORT too. Give it again for "
        "other boards: they work at the same time, and NAME.json becomes NAME.HOST.json",
    )


def add_ssh_arguments(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Declare the options of ssh in a group of their own, and return the group."""
    group = parser.add_argument_group(title)
    group.add_argument(
        "--board-dir",
        type=board_folder,
        metavar="FOLDER",
        help="the board's folder for edgefold and bundles: an absolute path, or below the user's "
        f"home (default {FOLDER})",
    )
    group.add_argument("--port", type=port, metavar="N", help="port of sshd, if it is not ssh's")
    group.add_argument("--identity", type=Path, metavar="FILE", help="private key, as `ssh -i`")
    group.add_argument(
        "--ssh-config", type=Path, metavar="FILE", help="configuration of ssh, as `ssh -F`"
    )
    group.add_argument(
        "--ssh-option",
        action="append",
        metavar="NAME=VALUE",
        help="a setting of ssh, as `ssh -o`, such as StrictHostKeyChecking=accept-new; may be "
        "repeated",
    )
    group.add_argument(
        "--at-once",
        type=positive,
        metavar="N",
        help=f"boards that are worked on at the same time (default {AT_ONCE})",
    )
    return group


def ssh_options(args: argparse.Namespace) -> SshOptions:
    """Return what the command line gives to ssh; it may ask a person only at a terminal."""
    return SshOptions(
        options=tuple(args.ssh_option or ()),
        identity=args.identity,
        config=args.ssh_config,
        port=args.port,
        may_ask=person_is_there(),
    )


def n_at_once(args: argparse.Namespace) -> int:
    """Return how many boards are worked on at the same time."""
    return int(args.at_once or AT_ONCE)


def folder_of_boards(args: argparse.Namespace) -> str:
    """Return the folder of each board, as the user named it."""
    return str(args.board_dir or FOLDER)


def require_boards(args: argparse.Namespace, addresses: list[Address] | None) -> None:
    """Refuse a board that is named twice, and options of ssh without a board."""
    if not addresses:
        for option in NEEDS_ON:
            if getattr(args, option) is not None:
                args.usage_error(f"argument --{option.replace('_', '-')}: it goes with --on")
        return
    texts = [address.text for address in addresses]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        args.usage_error(f"the board {twice} is named twice")
