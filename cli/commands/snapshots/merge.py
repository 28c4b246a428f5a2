"""`edgefold merge`: join what several streams of one bundle have learned in one snapshot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options.bundle_options import (
    add_stream_arguments,
    engine_options,
    require_trusted,
)
from edgefold.cli.terminal import printable

if TYPE_CHECKING:
    from edgefold.runtime.arrays import Array

EXAMPLES = (
    "edgefold merge bundles/sensor roof.npz cellar.npz --out both.npz",
    "edgefold merge bundles/sensor site-*.npz --out fleet.npz --backend native",
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
        "this bundle and with no point in common: it would count twice. The merged snapshot goes "
        "on where the first one stands in its input and output",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="write the merged snapshot here"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--disjoint",
        action="store_true",
        help="you know that points of unknown rows in one snapshot are in no other one: without "
        "this, snapshots that do not say where all their points come from are refused",
    )


def run(args: argparse.Namespace) -> int:
    """Merge the snapshots into one, and return DONE; on an error nothing is written."""
    from edgefold.runtime.errors import SnapshotError
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
        first = stream.restore(paths[0])
        _require_one_sensor(paths[0], first)
        lines = [f"{stream.n_points:>12,}  {paths[0]}"]
        for path in paths[1:]:
            before = stream.n_points
            _require_one_sensor(path, stream.merge(path, args.disjoint))
            lines.append(f"{stream.n_points - before:>12,}  {path}")
        stream.save(args.out, first)
        lines.append(f"{stream.n_points:>12,}  {args.out}")
    print(printable("\n".join(["      points  snapshot", *lines])))
    return ExitCode.DONE


def _require_one_sensor(path: Path, extra: dict[str, Array]) -> None:
    """Raise SnapshotError for a snapshot with the states of several sensors."""
    from edgefold.runtime.errors import SnapshotError
    from edgefold.runtime.stream.snapshot import STREAMS

    if any(name.startswith(STREAMS) for name in extra):
        raise SnapshotError(
            f"snapshot {path} holds the states of several sensors, and merge joins one with one; "
            "run each sensor with a --snapshot of its own."
        )
