"""Declare and judge the gates (limits for figures) that `edgefold profile` checks its record by.

    prepare(args) ──> everything is measured ──> judge(args, record, baseline) ──> outcomes

Errors in a gate or in the baseline are reported before anything is measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.options.bundle_options import percentage

if TYPE_CHECKING:
    from edgefold.cli.records.gates import Outcome

TOLERANCE = 0.1


def add_gate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --fail-if, --baseline and --tolerance."""
    gates = add_fail_if(parser, "'update.p99 > 2ms', 'update.late > 1%%' or 'needed > 60MB'")
    gates.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="fail with exit code 5 if a figure is above that of this earlier record by more than "
        "the tolerance, with its whole interval; unlike conditions are refused",
    )
    gates.add_argument(
        "--tolerance", type=percentage, metavar="PERCENT", help="of --baseline (default 10%%)"
    )


def add_fail_if(parser: argparse.ArgumentParser, such_as: str) -> argparse._ArgumentGroup:
    """Declare --fail-if, and return its group; `such_as` are examples of gates."""
    gates = parser.add_argument_group("gates, which set the exit code")
    gates.add_argument(
        "--fail-if",
        action="append",
        type=_gate,
        default=[],
        metavar="GATE",
        help=f"fail with exit code 5 if this is true of the figures, such as {such_as}; may be "
        "repeated. A figure that is not known, or was disturbed, gives exit code 4. A wrong name "
        "lists the right ones",
    )
    return gates


def _gate(text: str) -> Any:
    from edgefold.cli.records.gates import parse_gate

    return parse_gate(text)


def prepare(args: argparse.Namespace) -> dict[str, Any] | None:
    """Refuse wrong gates, and return the record of the baseline; None without a baseline.

    Raises:
        OSError: The baseline is missing.
        DataError: The baseline is not a profile, or was disturbed while it was measured.
    """
    if args.tolerance is not None and not args.baseline:
        args.usage_error("--tolerance belongs to --baseline")
    if args.fail_if:
        _require_known(args)
    return _baseline(args.baseline)


def _require_known(args: argparse.Namespace) -> None:
    """Refuse gates on figures that this bundle does not have; the error lists the figures it has.

    The manifest is read as JSON only: numpy must not be loaded before memory is read.
    """
    import json

    from edgefold.cli.records.figures import names_of
    from edgefold.cli.records.gates import explain_unknown

    try:
        manifest = json.loads((Path(args.bundle) / "manifest.json").read_bytes())
        steps = {graph["step"] for graph in manifest["graphs"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # opening it reports what is wrong with it
    if wrong := explain_unknown(args.fail_if, names_of(steps)):
        args.usage_error(wrong)


def _baseline(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    from edgefold.cli.records.comparison import unsettled
    from edgefold.cli.records.figures import kind_of, read_record
    from edgefold.runtime.errors import DataError

    record = read_record(path)
    if kind_of(record) != "profile":
        raise DataError(f"{path} is no profile; give what `edgefold profile --json` wrote.")
    if reason := unsettled(record):
        raise DataError(f"{path} cannot be a baseline, it was {reason}. Measure it again.")
    return record


def judge(
    args: argparse.Namespace, record: dict[str, Any], baseline: dict[str, Any] | None
) -> tuple[str, list[Outcome]]:
    """Return the reason to refuse the baseline ("" for none), and the outcome of each gate."""
    if not args.fail_if and baseline is None:
        return "", []
    from edgefold.cli.records.comparison import compare, unlike, unsettled
    from edgefold.cli.records.gates import judge_gates, judge_ratios

    outcomes = judge_gates(args.fail_if, record)
    if baseline is None:
        return "", outcomes
    if differences := unlike(baseline, record):
        return (
            f"{args.baseline} and this profile do not compare: {'; '.join(differences)}. Make a "
            "baseline under the conditions of now.",
            outcomes,
        )
    tolerance = TOLERANCE if args.tolerance is None else args.tolerance
    ratios = compare(baseline, record)
    return "", [*outcomes, *judge_ratios(ratios, tolerance, unsettled(record))]
