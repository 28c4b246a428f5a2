"""Compose the `edgefold run sensors` command that goes on with the input of `edgefold forecast`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from edgefold.cli.terminal import printable
from edgefold.runtime.rows.csv_fields import quoted
from edgefold.runtime.rows.detect.columns import TableColumns
from edgefold.runtime.rows.row_format import DELIMITERS

RATE = 1e-4


def run_command(
    args: argparse.Namespace,
    columns: TableColumns,
    values: Sequence[str],
    n_sensors: int,
    csv: Path,
) -> str:
    """Return the `edgefold run` command as a text, quoted for a shell.

    For a file it has only the options that the user gave, because `run` detects the columns again.
    A pipe may begin with fewer lines the next time, so the command names all that was detected.

    Args:
        args: Options of `edgefold forecast`.
        columns: Columns that `edgefold forecast` has read.
        values: Columns of the sensors' values.
        n_sensors: Number of sensors that the input held.
        csv: File of the forecasts, from which the names of the loop's files are made.
    """
    choice, options = columns.choice, dict[str, object]()
    is_pipe = args.input == "-"
    options["input"] = args.input
    if is_pipe or args.time:
        options["time"] = choice.time[0] if choice.time else None
    if all(values) and (is_pipe or args.columns or args.beside):
        options["value"] = ",".join(quoted(values))
    if choice.series:
        options["stream"] = choice.series if is_pipe or args.series else None
        options["streams"] = max(n_sensors, 1)
    elif args.series == "":
        options["stream"] = ""
    options |= _format_options(args, columns if is_pipe else None)
    options["false-alarms"] = args.false_alarms if args.false_alarms != RATE else None
    options["siblings"] = args.siblings
    options["backend"] = args.backend if args.backend != "auto" else None
    options["engine-cache"] = args.engine_cache
    options["gpu-wait"] = args.gpu_wait if args.gpu_wait != "auto" else None
    stem = csv.with_name(csv.stem.removesuffix("-forecast") + "-run")
    options |= {"output": f"{stem}.csv", "snapshot": f"{stem}.npz"}
    words = ["edgefold", "run", str(args.bundle or "sensors")]
    for name, value in options.items():
        if value is not None:
            text = str(value)
            words += [f"--{name}={text}"] if text[:1] == "-" < text else [f"--{name}", text]
    return printable(shlex.join(words))


def _format_options(args: argparse.Namespace, found: TableColumns | None) -> dict[str, object]:
    """Return delimiter, decimal, time-format and missing as the user gave them, or as detected."""
    delimiter, decimal, time_format = args.delimiter, args.decimal, args.time_format
    if found is not None:
        delimiter = delimiter or found.format.delimiter
        decimal = decimal or (found.format.decimal if found.format.decimal == "," else None)
        if len(found.choice.time) == 1:
            time_format = time_format or found.format.time_format
    signs = {sign: word for word, sign in DELIMITERS.items() if word.isalpha()}
    return {
        "delimiter": signs.get(delimiter, delimiter),
        "decimal": decimal,
        "time-format": time_format,
        "missing": ",".join(args.missing) if args.missing else None,
    }
