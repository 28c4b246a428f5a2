"""`edgefold budget`: does a bundle fit a board, before anything is deployed?

Arguments and what the terminal shows; the answer is `edgefold.devices.budget`, many boards at once
`edgefold.cli.budget_sweep`.

Exit codes: 0 fits; 3 does not fit; 4 unsure: a range holds the limit, or a figure is unknown.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.byte_size import byte_size
from edgefold.cli.counts import positive
from edgefold.cli.output_file import require_kept, require_writable, write_output
from edgefold.cli.profile import format_bytes, format_time

if TYPE_CHECKING:
    from edgefold.devices.budget import Budget, Demand
    from edgefold.devices.roofline import Range

BACKENDS = ("auto", "onnxruntime", "tensorrt", "onnxruntime-cuda", "onnxruntime-tensorrt")
EXIT_CODES = {"FITS": 0, "DOES NOT FIT": 3, "UNSURE": 4}
WIDTH = 12  # of the checks' names
SMALLEST, LARGEST = 1e-9, 1e12  # of a rate or a power that anybody means


def quantity(text: str, unit: str) -> float:
    """A number above 0 of which sums and quotients stay finite, for argparse; the unit may follow.

    Raises:
        argparse.ArgumentTypeError: It is none, or has another unit.
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
    """Declare the command's options."""
    parser.add_argument(
        "bundles",
        nargs="*",
        type=Path,
        metavar="BUNDLE",
        help="folder written by `edgefold export`",
    )
    parser.add_argument("--device", metavar="NAME", help="a board of --list, or ./myboard.json")
    parser.add_argument(
        "--memory", type=byte_size, metavar="SIZE", help="limit of the process, such as 64MiB"
    )
    parser.add_argument(
        "--rate", type=partial(quantity, unit="Hz"), metavar="HZ", help="arrivals a second"
    )
    parser.add_argument(
        "--predict-every",
        type=positive,
        default=1,
        metavar="N",
        help="arrivals per prediction (default 1: predict each row, then learn from it)",
    )
    parser.add_argument(
        "--power", type=partial(quantity, unit="W"), metavar="W", help="limit of the module"
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="onnxruntime",
        help="default onnxruntime, on the CPU; auto is judged like it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answer here")
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
    """Run the command."""
    from edgefold.devices.boards import board_text, load_board

    if args.show:
        print(board_text(args.show), end="")
        return 0
    if args.list:
        print(board_table())
        return 0
    require_writable(args, "json", "plot")
    require_kept(args, Path(args.device) if args.device else None, "json", "plot")
    if args.sweep:
        from edgefold.cli.budget_sweep import run_sweep

        return run_sweep(args, demand_of(args))
    if args.plot:
        args.usage_error("--plot belongs to --sweep")
    if len(args.bundles) != 1 or not args.device:
        args.usage_error("give one BUNDLE and --device NAME (see --list), or --sweep")
    from edgefold.devices.budget import judge
    from edgefold.runtime.manifest import load_manifest

    budget = judge(load_manifest(args.bundles[0]), load_board(args.device), demand_of(args))
    if args.json:
        write_output(args.json, json.dumps(budget.to_json(), indent=1) + "\n")
    print(describe(budget))
    return EXIT_CODES[budget.verdict]


def demand_of(args: argparse.Namespace) -> Demand:
    """What the options ask of a board."""
    from edgefold.devices.budget import Demand

    return Demand(args.memory, args.rate, args.power, args.backend, args.predict_every)


def board_table() -> str:
    """Every profile in a line; what is unknown is a dash."""
    from edgefold.devices.boards import board_names, load_board

    lines = [f"{'name':<28}{'memory':>8}  {'bandwidth':>10}  {'a core':>12}  {'GPU':>12}  TensorRT"]
    for name in board_names():
        board = load_board(name)
        memory, bandwidth = board.memory_bytes.value, board.bandwidth_bytes_per_s.value
        rate = board.cpu.rate()
        gpu = board.gpu.rates["float32"].value if board.gpu else None
        cells = (
            f"{memory / 2**30:g} GiB" if memory else "-",
            f"{bandwidth / 1e9:g} GB/s" if bandwidth else "-",
            f"{rate / 1e9:.3g} GFLOP/s" if rate else "-",
            f"{gpu / 1e12:.2f} TFLOP/s" if gpu else "-",
            "in scope" if board.backends["tensorrt"].in_scope else "no",
        )
        lines.append(
            f"{name:<28}{cells[0]:>8}  {cells[1]:>10}  {cells[2]:>12}  {cells[3]:>12}  {cells[4]}"
        )
    lines += [
        "",
        "Peak rates in float32; `--show NAME` tells each figure's source, and how sure it is.",
    ]
    return "\n".join(lines)


def describe(budget: Budget) -> str:
    """The answer for a terminal."""
    found, demand = budget.footprint, budget.demand
    lines = [f"{budget.bundle} ({budget.precision}) on {budget.title}, {demand.backend}", ""]
    kind = "at least" if found.unmeasured else "predicted peak"
    lines.append(f"memory of the process       {format_bytes(found.process_bytes)}  ({kind})")
    lines += [f"  {part.name:<26}{format_bytes(part.n_bytes)}" for part in found.parts]
    for part in found.unmeasured:
        most = format_bytes(part.most_bytes)
        lines.append(f"  not measured              {part.name}: at most {most}, by what others")
        lines.append(f"                            report: {part.source}")
    lines.append(f"  constants measured on {found.baseline}")
    lines += ["", "time of a call              at least, at most"]
    lines += [f"  {name:<26}{show_range(taken)}" for name, taken in budget.steps.items()]
    lines.append(f"  {'an arrival':<26}{show_range(budget.arrival)}")
    every = demand.predict_every
    predicts = "predict" if every == 1 else f"1/{every} of a prediction"
    lines.append(f"  an arrival: {predicts} (refresh, query of one), then learn (update)")
    if budget.arrival.reason:
        lines.append(f"  no upper bound: {budget.arrival.reason}")
    lines += [*_mode_lines(budget), "", f"{'figures':<{WIDTH}}{show_figures(budget.figures)}"]
    for check in budget.checks:
        lines.append(f"{check.name:<{WIDTH}}{check.verdict}: {check.finding}")
        if check.change:
            lines.append(f"{'':<{WIDTH}}change: {check.change}")
    lines += ["", f"{budget.verdict}   (a prediction from data sheets: no board was measured)"]
    return "\n".join(lines)


def show_figures(figures: dict[str, str]) -> str:
    """How many of the profile's figures are how sure; those that nobody has read are named."""
    from edgefold.devices.profile_form import STATUSES, UNCONFIRMED

    given = list(figures.values())
    told = ", ".join(f"{given.count(each)} {each}" for each in STATUSES if each in given)
    names = [name for name, status in figures.items() if status == UNCONFIRMED]
    return (told or "none is known") + (f": {', '.join(names)}" if names else "")


def _mode_lines(budget: Budget) -> list[str]:
    if not budget.modes:
        return []
    rate = budget.demand.rate_hz
    head = f"{'power mode':<18}{'watts':>6}   {'an arrival':<22}"
    head += f"{f'duty at {rate:g} Hz':<20}" if rate else ""
    lines = ["", f"{head}energy of an arrival (estimate)"]
    for mode in budget.modes:
        watts = f"{mode.power_w:g}" if mode.power_w else "-"
        line = f"  {mode.name:<16}{watts:>6}   {show_range(mode.arrival):<22}"
        if mode.duty:
            high = "?" if mode.duty[1] is None else f"{mode.duty[1]:.1%}"
            line += f"{f'{mode.duty[0]:.1%} to {high}':<20}"
        lines.append(line + _energy(mode.energy_j))
    lines.append(
        "  energy: the mode's watts times the arrival's time, from above; not a measurement"
    )
    return lines


def _energy(energy_j: tuple[float, float | None] | None) -> str:
    if energy_j is None or energy_j[1] is None:
        return "unknown"
    high_j = energy_j[1]
    return f"up to {high_j:.3g} J" if high_j >= 1 else f"up to {high_j * 1e3:.3g} mJ"


def show_range(taken: Range) -> str:
    """Both ends, or what is known of them."""
    if not taken.low_s and taken.high_s is None:
        return "unknown"
    high = "?" if taken.high_s is None else format_time(taken.high_s)
    return f"{format_time(taken.low_s)} to {high}"
