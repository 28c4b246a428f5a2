"""`edgefold run`: predict each row of a CSV, then update the model with it.

Arguments, signals, progress and the summary live here; the loop is `edgefold.runtime.loop.loop`.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.options import (
    add_stream_arguments,
    backend_lines,
    engine_options,
    positive,
    require_trusted,
)
from edgefold.cli.terminal import StatusLine, say
from edgefold.runtime.stop_signal import StopSignal

if TYPE_CHECKING:
    from edgefold.runtime.loop.input_file import InputFile
    from edgefold.runtime.loop.loop import PredictionLoop

EXAMPLES = (
    "edgefold run bundles/sensor --input data.csv --output predictions.csv \\\n"
    "      --snapshot state.npz --every 100",
    "sensor-reader | edgefold run bundles/sensor --input - --output -",
)

SHOWN_BAD_ROWS = 20
MAX_REFUSED_IN_A_ROW = 20
PROGRESS_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_stream_arguments(parser)
    parser.add_argument(
        "--input", required=True, metavar="CSV", help="rows to read, or - for stdin"
    )
    parser.add_argument("--output", metavar="CSV", help="predictions to write, or - for stdout")
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        type=Path,
        help="save progress here; resume from it if it exists. A file is then read from where the "
        "snapshot stands, a pipe from the rows that it brings then",
    )
    parser.add_argument(
        "--every", type=positive, default=100, metavar="N", help="rows per snapshot (default 100)"
    )
    parser.add_argument("--time", metavar="COL", help="a series' column of times (default time)")
    parser.add_argument("--value", metavar="COL", help="a series' column of values (default value)")
    parser.add_argument(
        "--columns",
        metavar="X1,..,Y1,..",
        type=lambda text: text.split(","),
        help="columns of inputs, then outputs, of a bundle that is not a series",
    )
    parser.add_argument(
        "--anomaly-z",
        type=float,
        default=4.0,
        metavar="Z",
        help="flag values further than Z standard deviations from their prediction (default 4)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first malformed row")
    parser.add_argument(
        "--force", action="store_true", help="start over, over an output and snapshot that exist"
    )
    parser.add_argument(
        "--buffered", action="store_true", help="buffer points and update in chunks"
    )
    # The option's name until version 0.2; drop it with the next version.
    parser.add_argument("--wait", dest="buffered", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Run the command.

    Returns:
        DONE when the input ended or a signal asked to stop, with everything on disk; REFUSED if at
        least the last 20 rows were all refused.
    """
    if not (args.anomaly_z > 0 and math.isfinite(args.anomaly_z)):
        args.usage_error(f"argument --anomaly-z: {args.anomaly_z} is not a positive number")
    with StopSignal() as stop:
        from edgefold.runtime.loop.run_files import refuse_same_files, snapshot_lock

        refuse_same_files(args.input, args.output, args.snapshot)
        with snapshot_lock(args.snapshot):
            return _run(args, stop)


def _run(args: argparse.Namespace, stop: StopSignal) -> int:
    from edgefold.runtime import Stream
    from edgefold.runtime.loop.input_file import InputFile
    from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
    from edgefold.runtime.loop.output_file import OutputFile
    from edgefold.runtime.rows.adapters import adapter_for

    with Stream.open(
        args.bundle,
        args.backend,
        args.threads,
        args.buffered,
        args.memory_limit,
        engine_options(args),
        require_trusted(args, args.bundle),
    ) as stream:
        options = LoopOptions(args.every, args.anomaly_z, args.strict, args.force)
        adapter = adapter_for(stream.manifest, args.time, args.value, args.columns)
        source = InputFile(args.input, stop, whole_lines=args.snapshot is not None)
        try:
            loop = PredictionLoop(
                stream, adapter, source, OutputFile(args.output, stop), args.snapshot, options
            )
            progress = Progress(loop, source)
            try:
                loop.run(stop, progress.bad_row, progress.row)
                progress.tell()
            finally:
                progress.clear()
        finally:
            source.close()
        say("\n".join(backend_lines(stream.backend_report)))
        say(progress.summary(stop(), args.snapshot))
    lost = loop.counters.refused_in_a_row >= MAX_REFUSED_IN_A_ROW
    return ExitCode.REFUSED if lost else ExitCode.DONE


class Progress:
    """Shows a status line while the loop runs, and the summary at the end; all on stderr."""

    def __init__(self, loop: PredictionLoop, source: InputFile):
        self._loop, self._source = loop, source
        self._line = StatusLine(PROGRESS_S)
        self._start_s = time.monotonic()
        self._n_lines = self._n_bad = 0
        self._held: list[str] = []
        self._last_bad = "in an earlier run"

    def bad_row(self, line: int, reason: str) -> None:
        """Report a malformed row; after 20 of them they are only counted."""
        self._n_bad += 1
        self._last_bad = f"line {line}: {reason}"
        if self._n_bad <= SHOWN_BAD_ROWS:
            self._held.append(f"edgefold: {self._source.name}, line {line}: {reason}; skipped")
        if self._n_bad == SHOWN_BAD_ROWS:
            self._held.append("edgefold: further malformed rows are only counted")

    def row(self) -> None:
        """Update the status line, a few times a second."""
        self._n_lines += 1
        if self._held and self._loop.counters.rows:
            self.tell()
        if not self._line.is_due:
            return
        counters, lasted_s = self._loop.counters, time.monotonic() - self._start_s
        parts = [f"{counters.rows:,} rows", f"{self._n_lines / lasted_s:,.0f} rows/s"]
        if counters.rmse:
            parts.append(f"RMSE {_list(counters.rmse)}")
        anomalies = f"{counters.anomalies:,} anomalies, " if self._loop.columns.has_band else ""
        parts.append(f"{anomalies}{counters.malformed:,} malformed")
        if n_bytes := self._source.n_bytes:
            parts.append(f"{self._source.position / n_bytes:.0%}")
        self._line.show("   ".join(parts))

    def tell(self) -> None:
        """Print the reports of bad rows: after a good one, because a wrong file has none."""
        self.clear()
        for line in self._held:
            say(line)
        self._held.clear()

    def clear(self) -> None:
        self._line.clear()

    def summary(self, stopped: bool, snapshot: Path | None) -> str:
        """Say what happened, over every restart."""
        counters, lasted_s = self._loop.counters, time.monotonic() - self._start_s
        lines = [
            f"rows          {counters.rows:,} updates, {counters.predicted:,} predictions, "
            f"{counters.malformed:,} malformed"
        ]
        if counters.rmse:
            lines.append(f"RMSE          {_list(counters.rmse)}")
        if counters.predicted and self._loop.columns.has_band:
            lines.append(f"90 % band     holds {counters.coverage_90:.1%} of the values")
            lines.append(f"anomalies     {counters.anomalies:,}")
        if counters.refused_in_a_row >= MAX_REFUSED_IN_A_ROW:
            lines.append(
                f"WARNING       the last {counters.refused_in_a_row:,} rows were all refused: "
                f"the model is not updated any more. The last, {self._last_bad}. Fix the input; if "
                "the rows before were wrong, start over with --force"
            )
        lines.append(
            f"this run      {self._n_lines:,} rows in {lasted_s:.1f} s, "
            f"{self._n_lines / max(lasted_s, 1e-9):,.0f} rows/s"
            + (", resumed from the snapshot" if self._loop.resumed else "")
        )
        if self._source.n_left:
            lines.append(
                f"left over     the last line has no end yet ({self._source.n_left:,} bytes); the "
                "next run reads it once it is whole"
            )
        if stopped:
            lines.append(
                f"stopped       the same command resumes from {snapshot}"
                if snapshot
                else "stopped       without --snapshot nothing was saved to resume from"
            )
        return "\n".join(lines)


def _list(numbers: list[float]) -> str:
    return " ".join(f"{number:.4g}" for number in numbers)
