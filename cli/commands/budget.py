"""`edgefold budget`: predict whether a bundle fits a board, before anything is deployed.

This module handles arguments and output. The answer comes from `edgefold.devices.budget.budget`,
for many boards at once from `edgefold.cli.budget_answers`.

The exit code is the verdict: FITS, DOES NOT FIT, or UNSURE; or that of a gate which fails.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.files import require_kept, require_writable, write_record
from edgefold.cli.options.bundle_options import (
    BUNDLE_HELP,
    add_json_argument,
    bundle_folder,
    byte_size,
    positive,
)
from edgefold.cli.options.flash_options import add_flash_arguments, flash_budget
from edgefold.cli.options.gate_options import add_fail_if
from edgefold.cli.options.season_options import add_longest_season, named, with_shorter_seasons
from edgefold.cli.text.budget import EXIT_CODES, board_table, describe
from edgefold.runtime.backends.registry import AUTO, BACKENDS

if TYPE_CHECKING:
    from edgefold.cli.records.gates import Outcome
    from edgefold.devices.boards.board import Board, Microcontroller
    from edgefold.devices.budget.budget import Budget
    from edgefold.devices.budget.checks import Demand
    from edgefold.devices.budget.microcontroller import MicrocontrollerBudget

EXAMPLES = (
    "edgefold budget bundles/sensor --device raspberry-pi-5 --memory 96MiB --rate 100",
    "edgefold budget bundles/sensor --device raspberry-pi-4 --memory 256MiB --processes 4",
    "edgefold budget bundles/sensor --device rp2350 --memory 64KiB",
    "edgefold budget sensors --device raspberry-pi-4 --rate 1 --flash 32GB \\\n"
    "      --every 1000 --fail-if 'flash_years < 5'",
    "edgefold budget sensors --longest-season 24 --device rp2350 --memory 100KiB",
    "edgefold budget --sweep bundles/* --rate 10 --plot sweep.png",
)

SMALLEST, LARGEST = 1e-9, 1e12  # of a rate or a power: sums and quotients stay finite


def quantity(text: str, unit: str) -> float:
    """Parse a positive number, which may be followed by its unit, for argparse.

    Raises:
        argparse.ArgumentTypeError: The text is not such a number, or has another unit.
    """
    digits = text.strip()
    if digits.lower().endswith(unit.lower()):
        digits = digits[: -len(unit)]
    try:
        number = float(digits)
    except ValueError:
        number = math.nan
    if not SMALLEST <= number <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of {unit} from {SMALLEST:g} to {LARGEST:g}"
        )
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold budget`."""
    parser.add_argument(
        "bundles",
        nargs="*",
        type=bundle_folder,
        metavar="BUNDLE",
        help=BUNDLE_HELP,
    )
    parser.add_argument("--device", metavar="NAME", help="a board of --list, or ./myboard.json")
    parser.add_argument(
        "--memory",
        "--memory-limit",
        type=byte_size,
        metavar="SIZE",
        help="limit of the process, or of all --processes, such as 64MiB; as MemoryMax= of a "
        "service; of a microcontroller the RAM that it may use",
    )
    parser.add_argument(
        "--processes",
        type=positive,
        default=1,
        metavar="N",
        help="loops beside each other, one process each: memory is their sum, with the files that "
        "they share counted once (default 1)",
    )
    parser.add_argument(
        "--rate", type=partial(quantity, unit="Hz"), metavar="HZ", help="arrivals per second"
    )
    parser.add_argument(
        "--predict-every",
        type=positive,
        default=1,
        metavar="N",
        help="arrivals per prediction (default 1: predict each row, then update with it)",
    )
    parser.add_argument(
        "--power", type=partial(quantity, unit="W"), metavar="W", help="limit of the module"
    )
    parser.add_argument(
        "--backend",
        choices=("auto", *BACKENDS),
        default=AUTO[-1],
        help="default onnxruntime, on the CPU; auto is judged like it, and the times of native are",
    )
    add_longest_season(parser, "")
    add_json_argument(parser, "write the answer here")
    add_flash_arguments(parser)
    add_fail_if(parser, "'arrival.at_most > 2ms', 'needed > 60MB' or 'flash_years < 5'")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--list", action="store_true", help="list the boards and exit")
    other.add_argument("--show", metavar="NAME", help="print a board's profile as JSON and exit")
    other.add_argument(
        "--sweep",
        action="store_true",
        help="every board, or the one of --device; without BUNDLE the presets, untrained, in every "
        "precision (needs the train extra)",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the sweep: .png, .svg or .pdf (report extra)",
    )


def run(args: argparse.Namespace) -> int:
    """Print a profile, the list of boards, an answer or a sweep; return the exit code."""
    from edgefold.devices.boards.board import board_text, load_profile

    if args.show:
        print(board_text(args.show), end="")
        return 0
    if args.list:
        print(board_table())
        return 0
    require_writable(args, "json", "plot")
    require_kept(args, Path(args.device) if args.device else None, "json", "plot")
    if args.sweep:
        if args.flash or args.fail_if or args.longest_season:
            args.usage_error(
                "--flash, --fail-if and --longest-season belong to one BUNDLE and --device NAME"
            )
        from edgefold.cli.budget_answers import run_sweep

        return run_sweep(args, demand_of(args))
    if args.plot:
        args.usage_error("--plot belongs to --sweep")
    if len(args.bundles) != 1 or not args.device:
        args.usage_error("give one BUNDLE and --device NAME (see --list), or --sweep")
    profile, bundle = load_profile(args.device), args.bundles[0]
    if args.longest_season is None:
        return _judge(args, bundle, named(bundle, None), profile)
    with with_shorter_seasons(bundle, args.longest_season) as shorter:
        return _judge(args, shorter, named(bundle, args.longest_season), profile)


def _judge(
    args: argparse.Namespace, bundle: Path, shown: str, profile: Board | Microcontroller
) -> int:
    """Judge a bundle, which the answer calls `shown`, on a board; return the exit code."""
    from edgefold.cli.budget_answers import depends_on_c, sizes_as_c
    from edgefold.devices.boards.board import Microcontroller
    from edgefold.devices.budget.budget import judge
    from edgefold.runtime.bundle.manifest_file import load_manifest

    manifest = load_manifest(bundle)
    demand = demand_of(args)
    as_c = depends_on_c(manifest, profile, demand)
    sizes = sizes_as_c(bundle) if as_c else None
    if isinstance(profile, Microcontroller):
        if args.flash or args.fail_if:
            args.usage_error("--flash and --fail-if are for boards that run `edgefold run`")
        return _answer(args, replace(judge(manifest, profile, demand, sizes), bundle=shown))
    flash = flash_budget(args, manifest)
    budget = judge(manifest, profile, demand, sizes)
    return _answer(args, replace(budget, bundle=shown, flash=flash))


def _answer(args: argparse.Namespace, budget: Budget | MicrocontrollerBudget) -> int:
    """Write and print an answer, and return its exit code; that of a gate which fails comes first.

    A gate on a figure that the answer does not have is refused before anything is written.
    """
    outcomes: list[Outcome] = []
    if args.fail_if:
        from edgefold.cli.records.figures import figures_of
        from edgefold.cli.records.gates import explain_unknown, judge_gates

        if wrong := explain_unknown(args.fail_if, figures_of(budget.to_json())):
            args.usage_error(wrong)
        outcomes = judge_gates(args.fail_if, budget.to_json())
    write_record(args.json, budget.to_json())
    print(describe(budget))
    if outcomes:
        from edgefold.cli.records.gates import exit_code
        from edgefold.cli.text.figures import gate_lines

        print("\n".join(["gates", *gate_lines(outcomes)]))
        if code := exit_code(outcomes):
            return code
    return EXIT_CODES[budget.verdict]


def demand_of(args: argparse.Namespace) -> Demand:
    """Return the demand on the board that the options state: memory, rate, power and others."""
    from edgefold.devices.budget.checks import Demand

    return Demand(
        args.memory, args.rate, args.power, args.backend, args.predict_every, args.processes
    )
