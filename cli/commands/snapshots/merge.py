"""`edgefold merge`: join what several streams of one bundle have learned in one snapshot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.commands.snapshots.pieces import piece_lines
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import (
    add_stream_arguments,
    engine_options,
    require_trusted,
)
from edgefold.cli.terminal import printable
from edgefold.runtime.errors import OverlapError, SnapshotError

if TYPE_CHECKING:
    from edgefold.runtime.arrays import Array
    from edgefold.runtime.stream.stream import Stream

EXAMPLES = (
    "edgefold merge bundles/sensor roof.npz cellar.npz --out both.npz",
    "edgefold merge bundles/sensor site-*.npz --out fleet.npz --backend native",
)

TABLE_SOURCE = "parquet#"
"""Begins the name under which a state remembers a file of a table; see `LakeFile.source`."""
FILTERS = (
    " If both were conditioned with --filter: of the rows that a filter takes from a file, a state "
    "knows only the first and the last, so that two filters of one file overlap unless one ends "
    "before the other begins. Choose the rows of states that will be merged by --by."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold merge`."""
    add_stream_arguments(parser)
    parser.add_argument(
        "snapshots",
        metavar="SNAPSHOT",
        type=Path,
        nargs="+",
        help="two files or more that `edgefold run --snapshot`, Stream.save or a board wrote, of "
        "this bundle and with no row in common, which would count twice. Sensors join those of the "
        "same name. The merged snapshot goes on where the first one stands in its input and output",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="write the merged snapshot here"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--disjoint",
        action="store_true",
        help="you know that points of unknown rows in one snapshot are in no other one: without "
        "this, snapshots that do not say where all their points come from are refused. Rows that "
        "both snapshots state are refused with it, too",
    )


def run(args: argparse.Namespace) -> int:
    """Merge the snapshots into one, and return DONE; on an error nothing is written."""
    from edgefold.runtime.stream.stream import Stream

    paths: list[Path] = args.snapshots
    if len(paths) < 2:
        args.usage_error("give two snapshots or more")
    if len({path.resolve() for path in paths}) < len(paths):
        args.usage_error("a snapshot is named twice, so that its points would count twice")
    if args.out.exists() and not args.force:
        raise SnapshotError(f"{args.out} exists; replace it with --force, or name another --out.")
    with Stream.open(
        args.bundle,
        args.backend,
        threads=args.threads,
        memory_limit=args.memory_limit,
        engine=engine_options(args),
        expect_hash=require_trusted(args, args.bundle),
    ) as stream:
        extra = stream.restore(paths[0])
        if _has_sensors(extra):
            lines = _merge_sensors(stream, paths, extra, args)
        else:
            lines = _merge_states(stream, paths, extra, args)
    print(printable("\n".join(["      points  snapshot", *lines])))
    return ExitCode.DONE


def _merge_states(
    stream: Stream, paths: list[Path], extra: dict[str, Array], args: argparse.Namespace
) -> list[str]:
    """Merge the states of single streams, and return the lines to print.

    Args:
        stream: The stream, which holds the state of the first snapshot.
        paths: The snapshots.
        extra: The further arrays of the first snapshot.
        args: The options of the command.
    """
    lines = [f"{stream.n_points:>12,}  {paths[0]}"]
    for path in paths[1:]:
        before = stream.n_points
        try:
            extra_of_path = stream.merge(path, args.disjoint)
        except OverlapError as error:
            raise _named(stream, paths[: paths.index(path)], path, args) or error from None
        if _has_sensors(extra_of_path):
            raise _mixed(path, paths[0])
        lines.append(f"{stream.n_points - before:>12,}  {path}")
    stream.save(args.out, extra)
    lines.append(f"{stream.n_points:>12,}  {args.out}")
    return [*lines, "", *piece_lines([stream.provenance], stream.n_points)]


def _named(
    stream: Stream, earlier: list[Path], path: Path, args: argparse.Namespace
) -> OverlapError | None:
    """Return the error that a snapshot overlaps with an earlier one, which it names.

    Args:
        stream: The stream; its state is lost.
        earlier: The snapshots that are merged.
        path: The snapshot that overlaps with one of them.
        args: The options of the command.
    """
    for other in earlier:
        stream.restore(other)
        try:
            stream.merge(path, args.disjoint)
        except OverlapError as error:
            why = FILTERS if TABLE_SOURCE in str(error) else ""
            return OverlapError(f"{other} and {path}: {error}{why}", *error.remedies)
    return None


def _merge_sensors(
    stream: Stream, paths: list[Path], extra: dict[str, Array], args: argparse.Namespace
) -> list[str]:
    """Merge the states of several sensors by their names, and return the lines to print.

    The arguments are those of `_merge_states`.
    """
    from edgefold.cli.commands.snapshots.sensor_states import SensorStates

    first = SensorStates(stream, paths[0], extra)
    others, lines = [], [f"{first.n_points:>12,}  {paths[0]}"]
    for path in paths[1:]:
        own = stream.restore(path)
        if not _has_sensors(own):
            raise _mixed(paths[0], path)
        others.append(SensorStates(stream, path, own))
        lines.append(f"{others[-1].n_points:>12,}  {path}")
    first.join(others, args.disjoint)
    stream.save(args.out, {**extra, **first.arrays()})
    lines.append(f"{first.n_points:>12,}  {args.out}")
    return [*lines, "", *piece_lines(first.provenances, first.n_points)]


def _has_sensors(extra: dict[str, Array]) -> bool:
    """Return whether a snapshot's further arrays are of several sensors with names."""
    from edgefold.runtime.stream.snapshot import STREAMS

    return any(name.startswith(STREAMS) for name in extra)


def _mixed(several: Path, one: Path) -> SnapshotError:
    return SnapshotError(
        f"snapshot {several} holds the states of several sensors by their names, and {one} one "
        "state; run each sensor with a --snapshot of its own, or all of them in one loop."
    )
