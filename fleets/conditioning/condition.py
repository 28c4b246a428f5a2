"""Condition a model on tables: the function behind `edgefold condition`.

    tables ──> lake ──> plan ──> units on processes, or on a cluster of dask ──> snapshots

Everything between lies in a work folder inside or beside the output, from which the same call goes
on after any stop.
"""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from edgefold.fleets.conditioning.job import TABLE
from edgefold.fleets.conditioning.plan import WRITTEN, ConditionPlan, facts_of, plan_of
from edgefold.fleets.conditioning.point_rows import FILTERED, POINTS, READ
from edgefold.fleets.conditioning.setup import WINDOW_ROWS, ConditionSetup, require_fitting
from edgefold.fleets.tables.batches import BATCH_ROWS
from edgefold.fleets.tables.frames import as_patterns
from edgefold.fleets.tables.lake import Lake, open_lake
from edgefold.fleets.work.crew import MOST_DEATHS, Crew
from edgefold.fleets.work.dask_crew import DaskCrew
from edgefold.fleets.work.unit import Agenda, Hear, JobSource, WorkNews
from edgefold.fleets.work.work_folder import missing_folders, remove_work, work_folder
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import BundleError, DataError, MemoryLimitError, OutputError
from edgefold.runtime.files import write_atomic
from edgefold.runtime.sensors.shipped_bundle import named_bundle
from edgefold.runtime.stream.memory_estimate import require_within
from edgefold.runtime.stream.stream import Stream

UNIT_ROWS = 1 << 20
FILES = "files.csv"
LAKE_BYTES = 120 << 20
"""Memory that pyarrow and its batches take in a process besides a stream (measured: 105 MB)."""


@dataclass(frozen=True, slots=True)
class ConditionOptions:
    """Says how a model is conditioned on tables; the defaults suit one machine.

    Attributes:
        filter: An expression that chooses rows; None for all.
        skip_bad: Whether rows with NaN, infinity or absurd values are left out and counted.
        processes: The number of processes; None for one on each processor.
        scheduler: The address of dask's scheduler whose workers read the rows, such as
            tcp://127.0.0.1:8786; None reads them on this machine.
        backend: "auto", or the name of a backend.
        engine: Options on how the backend opens; processes use only its cache.
        unit_rows: The number of rows after which a unit ends, with its row group.
        batch_rows: The most rows that are read at once.
        memory_limit: The number of bytes that a process may need; None checks nothing.
        expect_hash: The bundle's hash; any other bundle is refused.
        restart: Whether unfinished work of another plan is dropped.
        force: Whether existing output is replaced.
        most_deaths: A unit of which so many processes died is given up.
    """

    filter: str | None = None
    skip_bad: bool = False
    processes: int | None = None
    scheduler: str | None = None
    backend: str = "auto"
    engine: EngineOptions = field(default_factory=EngineOptions)
    unit_rows: int = UNIT_ROWS
    batch_rows: int = BATCH_ROWS
    memory_limit: int | None = None
    expect_hash: str | None = None
    restart: bool = False
    force: bool = False
    most_deaths: int = MOST_DEATHS


class ConditionedState(NamedTuple):
    """Holds what one group has learned.

    Attributes:
        values: The group's values by column, as texts.
        path: The snapshot; None if no row of the group was a point.
        n_points: The number of points in it.
        n_left_out: The number of the group's rows with nulls or bad values.
    """

    values: Mapping[str, str]
    path: Path | None
    n_points: int
    n_left_out: int


@dataclass(frozen=True, slots=True)
class Conditioned:
    """Holds the result of `condition`.

    Attributes:
        states: One for each group, sorted by the groups' values.
        counts: The number of rows by what became of them: "rows read", "points", "null", "bad",
            "without a group", "filtered".
        wall_s: How long this call took.
        n_deaths: The number of processes that died and were replaced.
    """

    states: Sequence[ConditionedState]
    counts: Mapping[str, int]
    wall_s: float
    n_deaths: int


@dataclass(frozen=True, slots=True)
class Conditioning:
    """Holds a plan that can run.

    Attributes:
        setup: What all units share.
        lake: The files.
        plan: The units.
        manifest: The bundle's manifest.
        out: Where the output goes: a folder for groups, else a file.
        work: The folder of unfinished work.
        options: How the plan runs.
        report: Facts on the backend.
    """

    setup: ConditionSetup
    lake: Lake
    plan: ConditionPlan
    manifest: Manifest
    out: Path
    work: Path
    options: ConditionOptions
    report: Mapping[str, Any]

    @property
    def n_processes(self) -> int:
        """Return the number of processes that read rows on this machine."""
        if not self.plan.merges:
            return 1
        processors = len(os.sched_getaffinity(0))
        return max(1, min(self.options.processes or processors, self.plan.n_read))


def condition(
    bundle: str | Path,
    tables: Any,
    *,
    x: Sequence[str] = (),
    y: Sequence[str] = (),
    by: Sequence[str] = (),
    out: str | Path,
    options: ConditionOptions | None = None,
    hear: Hear | None = None,
) -> Conditioned:
    """Condition a model on tables, one state for each group, and write the states as snapshots.

    A state is the same to the bit for any number of processes, also if processes were killed or the
    call was interrupted and called again.

    Args:
        bundle: The bundle's folder, or the word of a shipped one, such as "gp-tiny".
        tables: Parquet files, folders of such files, or globs; or a table of pyarrow, polars or
            pandas, which is written to a file beside the output while the call runs.
        x: Names of the columns of inputs, in the model's order.
        y: Names of the columns of outputs.
        by: Names of the columns whose values form groups; none makes one state of all rows.
        out: A folder for a snapshot of each group and the tables states.csv and files.csv; without
            `by` the path of one snapshot, beside which the table NAME.files.csv is written.
        options: How it is done.
        hear: Receives news on the progress.

    Raises:
        DataError: The tables cannot be read, or hold bad values.
        BundleError: The bundle does not fit the columns, or learns in another way.
        OutputError: The output exists already, or holds unfinished work of another plan.
        WorkError: Processes died of one unit again and again.
        EdgefoldError: The model could not learn, or the backend does not open.
    """
    with as_patterns(tables, Path(f"{out}.tables")) as patterns:
        return run_conditioning(plan_conditioning(bundle, patterns, x, y, by, out, options), hear)


def plan_conditioning(
    bundle: str | Path,
    patterns: Sequence[str],
    x: Sequence[str],
    y: Sequence[str],
    by: Sequence[str],
    out: str | Path,
    options: ConditionOptions | None = None,
) -> Conditioning:
    """Open the files and the bundle, and plan what `condition` does.

    The arguments are the same, but for the tables, of which only paths are taken.
    """
    options, out = options or ConditionOptions(), Path(out)
    # Absolute, because workers of dask have another current folder.
    bundle = Path(named_bundle(str(bundle))).absolute()
    with Stream.open(
        bundle, options.backend, engine=options.engine, expect_hash=options.expect_hash
    ) as stream:
        manifest, report = stream.manifest, stream.backend_report
    require_fitting(manifest, x, y)
    _require_memory(manifest, options, len(x) + len(y), report["name"])
    lake = open_lake(
        [os.path.abspath(pattern) for pattern in patterns],
        [*x, *y, *by],
        options.filter,
        [*x, *y],
    )
    setup = ConditionSetup(
        bundle,
        manifest.bundle_hash,
        tuple(x),
        tuple(y),
        tuple(by),
        lake.columns,
        options.filter,
        options.skip_bad,
        report["name"],
        str(report["version"]),
        options.engine.cache,
        options.batch_rows,
    )
    merges = bool(manifest.of_step("merge"))
    if options.scheduler and not merges:
        raise BundleError(
            f"the states of {bundle} do not merge, so that one process must read all rows in their "
            "order; leave --scheduler out. docs/models.md lists the models that merge."
        )
    work = out / ".work" if by else out.with_name(f"{out.name}.work")
    plan = plan_of(lake, options.unit_rows, merges, work / "out")
    return Conditioning(setup, lake, plan, manifest, out, work, options, report)


def run_conditioning(planned: Conditioning, hear: Hear | None = None) -> Conditioned:
    """Run a plan, move its output to its place, and remove the work folder."""
    began_s = time.monotonic()
    options, by = planned.options, planned.setup.by
    _require_place(planned)
    facts = facts_of(planned.setup, planned.lake, options.unit_rows)
    source = JobSource("edgefold.fleets.conditioning.job", "open_job", planned.setup)
    above = missing_folders(planned.work)
    with work_folder(planned.work, facts, options.restart) as folder:
        agenda = Agenda(planned.plan.units, folder)
        crew = Crew(source, planned.n_processes, options.most_deaths)
        try:
            if options.scheduler is None:
                crew.run(agenda, hear or _ignore)
            else:
                DaskCrew(source, options.scheduler, crew).run(agenda, hear or _ignore)
        except BaseException:
            if not agenda.has_results:  # nothing that another call could go on from
                remove_work(folder, above)
            raise
        counts = json.loads((folder / WRITTEN).read_bytes())
        if counts.get(POINTS):
            files = planned.out / FILES if by else planned.out.with_suffix(f".{FILES}")
            write_atomic(files, _files_table(planned.lake).encode())
        states = _move(folder / "out", planned.out, by) if counts.get(POINTS) else []
    remove_work(planned.work, above)
    if not states:
        raise DataError(f"no row is a point: {_why_none(planned, counts)}.")
    return Conditioned(states, counts, time.monotonic() - began_s, crew.n_deaths)


def describe(counts: Mapping[str, int]) -> str:
    """Return how many rows were read, and why rows are no points, as one text."""
    reasons = [f"{n:,} {name}" for name, n in counts.items() if n and name not in (READ, POINTS)]
    left_out = f"; left out: {', '.join(reasons)}" if reasons else ""
    read, points = counts.get(READ, 0), counts.get(POINTS, 0)
    words = "row" if read == 1 else "rows", "point" if points == 1 else "points"
    return f"{read:,} {words[0]} read, {points:,} {words[1]}{left_out}"


def _why_none(planned: Conditioning, counts: Mapping[str, int]) -> str:
    """Return why there is no point at all."""
    lake, filter = planned.lake, planned.setup.filter
    if not lake.n_rows:
        return (
            f"{lake.files[0].path} {'and all other files have' if lake.files[1:] else 'has'} no row"
        )
    if filter is not None and counts.get(READ, 0) == counts.get(FILTERED, 0):
        return f"the filter {filter!r} takes none of {lake.n_rows:,} rows"
    return describe(counts)


def _ignore(news: WorkNews) -> None:
    pass


def _require_memory(
    manifest: Manifest, options: ConditionOptions, n_columns: int, backend: str
) -> None:
    """Raise MemoryLimitError if a process would need more than the limit."""
    if options.memory_limit is None:
        return
    window = WINDOW_ROWS * (2 * n_columns + 2) * 8
    left = options.memory_limit - LAKE_BYTES - window
    if left <= 0:
        raise MemoryLimitError(
            f"a process needs {(LAKE_BYTES + window) / 1e6:.0f} MB for the rows that it reads and "
            f"sorts, the limit is {options.memory_limit / 1e6:.0f} MB."
        )
    require_within(manifest, left, backend, slots=2)


def _require_place(planned: Conditioning) -> None:
    """Raise OutputError if the output exists, and may not be replaced."""
    out, by = planned.out, planned.setup.by
    if by and out.suffix == ".npz":
        raise OutputError(
            f"with --by, --out names a folder for the states of the groups, and {out} ends as a "
            f"snapshot does; name it {out.with_suffix('')}, for example."
        )
    if planned.work.exists():  # a stopped run, which this one continues, may have moved some files
        return
    there = out / TABLE if by else out
    if by and out.exists() and not out.is_dir():
        raise OutputError(f"{out} is not a folder; name a folder for the states of the groups.")
    if not by and (out.is_dir() or out.suffix != ".npz"):
        raise OutputError(
            f"{out} is not the name of a snapshot; without --by name one file that ends with .npz."
        )
    if there.exists() and not planned.options.force:
        raise OutputError(f"{there} exists; replace it with --force, or name another --out.")


def _files_table(lake: Lake) -> str:
    """Return a table of the names under which states remember files, their rows and paths."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["source", "rows", "file"])
    writer.writerows([file.source, file.n_rows, file.path] for file in lake.files)
    return table.getvalue()


def _move(source: Path, out: Path, by: Sequence[str]) -> list[ConditionedState]:
    """Move the snapshots and their table to their place, and return what the table lists.

    The table goes last, so that after a stop on the way the next run moves what is left.
    """
    is_moved = not (source / TABLE).exists()
    rows = _table(out if is_moved else source)
    if by and not is_moved:
        new = {row[len(by)] for row in rows}
        for *_, name, _, _ in _table(out):  # of a former run
            if name not in new and name == os.path.basename(name):
                (out / name).unlink(missing_ok=True)
    states = list[ConditionedState]()
    for *values, name, n_points, n_left_out in rows:
        path = (out / name if by else out) if name else None
        if path is not None and (source / name).exists():
            os.replace(source / name, path)
        named = dict(zip(by, values, strict=True))
        states.append(ConditionedState(named, path, int(n_points), int(n_left_out)))
    if by and not is_moved:
        os.replace(source / TABLE, out / TABLE)
    return states


def _table(folder: Path) -> list[list[str]]:
    """Return the rows of a folder's table of states; none if there is no table."""
    try:
        with (folder / TABLE).open(newline="") as file:
            return list(csv.reader(file))[1:]
    except FileNotFoundError:
        return []
