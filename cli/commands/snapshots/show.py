"""`edgefold snapshot`: show what a snapshot holds, and which rows it has learned."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.commands.snapshots.pieces import piece_lines
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.terminal import printable

if TYPE_CHECKING:
    from edgefold.runtime.arrays import Array

EXAMPLES = ("edgefold snapshot state.npz",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold snapshot`."""
    parser.add_argument("path", metavar="FILE", type=Path, help="the snapshot; no bundle is needed")


def run(args: argparse.Namespace) -> int:
    """Print the snapshot's bundle, its points, its sensors and its pieces."""
    from edgefold.runtime.stream.provenance import PROVENANCE, read_provenances
    from edgefold.runtime.stream.snapshot import STREAMS, read_any

    record, extra = read_any(args.path)
    counts = extra.get(f"{STREAMS}n_points")
    n_each = [record.n_points] if counts is None else [int(n) for n in counts.ravel()]
    name = PROVENANCE if counts is None else f"{STREAMS}pieces"
    stated = read_provenances(extra[name], n_each) if name in extra else []
    names = _names(extra)
    lines = [
        f"bundle        {record.bundle_hash}",
        f"points        {sum(n_each):,}",
        *([f"sensors       {len(n_each):,}: {', '.join(names)}"] if counts is not None else []),
        "",
        *piece_lines(stated, sum(n_each)),
    ]
    print(printable("\n".join(lines)))
    return ExitCode.DONE


def _names(extra: dict[str, Array]) -> list[str]:
    """Return the names of a loop's sensors; none if the snapshot holds none that can be read."""
    from edgefold.runtime.loop.record import DAMAGE, RECORD

    try:
        form: Any = json.loads(extra[RECORD].tobytes())
        return [str(name) for name in form["names"]]
    except DAMAGE:
        return []
