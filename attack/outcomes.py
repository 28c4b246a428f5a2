"""The outcome of one case of an attack, and the counts of many.

A case is drawn only from `random_of(kind, number)`, so that any case can be played again by
itself: `python -m attack.replay KIND NUMBER`.
"""

from __future__ import annotations

import traceback
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20261122
HERE = Path(__file__).parent
FAILURES = {
    "traceback": "an exception that is not of EdgefoldError's tree, or a traceback on stderr",
    "hang": "no end within the limit of time",
    "allocation": "more memory than the bundle's plan explains",
    "outside": "a file was read that the manifest does not list",
    "wrong": "a wrong figure, a lost or doubled row, or a state out of step",
    "message": "a refusal that is not one line, or an exit code that is not documented",
    "crash unanswered": "a command that must answer a crash of onnxruntime did not",
}
"""Verdicts that must not occur."""
ENDS = {
    "accepted": "ran as if nothing had been changed, or what was changed has no effect",
    "refused": "refused with an error of EdgefoldError's tree, or with one line",
    "resumed": "went on after the fault, and everything equals an uninterrupted run",
    "lost by the broker": "rows that a broker acknowledged and forgot; all else equals such a run",
    "crash": "onnxruntime ended the process by a signal; check and doctor answer with a line",
}
"""Verdicts that may occur."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one case.

    Attributes:
        verdict: A key of `FAILURES` or `ENDS`.
        detail: The same for cases of one cause, so that they can be counted together.
    """

    verdict: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether the verdict must not occur."""
        return self.verdict in FAILURES


def random_of(kind: str, number: int) -> np.random.Generator:
    """The random numbers of one case."""
    return np.random.default_rng([SEED, zlib.crc32(kind.encode()), number])


def cause_of(error: BaseException) -> str:
    """The class of an exception and the innermost place of it in Edgefold."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if Path(f.filename).parent != HERE and not _is_foreign(f.filename)]
    if not frames:
        return type(error).__name__
    place = (ours or frames)[-1]
    folders = place.filename.split("/")
    return f"{type(error).__name__} at {'/'.join(folders[-2:])}, {place.name}"


def _is_foreign(name: str) -> bool:
    return "site-packages" in name or "/lib/python" in name or name.startswith("<")


@dataclass(slots=True)
class Tally:
    """Counts of outcomes, and the first cases of each failure.

    Attributes:
        ends: How often each (verdict, detail) came.
        firsts: The first three numbers of each (verdict, detail); of crashes all.
    """

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    firsts: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, number: int, outcome: Outcome) -> None:
        """Count one case."""
        key = (outcome.verdict, outcome.detail)
        self.ends[key] += 1
        firsts = self.firsts.setdefault(key, [])
        if len(firsts) < 3 or outcome.verdict == "crash":
            firsts.append(number)

    @property
    def n_cases(self) -> int:
        """Cases counted so far."""
        return sum(self.ends.values())

    @property
    def verdicts(self) -> dict[str, int]:
        """Cases by verdict."""
        counts: Counter[str] = Counter()
        for (verdict, _), count in self.ends.items():
            counts[verdict] += count
        return dict(sorted(counts.items()))

    def failures(self, kind: str) -> list[str]:
        """One line for each cause of failures, the most frequent first."""
        return [
            f"{verdict}: {detail}: {count} cases; the first: "
            + ", ".join(
                f"python -m attack.replay {kind} {n}" for n in self.firsts[verdict, detail][:3]
            )
            for (verdict, detail), count in self.ends.most_common()
            if verdict in FAILURES
        ]

    def to_json(self) -> dict[str, Any]:
        """Counts by verdict, and by cause where a case failed."""
        causes = {f"{v}: {d}": n for (v, d), n in self.ends.most_common() if v in FAILURES}
        return {"cases": self.n_cases, "verdicts": self.verdicts, "failures": causes}
