"""Play only one case again, and say what it changes and how it ends.

python -m attack.replay KIND NUMBER [--subjects FOLDER] [--quick] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from attack.forks import cases_of, judged
from attack.outcomes import Outcome
from attack.subjects import NAMES, QUICK, export_subjects


def main() -> int:
    """Play the case that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", help="a module of attack, such as bundles or snapshots")
    parser.add_argument("number", type=int)
    parser.add_argument("--subjects", type=Path, help="folder of bundles that were exported before")
    parser.add_argument("--quick", action="store_true", help="of the quick version's few subjects")
    parser.add_argument("--keep", type=Path, help="folder to play in, which stays")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgefold-attack-") as temporary:
        subjects = args.subjects or Path(temporary) / "subjects"
        subjects.mkdir(exist_ok=True, parents=True)
        export_subjects(subjects, QUICK if args.quick else NAMES)
        scratch = args.keep or Path(temporary) / "scratch"
        scratch.mkdir(exist_ok=True)
        attack = cases_of(args.kind, subjects, scratch)
        print(f"changed   {attack.describe(args.number)}", flush=True)
        try:
            outcome = attack.play(args.number)
        except Exception as error:
            traceback.print_exc(file=sys.stdout)
            outcome = judged(_Raising(error), args.number)
        print(f"ended     {outcome.verdict} {outcome.detail}")
        return int(outcome.failed)


class _Raising:
    """A case that raises what another one raised."""

    def __init__(self, error: Exception):
        self._error = error

    def play(self, number: int) -> Outcome:
        raise self._error

    def describe(self, number: int) -> str:
        return ""


if __name__ == "__main__":
    sys.exit(main())
