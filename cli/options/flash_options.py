"""Declare the options of `edgefold budget` on the wear of flash, and read the demand from them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from edgefold.cli.options.bundle_options import byte_size, positive, positive_number

if TYPE_CHECKING:
    from edgefold.devices.budget.flash import FlashBudget
    from edgefold.runtime.bundle.manifest import Manifest

SOURCES = ("file", "pipe", "mqtt", "jetstream")
EVERY = (100, 1000, 10_000)
SYNC_S = (1.0, 10.0, 60.0)
"""Settings that the table shows beside the one that is asked."""


def add_flash_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --flash, and the options on how the loop is fed that the bytes depend on."""
    flash = parser.add_argument_group(
        "flash",
        "What `edgefold run` writes each day, and when that wears out flash storage. --rate is\n"
        "then that of all sensors of a loop together.",
    )
    flash.add_argument(
        "--flash",
        type=byte_size,
        metavar="SIZE",
        help="capacity of the SD card, eMMC or disk that the loop writes to, as 32GB",
    )
    flash.add_argument(
        "--endurance",
        type=positive,
        metavar="CYCLES",
        help="times that each cell may be written (default 3000, an assumption for 3D TLC)",
    )
    flash.add_argument(
        "--write-amplification",
        type=positive_number,
        metavar="X",
        help="bytes that the storage writes inside for each byte that it gets (default 4, an "
        "assumption: pages of 16 KiB for blocks of 4 KiB)",
    )
    flash.add_argument(
        "--source",
        choices=SOURCES,
        default="pipe",
        help="where rows come from (default pipe); of mqtt a journal keeps the messages",
    )
    flash.add_argument(
        "--streams", type=positive, default=1, metavar="N", help="sensors of a loop (default 1)"
    )
    flash.add_argument(
        "--every",
        type=positive,
        metavar="N",
        help="lines per snapshot, as of `edgefold run` (default 100; 1000 of messages)",
    )
    flash.add_argument(
        "--sync",
        type=positive_number,
        default=1.0,
        metavar="S",
        help="seconds until messages are forced to the disk, as of `edgefold run` (default 1)",
    )
    flash.add_argument(
        "--window", type=positive, default=20, metavar="N", help="as of `edgefold run` (default 20)"
    )
    flash.add_argument(
        "--journal",
        type=byte_size,
        default=8 << 20,
        metavar="SIZE",
        help="as of `edgefold run` (default 8MiB)",
    )
    flash.add_argument(
        "--rows-per-message",
        type=positive,
        default=1,
        metavar="N",
        help="numbers that a broker's message holds (default 1)",
    )
    flash.add_argument(
        "--message-bytes",
        type=positive,
        default=64,
        metavar="N",
        help="bytes of a message, its topic included (default 64)",
    )
    flash.add_argument(
        "--row-bytes",
        type=positive,
        default=26,
        metavar="N",
        help="bytes of a row's own fields, which the output repeats, as time and value (default "
        "26)",
    )
    flash.add_argument(
        "--no-output", action="store_true", help="the loop has no --output, or a pipe or a broker"
    )


def flash_budget(args: argparse.Namespace, manifest: Manifest) -> FlashBudget | None:
    """Return what the loop that the options describe writes to flash; None without --flash."""
    if args.flash is None:
        if args.endurance or args.write_amplification:
            args.usage_error("--endurance and --write-amplification belong to --flash")
        return None
    if args.rate is None:
        args.usage_error("--flash needs --rate, the rows a second")
    from edgefold.devices.budget.flash import (
        AMPLIFICATION,
        BROKERS,
        ENDURANCE_CYCLES,
        FlashDemand,
        judge_flash,
    )

    demand = FlashDemand(
        args.flash,
        args.rate,
        args.endurance or ENDURANCE_CYCLES,
        args.write_amplification or AMPLIFICATION,
        args.source,
        args.streams,
        args.rows_per_message,
        args.message_bytes,
        args.row_bytes,
        not args.no_output,
        args.window,
        args.journal,
        args.processes,
    )
    every = args.every or (EVERY[1] if args.source in BROKERS else EVERY[0])
    return judge_flash(manifest, demand, (every, args.sync), EVERY, SYNC_S)
