"""Keep the candidate of a trial on the disk, in step with the snapshot of the loop.

    candidate ──> PATH.candidate.0 or .1, in turn ──> snapshot of the loop, which names the file

The snapshot names the file that fits it, and the next one goes to the other name. So a kill between
the two leaves a snapshot with its own candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from edgefold.runtime.errors import BundleError, SnapshotError
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.loop_snapshot import LoopSnapshot
from edgefold.runtime.rows.csv_columns import Layout
from edgefold.runtime.trial.trial import Trial


def candidate_files(snapshot: Path) -> list[Path]:
    """Return the two files that hold a candidate's state next to a snapshot."""
    return [Path(f"{snapshot}.candidate.{number}") for number in (0, 1)]


class TrialFiles:
    """Writes and reads the candidate's state of one trial.

    Args:
        snapshot: The file of the loop's snapshot.
        trial: The trial, which has not begun.
        make: Function that returns the snapshot of the candidate for a path.

    Attributes:
        trial: The trial.
    """

    def __init__(self, snapshot: Path, trial: Trial, make: Callable[[Path], LoopSnapshot]):
        self.trial, self._make = trial, make
        self._files = [make(path) for path in candidate_files(snapshot)]
        self._turn = 0

    def require_columns(self, header: str) -> None:
        """Raise BundleError if the candidate writes other columns than these, a line of CSV."""
        own = self.trial.new.header
        if own != header:
            raise BundleError(
                f"the candidate {self.trial.stream.manifest.path} writes the columns "
                f"{own.strip()}, and the model in service {header.strip()}: it cannot take over "
                "the output. Run it on its own."
            )

    def write(self, layout: Layout, unassigned: Counters, source: dict[str, Any]) -> dict[str, Any]:
        """Write the candidate, and return what the loop's snapshot must keep of the trial.

        Args:
            layout: The places of the columns in a line of the input.
            unassigned: The counts of lines that belong to no sensor.
            source: The mark (place as JSON) in the input.

        Raises:
            SnapshotError: The file system refused.
        """
        mark = {**self.trial.to_json(), "file": self._turn}
        if self.trial.is_running:
            self._files[self._turn].write(layout, unassigned, source, {}, None)
            self._turn = 1 - self._turn
        return mark

    def begin(
        self,
        mark: dict[str, Any] | None,
        name: str,
        rows: Iterable[tuple[str, tuple[float, ...]]],
    ) -> None:
        """Restore the trial and its candidate, or begin it with the rows that were kept.

        Args:
            mark: What `write` returned for the snapshot from which the loop resumes; None without
                one. That of another candidate counts as none.
            name: The input's name, for messages.
            rows: The kept rows, the oldest first, as pairs of a sensor's name and numbers.

        Raises:
            SnapshotError: The candidate's file is missing or damaged.
        """
        trial = self.trial
        if mark is None or mark.get("bundle") != trial.stream.manifest.bundle_hash:
            trial.fold(rows)
            return
        trial.load(mark)
        if not trial.is_running:
            trial.tell(f"the candidate was given up before: {trial.reason}")
            return
        number = mark.get("file")
        if number not in (0, 1):
            raise SnapshotError("the trial of the snapshot is damaged (it names no file).")
        if self._files[number].restore(name) is None:
            raise SnapshotError("the candidate's file of the trial holds no record of a loop.")
        self._turn = 1 - number

    def of_loop(self, path: Path) -> LoopSnapshot:
        """Return the snapshot of a loop that the candidate has taken over."""
        return self._make(path)

    def remove(self) -> None:
        """Remove the candidate's files."""
        for file in self._files:
            file.remove()
