"""`edgefold compare`: show the ratios of figures of profiles or budgets, with intervals."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.files import (
    require_kept,
    require_writable,
    write_output,
    write_record,
    written_lines,
)
from edgefold.cli.options.bundle_options import add_record_arguments, percentage

if TYPE_CHECKING:
    from edgefold.cli.records.comparison import Ratio

EXAMPLES = (
    "edgefold compare before.json after.json",
    "edgefold compare before.json after.json --tolerance 10% --csv ratios.csv",
)
CAVEAT = "intervals: of the calls of one run each; two starts of a program may differ more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold compare`."""
    parser.add_argument("base", type=Path, metavar="A.json", help="record that others are held to")
    parser.add_argument("others", nargs="+", type=Path, metavar="B.json", help="one or more others")
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="compare records of unlike conditions too: the output says what differs",
    )
    parser.add_argument(
        "--tolerance",
        type=percentage,
        metavar="PERCENT",
        help="fail with exit code 5 if a figure is above A's by more than this, such as 10%%, "
        "with its whole interval",
    )
    add_record_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compare the records with the base, print and write the ratios, and return the exit code."""
    from edgefold.cli.records.comparison import changed, compare
    from edgefold.cli.records.figures import read_record
    from edgefold.cli.records.gates import exit_code, judge_ratios
    from edgefold.cli.schemas.compare import CompareRecord, Comparison
    from edgefold.cli.text.figures import (
        compare_csv,
        compare_prometheus,
        describe_record,
        gate_lines,
        ratio_table,
    )
    from edgefold.runtime.errors import DataError
    from edgefold.runtime.record_fields import as_json

    require_writable(args, *args.record_options)
    for source in (args.base, *args.others):
        require_kept(args, source, *args.record_options)
    base = read_record(args.base)
    others = [(path, read_record(path)) for path in args.others]
    for path, record in others:
        if (differences := _unlike(base, record)) and not args.anyway:
            raise DataError(
                f"{args.base} and {path} do not compare: {'; '.join(differences)}. Measure both "
                "under the same conditions, or see the ratios with --anyway."
            )
    lines = [f"A  {args.base}   {describe_record(base)}"]
    tables: dict[str, list[Ratio]] = {}
    entries, outcomes = [], []
    for number, (path, record) in enumerate(others, start=1):
        letter = chr(ord("A") + number) if number < 26 else f"R{number}"
        ratios, differences = compare(base, record), _unlike(base, record)
        lines.append(f"{letter}  {path}   {describe_record(record)}")
        lines += [f"   NOT ALIKE  {text}" for text in differences]
        lines += [f"   changed    {text}" for text in changed(base, record)]
        lines += ["", *ratio_table(ratios, letter), ""]
        if args.tolerance is not None:
            judged = judge_ratios(ratios, args.tolerance)
            lines += [*gate_lines(judged), ""]
            outcomes += judged
        tables[str(path)] = ratios
        shown = [ratio.record() for ratio in ratios]
        entries.append(Comparison(str(path), differences, changed(base, record), shown))
    if any(not ratio.base.exact for ratios in tables.values() for ratio in ratios):
        lines.append(CAVEAT)
    write_record(args.json, as_json(CompareRecord(str(args.base), entries)))
    if args.csv:
        write_output(args.csv, compare_csv(str(args.base), tables))
    if args.prometheus:
        write_output(args.prometheus, compare_prometheus(str(args.base), tables))
    print("\n".join([*lines, *written_lines(args.json, args.csv, args.prometheus)]))
    return exit_code(outcomes) if outcomes else ExitCode.DONE


def _unlike(base: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return in words why two records cannot be compared; an empty list if they can."""
    from edgefold.cli.records.comparison import unlike, unsettled

    whose = {"the base was": base, "the other was": other}
    reasons = [f"{who} {reason}" for who, one in whose.items() if (reason := unsettled(one))]
    return [*unlike(base, other), *reasons]
