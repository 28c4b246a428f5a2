"""The tables of the papers, trained and scored here: `python -m benchmarks.tables_of_papers gp`.

    each row, seed ──> edgefold train --recipe paper (resumes) ──> its score ──> one record in
                       runs/papers/...                             benchmarks/records/papers/
    all records ──> docs/papers.md: our tables beside the papers'   (python -m benchmarks tables)

Without the name of a table it lists all, with what each needs. A row that is recorded is not
trained again; after Ctrl-C the same command goes on where it was. `--steps` trains for less than
the papers did, with the whole schedule. `--time` trains nothing: it measures a step of each row,
and says how long the papers' training takes on this machine.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models.trainings import execute_missing, exit_telling
from benchmarks.papers.paper_runs import N_BATCHES, PaperRun
from benchmarks.papers.papers_page import hours, table_of
from benchmarks.papers.published_tables import TABLES, PublishedRow
from benchmarks.papers.step_times import measure_steps
from benchmarks.record import RECORDS, ROOT

PAPERS = RECORDS / "papers"
COMPILED = ("cmanp", "cmanp-and", "lbanp", "lbanp-nd", "lbanp-end", "perceiver-io")
"""Models whose steps take so long on a CPU that compiling them, for some minutes, pays. On a GPU,
graphs of the uncompiled steps are nearly as fast."""


def options() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables_of_papers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", nargs="?", choices=tuple(TABLES), help="table to work on")
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", help="rows of these models (default: all of ours)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="default: the papers' number")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time; default 1")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a row; default 1")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="where to train; default cuda where PyTorch finds a GPU, else cpu",
    )
    parser.add_argument("--data", type=Path, help="path of the table's data, where it needs some")
    parser.add_argument(
        "--batches", type=int, default=N_BATCHES, help="of the evaluation; default 3,000"
    )
    parser.add_argument("--time", action="store_true", help="measure a step of each row, and end")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "papers")
    parser.add_argument("--records", type=Path, default=PAPERS, help="one a run")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Train what is not recorded, and print the table."""
    parser = options()
    args = parser.parse_args(words)
    if args.table is None:
        print(listing())
        return
    table = TABLES[args.table]
    rows = [row for row in table.rows if row.model and row.model in (args.models or [row.model])]
    if not rows:
        parser.error(f"no row of {args.table} is of {', '.join(args.models)}")
    if not (args.steps or table.steps or args.time):
        parser.error(f"the papers state no number of steps for {args.table}: give --steps")
    device_environment(parser, args.device)
    if table.data and args.data is None:
        parser.error(f"{args.table} needs {table.data}: say where it lies with --data")
    if args.time:
        timed = [PaperRun(args.table, row, 1, threads=args.threads, data=args.data) for row in rows]
        print(hours(args.table, measure_steps(timed, args.records)))
        return
    wanted = [run_of(args, row, seed) for seed in args.seeds for row in rows]
    failed = execute_missing(wanted, args.runs, args.records, args.jobs)
    print(table_of(args.table, args.records).markdown())
    exit_telling(failed, args.runs)


def run_of(args: argparse.Namespace, row: PublishedRow, seed: int) -> PaperRun:
    """Return the run of a row and a seed that the options ask for."""
    import torch

    steps = args.steps or TABLES[args.table].steps
    on_gpu = args.device != "cpu" and torch.cuda.is_available()
    compiled = row.model in COMPILED and steps >= 1000 and not on_gpu
    more = {"data": args.data, "n_batches": args.batches}
    return PaperRun(args.table, row, steps, seed, args.threads, compiled, **more)


def device_environment(parser: argparse.ArgumentParser, device: str | None) -> None:
    """Let the trainings use the device that was asked for; refuse a GPU that is not there."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here; leave --device out to train on the CPU")
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def listing() -> str:
    """Return the names of all tables, with what each needs."""
    lines = ["usage: python -m benchmarks.tables_of_papers TABLE [--help]", ""]
    for name, table in TABLES.items():
        n_ours = sum(bool(row.model) for row in table.rows)
        needs = f"needs {table.data}" if table.data else "needs no data"
        steps = f"{table.steps:,} steps" if table.steps else "no number of steps stated"
        lines.append(f"{name:18} {table.title}: {n_ours} rows, {steps}; {needs}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
