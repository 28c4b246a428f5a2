"""Declare --page and --page-token of `edgefold run`, and open the page that they ask for."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.terminal import printable, say

if TYPE_CHECKING:
    from edgefold.cli.page.access import PageAddress
    from edgefold.cli.page.loop_page import LoopPage

LOOPBACK = "127.0.0.1"


def add_page_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --page and --page-token."""
    page = parser.add_argument_group(
        "page",
        "A page for the browser shows the sensors while the loop runs: the last rows with their\n"
        "bands, alarms, what was learned, and how the loop is doing. It loads nothing from\n"
        "elsewhere, and the loop does not wait for it:\n"
        "  --page 8080          for this machine; from elsewhere ssh -L 8080:localhost:8080 BOARD\n"
        "  --page 0.0.0.0:8080  for the network. The printed address has a new token each time;\n"
        "                       --page-token FILE keeps one",
    )
    page.add_argument(
        "--page",
        metavar="[HOST:]PORT",
        type=page_address,
        help="serve the page here; without HOST at 127.0.0.1, for everyone on this machine",
    )
    page.add_argument(
        "--page-token",
        metavar="FILE",
        type=Path,
        help="a file whose first line is the token, 16 characters or more, without which the page "
        "is refused. It travels unencrypted: in a network that others use, take ssh or a proxy "
        "with TLS",
    )


def page_address(text: str) -> PageAddress:
    """Read where the page is served, as 8080, 0.0.0.0:8080 or [::]:8080, for argparse."""
    from edgefold.cli.page.access import PageAddress

    parts = re.fullmatch(r"(?:(\[[0-9a-fA-F:.%\w]+\]|[\w.-]+):)?(\d{1,5})", text, re.ASCII)
    if not parts or int(parts[2]) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no port such as 8080, and no host and port such as 0.0.0.0:8080"
        )
    return PageAddress((parts[1] or LOOPBACK).strip("[]"), int(parts[2]))


def require_page(args: argparse.Namespace) -> None:
    """Refuse --page-token without --page."""
    if args.page_token is not None and args.page is None:
        args.usage_error("argument --page-token: it goes with --page")


def page_of(args: argparse.Namespace) -> LoopPage | None:
    """Return the page that the options ask for, which is not served yet; None for none.

    Raises:
        DataError: The file of the token cannot be read, or holds none.
    """
    if args.page is None:
        return None
    from importlib.metadata import PackageNotFoundError, version

    from edgefold.cli.page.access import new_token, read_token
    from edgefold.cli.page.loop_page import LoopPage

    token = read_token(args.page_token) if args.page_token is not None else ""
    if not token and not args.page.is_loopback:
        token = new_token()
    try:
        own_version = version("edgefold")
    except PackageNotFoundError:
        own_version = ""
    about = {
        "input": "standard input" if args.input == "-" else _without_password(args.input),
        "bundle": Path(args.bundle).name,
        "has_snapshot": args.snapshot is not None,
        "version": own_version,
    }
    return LoopPage(args.page, token, about)


def say_where(page: LoopPage, args: argparse.Namespace) -> None:
    """Print the address of the page; with a generated token, which is printed nowhere else."""
    if args.page_token is not None:
        where = f"{page.address.url}?token=  and the token in {args.page_token}"
    else:
        where = page.url
    say(printable(f"page          {where}"))


def _without_password(text: str) -> str:
    """Return the address of a broker without what stands before its host, or another text as is."""
    if not re.match(r"\w[\w+]*://", text):
        return text
    return re.sub(r"^(\w[\w+]*://)[^/@]*@", r"\1", text).partition("?")[0]
