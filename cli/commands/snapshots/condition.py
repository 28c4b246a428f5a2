"""`edgefold condition`: condition a model on tables larger than memory, one state for each group.

This module handles arguments and prints; `edgefold.fleets.conditioning` does the work.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import (
    add_backend_argument,
    add_bundle_argument,
    add_engine_arguments,
    add_trust_arguments,
    backend_lines,
    byte_size,
    column_names,
    engine_options,
    positive,
    require_trusted,
)
from edgefold.cli.terminal import printable, say
from edgefold.cli.work_progress import WorkProgress

if TYPE_CHECKING:
    from edgefold.fleets.conditioning.condition import Conditioned, Conditioning

EXAMPLES = (
    "edgefold condition bundles/sensor 'lake/**/*.parquet' --x hour,load --y temperature "
    "--out state.npz",
    "edgefold condition bundles/sensor lake --x hour,load --y temperature --by site --out states/",
    "edgefold condition bundles/sensor lake --x hour,load --y temperature --by site --out states/ "
    "--filter \"time >= '2025-01-01' and site in (3, 7)\" --dry-run",
    "edgefold condition bundles/sensor lake --x hour,load --y temperature --by site --out states/ "
    "--scheduler tcp://127.0.0.1:8786",
)
DESCRIPTION = """\
Condition a model on tables larger than memory: a state for each group of rows, written as snapshots
that `edgefold run --snapshot`, `edgefold merge` and a board take.

    $ edgefold condition bundles/sensor lake --x hour,load --y temp --by site --out states/
    lake/site=3/2025-01.parquet       time,hour,load,temp
                                      2025-01-01 00:00,0,312,12.1
    states/site=3.npz                 what the model knows after all rows of site 3
    states/states.csv                 site,file,points,rows_left_out
    states/files.csv                  source,rows,file

Rows are read by batches, so that memory stays flat, and learned on all processors. Columns may
stand in the files or in the names of folders (site=3/); times count as seconds since 1970. Rows
with a null in --x, --y or --by are left out and counted. After Ctrl-C, a kill or a power cut the
same command goes on; states are the same to the bit, whatever happened on the way. docs/fleets.md
says more."""
MANY_GROUPS = 10_000
"""From so many groups on, the command warns: each is a file, and each unit writes its states."""
LISTED = 20
"""States that the summary lists; states.csv has them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold condition`."""
    parser.description = DESCRIPTION
    add_bundle_argument(parser)
    parser.add_argument(
        "tables",
        metavar="TABLE",
        nargs="+",
        help="Parquet files, folders of them, or globs in quotes, in which ** stands for any "
        "number of folders (needs the parquet extra)",
    )
    rows = parser.add_argument_group("rows")
    for name, text in (
        ("x", "the columns of the model's inputs, in its order"),
        ("y", "the columns of its outputs"),
        (
            "by",
            "columns whose values form groups, each with a state of its own (default: one "
            "state of all rows)",
        ),
    ):
        rows.add_argument(f"--{name}", metavar="A,B,..", type=column_names, default=[], help=text)
    rows.add_argument(
        "--filter",
        metavar="TEXT",
        help="take only some rows: comparisons of columns with constants, and, or, not, in, is "
        "null, as in \"temp > 3 and site in ('a', 'b')\". Backticks enclose a name with spaces; a "
        "time is a text such as '2025-01-31T12:00'",
    )
    rows.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave out rows with NaN, infinity or absurd values, and count them (default: the "
        "first one ends the command)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        metavar="PATH",
        type=Path,
        required=True,
        help="with --by a folder, else a file that ends with .npz",
    )
    output.add_argument("--force", action="store_true", help="replace the output if it exists")
    output.add_argument(
        "--restart", action="store_true", help="drop the unfinished work of another plan"
    )
    output.add_argument(
        "--dry-run",
        action="store_true",
        help="print the plan: files, rows, units, columns, and how long it takes after a short "
        "trial; nothing is written",
    )
    work = parser.add_argument_group("processes")
    work.add_argument(
        "--processes", metavar="N", type=positive, help="processes (default: one a processor)"
    )
    work.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="let the workers of this dask scheduler read and learn, such as tcp://10.0.0.5:8786; "
        "they see the files and the bundle by the same paths (needs the dask extra)",
    )
    work.add_argument(
        "--unit-rows",
        metavar="N",
        type=positive,
        default=1 << 20,
        help="rows of a unit of work, rounded up to whole row groups (default 1048576); a killed "
        "process loses at most its unit",
    )
    work.add_argument(
        "--batch-rows",
        metavar="N",
        type=positive,
        default=1 << 16,
        help="rows that are read at once (default 65536)",
    )
    work.add_argument(
        "--memory-limit",
        type=byte_size,
        metavar="SIZE",
        help="refuse a bundle that would make a process need more than SIZE, as 300MiB",
    )
    add_backend_argument(parser)
    add_trust_arguments(parser)
    add_engine_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Condition the model, print what each state has learned, and return DONE."""
    from edgefold.fleets.conditioning.condition import (
        ConditionOptions,
        plan_conditioning,
        run_conditioning,
    )
    from edgefold.runtime.stop_signal import sigterm_interrupts

    if not args.x and not args.y:
        args.usage_error("name the columns of the model's inputs and outputs with --x and --y")
    names = [*args.x, *args.y]
    if len(set(names)) < len(names):
        args.usage_error("a column is named twice in --x and --y")
    options = ConditionOptions(
        filter=args.filter,
        skip_bad=args.skip_bad,
        processes=args.processes,
        scheduler=args.scheduler,
        backend=args.backend,
        engine=engine_options(args),
        unit_rows=args.unit_rows,
        batch_rows=args.batch_rows,
        memory_limit=args.memory_limit,
        expect_hash=require_trusted(args, args.bundle),
        restart=args.restart,
        force=args.force,
    )
    with sigterm_interrupts():
        planned = plan_conditioning(
            args.bundle, args.tables, args.x, args.y, args.by, args.out, options
        )
        say("\n".join(backend_lines(dict(planned.report))))
        if not planned.plan.merges:
            say(
                "order     this model's states do not merge, so that one process learns all rows "
                "in their order"
            )
        if args.dry_run:
            print(printable("\n".join(_plan_lines(planned))))
            return ExitCode.DONE
        progress = WorkProgress()
        try:
            done = run_conditioning(planned, progress.hear)
        except KeyboardInterrupt:
            progress.clear()
            if planned.work.exists():
                say(f"stopped   {planned.work} keeps what is done: the same command goes on")
            raise
        finally:
            progress.clear()
    print(printable("\n".join(_result_lines(done, args.by, args.out))))
    return ExitCode.DONE


def _plan_lines(planned: Conditioning) -> list[str]:
    """Return the plan as text, with an estimate after a trial of a second."""
    from edgefold.fleets.conditioning.trial import try_plan
    from edgefold.runtime.series.durations import duration

    lake, setup, plan = planned.lake, planned.setup, planned.plan
    n_bytes = sum(file.stamp.n_bytes for file in lake.files)
    files = "1 file" if len(lake.files) == 1 else f"{len(lake.files):,} files"
    lines = [
        f"files         {files}, {lake.n_rows:,} rows, {n_bytes / 1e6:,.1f} MB",
        f"              {lake.files[0].path}",
        *([f"              to {lake.files[-1].path}"] if len(lake.files) > 1 else []),
    ]
    for role in ("x", "y", "by"):
        for name in getattr(setup, role):
            column = lake.columns[name]
            lines.append(f"{role:14}{name}: {column.kind}, {column.type}")
    if setup.filter:
        lines.append(f"filter        {setup.filter}")
    units = "1 unit" if plan.n_read == 1 else f"{plan.n_read:,} units"
    where = (
        f"the workers of {planned.options.scheduler}"
        if planned.options.scheduler
        else f"{planned.n_processes} processes"
        if planned.n_processes > 1
        else "1 process"
    )
    lines.append(f"units         {units} of about {planned.options.unit_rows:,} rows on {where}")
    trial = try_plan(planned)
    if setup.by:
        n_groups = trial.n_groups
        in_folders = {tuple(file.values.get(name) for name in setup.by) for file in lake.files}
        if all(name in file.values for file in lake.files for name in setup.by):
            n_groups = len(in_folders)
            lines.append(f"groups        {n_groups:,}, named by folders")
        else:
            lines.append(f"groups        {trial.n_groups:,} in the first {trial.n_rows:,} rows")
        lines += _many_lines(n_groups)
    if trial.n_rows:
        rates = [1 / seconds for seconds in (trial.reading_s, trial.learning_s) if seconds]
        words = " and ".join(
            f"{verb} {rate:,.0f} rows/s"
            for verb, rate in zip(("reads", "learns"), rates, strict=False)
        )
        seconds = trial.all_s(lake.n_rows, planned.n_processes)
        about = "" if planned.options.scheduler else f"about {duration(seconds)}: "
        lines.append(f"time          {about}a process {words}")
    return lines


def _result_lines(done: Conditioned, by: list[str], out: Path) -> list[str]:
    """Return what was learned as text: a line for each state, and the sums."""
    from edgefold.fleets.conditioning.condition import describe

    lines = ["      points    left out  state"]
    for state in done.states[:LISTED]:
        path = state.path or f"none: no row of {', '.join(state.values.values())} is a point"
        lines.append(f"{state.n_points:>12,}{state.n_left_out:>12,}  {path}")
    if (more := len(done.states) - LISTED) > 0:
        lines.append(f"{'':26}and {more:,} more, which {out}/states.csv lists")
    lines.append(f"rows          {describe(done.counts)}")
    rate = done.counts["rows read"] / max(done.wall_s, 1e-3)
    died = f"; {done.n_deaths} processes died and were replaced" if done.n_deaths else ""
    lines.append(f"this run      {done.wall_s:.1f} s, {rate:,.0f} rows/s{died}")
    lines += _many_lines(len(done.states))
    if by:
        lines.append(f"written       {out}/states.csv and {len(done.states):,} states")
    return lines


def _many_lines(n_groups: int) -> list[str]:
    """Return a warning if there are very many groups."""
    if n_groups <= MANY_GROUPS:
        return []
    return [
        f"warning       {n_groups:,} groups: each is a file, and a unit writes the states of its",
        "              groups; if that is meant, sort the tables by group or raise --unit-rows",
    ]
