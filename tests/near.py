"""Keep the tests that `make test-near` chose: several choices in one call of pytest."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.parts import first_cases


@dataclass(frozen=True, slots=True)
class Choice:
    """Some tests for one changed file, and the reason for them.

    Attributes:
        paths: Files or folders of tests, from the repository's root.
        reason: Why these, for people.
        cases: If given, only tests whose name contains one of these, such as "[cnp]".
        quick: Leave out tests that start a process, export a bundle or compile.
        one_case: Only the first case of each test.
    """

    paths: tuple[str, ...]
    reason: str
    cases: tuple[str, ...] = ()
    quick: bool = False
    one_case: bool = False

    def __str__(self) -> str:
        """The choice as a person would write it for pytest."""
        words = [*self.paths, *["--quick"] * self.quick, *["--one-case"] * self.one_case]
        return " ".join([*words, *(("-k", " or ".join(self.cases)) if self.cases else ())])

    def takes(self, name: str) -> bool:
        """Whether a test with this name, "tests/test_parts.py::test_x[0]", is among the cases."""
        file = name.partition("::")[0]
        inside = any(file == path or file.startswith(f"{path}/") for path in self.paths)
        return inside and (not self.cases or any(case in name for case in self.cases))


def write_choices(choices: Iterable[Choice], path: Path) -> Path:
    """Write choices as JSON for the option --near, and return the file's path."""
    path.write_text(json.dumps([asdict(choice) for choice in choices]))
    return path


def read_choices(path: Path) -> list[Choice]:
    """Read what `write_choices` wrote."""
    forms = json.loads(path.read_text())
    return [
        Choice(**{**form, "paths": tuple(form["paths"]), "cases": tuple(form["cases"])})
        for form in forms
    ]


def chosen_by(
    choices: Iterable[Choice],
    names: Sequence[str],
    tests: Sequence[Hashable],
    is_quick: Callable[[int], bool],
) -> set[int]:
    """Indices of the cases that at least one choice keeps.

    Args:
        choices: The choices.
        names: Name of each case, as pytest prints it.
        tests: Says of which test each case is one.
        is_quick: Whether the case with an index is quick.
    """
    kept: set[int] = set()
    for choice in choices:
        own = [n for n, name in enumerate(names) if choice.takes(name)]
        own = [n for n in own if not choice.quick or is_quick(n)]
        if choice.one_case:
            own = [own[n] for n in first_cases([tests[n] for n in own])]
        kept.update(own)
    return kept
