"""Declare the options on a new model that is tried next to the one in service."""

from __future__ import annotations

import argparse

from edgefold.cli.options.bundle_options import bundle_of, byte_size, positive


def add_candidate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --candidate and what belongs to it."""
    group = parser.add_argument_group(
        "a new model",
        "The candidate learns the rows that were kept, then each new one, next to the model in\n"
        "service, and is not heard. Once its log scores show that it is better, it speaks; for a\n"
        "while the old model goes on unheard, and comes back if the candidate turns out worse.\n"
        "The decision is in the snapshot, so the same command goes on after any stop.",
    )
    group.add_argument(
        "--candidate",
        metavar="BUNDLE",
        type=bundle_of,
        help="a bundle that may take over from BUNDLE; needs --snapshot",
    )
    group.add_argument(
        "--risk",
        type=_probability,
        default=0.05,
        metavar="P",
        help="largest probability that a candidate that is worse is ever promoted (default 0.05)",
    )
    group.add_argument(
        "--probation",
        type=positive,
        default=2000,
        metavar="N",
        help="rows for which the old model goes on after a promotion (default 2000)",
    )
    group.add_argument(
        "--keep-rows",
        type=byte_size,
        metavar="SIZE",
        help="keep the newest rows in two files next to the snapshot, SIZE together, from which a "
        "candidate to come learns; a row takes some 40 bytes",
    )


def _probability(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no probability between 0 and 1")
    return number
