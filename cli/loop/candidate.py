"""Open the candidate of `edgefold run --candidate`, after checking that it may take over."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.loop.message_input import tell
from edgefold.cli.options.bundle_options import open_stream
from edgefold.runtime.errors import BundleError
from edgefold.runtime.loop.loop_snapshot import LoopSnapshot
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.loop.streams import LoopStreams
from edgefold.runtime.stream.snapshot import bundle_of
from edgefold.runtime.trial.trial import Trial, TrialOptions
from edgefold.runtime.trial.trial_files import TrialFiles

if TYPE_CHECKING:
    from contextlib import ExitStack

    from edgefold.runtime import Manifest
    from edgefold.runtime.loop.arrival import RowAdapter
    from edgefold.runtime.rows.csv_columns import Columns

Adapters = Callable[["Manifest"], "tuple[list[RowAdapter], Columns | None]"]


def take_candidate_that_took_over(args: argparse.Namespace) -> None:
    """Run the candidate as the bundle if the snapshot says that it has taken over; change `args`.

    Without --snapshot a candidate is refused, because the decision could not be kept.
    """
    if args.candidate is None:
        return
    if args.snapshot is None:
        args.usage_error("argument --candidate: name a --snapshot, which keeps the decision")
    from edgefold.runtime.bundle.manifest_file import load_manifest

    own, new = (
        load_manifest(bundle, False).bundle_hash for bundle in (args.bundle, args.candidate)
    )
    if own == new:
        tell("the candidate is the bundle itself, so there is nothing to try")
        args.candidate = None
    elif not args.force and args.snapshot.exists() and bundle_of(args.snapshot) == new:
        tell(
            f"the candidate has taken over before: {args.candidate} runs, and may be named as the "
            "bundle from now on"
        )
        args.bundle, args.candidate = args.candidate, None


def open_candidate(
    args: argparse.Namespace,
    adapters: Sequence[RowAdapter],
    columns: Columns | None,
    make_adapters: Adapters,
    opened: ExitStack,
) -> TrialFiles:
    """Open the candidate, and return its trial.

    Its signature and the memory limit, with the old model in memory, are checked first.

    Args:
        args: The options of the command.
        adapters: The adapters of the model in service.
        columns: The columns of an input with several sensors; None for one sensor.
        make_adapters: Function that returns adapters and columns for the candidate's manifest.
        opened: Closes the candidate's stream at the end.

    Raises:
        BundleError: The candidate is damaged or not trusted, or its predictions have no log score.
        MemoryLimitError: Both together would need more memory than --memory-limit.
    """
    n_slots = len(adapters) if columns is not None else 0
    stream = opened.enter_context(open_stream(args, args.candidate, n_slots))
    own = make_adapters(stream.manifest)[0]
    for adapter in own:
        if isinstance(adapter, SensorRows) and isinstance(adapters[0], SensorRows):
            adapter.share_columns(adapters[0])  # the first row of the input is read once
    z = 4.0 if args.anomaly_z is None else args.anomaly_z
    sensors = LoopStreams(stream, own, z, columns is not None)
    kind = stream.manifest.prediction
    if not (kind.has_score or isinstance(own[0], SensorRows)):
        raise BundleError(
            f"predictions of the kind {kind.name} have no log score, by which --candidate decides."
        )
    read = adapters[0].columns if columns is None else columns
    settings = {"anomaly_z": z, **own[0].settings}

    def make(path: Path) -> LoopSnapshot:
        return LoopSnapshot(path, stream, sensors, read, settings)

    trial = Trial(sensors, stream, TrialOptions(args.risk, args.probation, tell))
    return TrialFiles(args.snapshot, trial, make)
