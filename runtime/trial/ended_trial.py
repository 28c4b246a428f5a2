"""End a trial whose candidate a run does not name, and say so.

The next snapshot after a row drops the trial and its files: the candidate misses that row. Until
then the same trial goes on if its candidate is named again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefold.runtime.loop.record import DAMAGE
from edgefold.runtime.trial.evidence import Evidence
from edgefold.runtime.trial.trial import PROBATION, SHADOW
from edgefold.runtime.trial.trial_files import candidate_files


class EndedTrial:
    """Holds the trial of a snapshot from which a run without its candidate resumes.

    Args:
        snapshot: The file of the loop's snapshot.
        mark: What the snapshot keeps of the trial.

    Attributes:
        mark: The same.
    """

    def __init__(self, snapshot: Path, mark: dict[str, Any]):
        self._snapshot, self.mark = snapshot, mark

    @property
    def sentence(self) -> str:
        """Return what ends and how to go on with it; "" for a trial that had ended before."""
        phase = self.mark.get("phase")
        if phase not in (SHADOW, PROBATION):
            return ""
        name = str(self.mark.get("path") or "a candidate")
        sentence = f"the trial of {name} ends, because this run does not name it as --candidate"
        if phase == PROBATION:
            sentence += (
                f": the candidate spoke, on probation{_weighed(self.mark)}, and from this row on "
                "the old model speaks again, which has learned every row"
            )
        else:
            sentence += f": it was not heard yet{_weighed(self.mark)}"
        named = f"--candidate {name}" if self.mark.get("path") else "--candidate"
        return (
            f"{sentence}; to go on with it, stop before the next row and give {named} again, later "
            "it begins from the start"
        )

    def remove_files(self) -> None:
        """Remove the candidate's files."""
        for path in candidate_files(self._snapshot):
            path.unlink(missing_ok=True)


def _weighed(mark: Mapping[str, Any]) -> str:
    """Return how many rows were compared with what result; "" if the mark is damaged."""
    try:
        evidence = Evidence.from_json(mark["evidence"])
    except DAMAGE:
        return ""
    sign = -1 if mark["phase"] == PROBATION else 1  # there the evidence is for the old model
    return f" over {evidence.n:,} rows with {sign * evidence.mean:+.3g} nats a row"
