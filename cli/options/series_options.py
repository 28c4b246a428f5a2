"""Declare the flags of a series' file, which several commands have."""

from __future__ import annotations

import argparse
from typing import Any

from edgefold.cli.options.flags import add_flags, stored_names
from edgefold.runtime.rows.row_format import FormatOptions
from edgefold.runtime.series.options import SeriesOptions

EVENT_NAMES = ("csv", "time", "bad_rows", *stored_names(FormatOptions))
"""Names of the options of a series that a file of events has too."""


def add_series_flags(parser: argparse.ArgumentParser, csv_help: str) -> argparse._ActionsContainer:
    """Declare the options of a series, without defaults, so that those of a trained run apply."""
    return add_flags(parser, SeriesOptions, {"csv": f"{csv_help}; CSV or JSON lines"})


def foreign_options(args: argparse.Namespace, task: dict[str, Any]) -> list[str]:
    """Return the given flags that do not belong to the file of a trained task, such as --season.

    Args:
        args: Options of the command.
        task: Description of a task that is not a series.
    """
    known = EVENT_NAMES if task.get("rows") == "events" and "file" in task else ()
    names = [n for n in stored_names(SeriesOptions) if getattr(args, n) and n not in known]
    return [f"--{name.replace('_', '-')}" for name in names]
