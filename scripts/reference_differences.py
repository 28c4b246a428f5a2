"""Print the largest difference between each model and its reference in tests/reference.

    python scripts/reference_differences.py

Runs those tests and listens to their comparisons (`numpy.testing.assert_allclose`): the tests hold
a bound, this prints what was found, by test and model.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, float]]:
    """Record the largest difference of each test, by its id, until the block ends."""
    found: dict[str, float] = {}
    compare = np.testing.assert_allclose

    def listening(actual: Any, desired: Any, *args: Any, **options: Any) -> None:
        name = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        apart = np.abs(np.asarray(actual, float) - np.asarray(desired, float))
        found[name] = max(found.get(name, 0.0), float(apart.max(initial=0.0)))
        compare(actual, desired, *args, **options)

    np.testing.assert_allclose = listening
    try:
        yield found
    finally:
        np.testing.assert_allclose = compare


def main() -> int:
    """Run the tests, and print a line for each test and model."""
    with recorded() as found, contextlib.redirect_stdout(io.StringIO()) as said:
        code = pytest.main([str(ROOT / "tests" / "reference"), "-q", "-p", "no:cacheprovider"])
    if code:
        print(said.getvalue())
        return int(code)
    largest: dict[str, float] = {}
    for name, apart in found.items():
        test, _, words = name.partition("::")[2].partition("[")
        model = "-".join(word for word in words.strip("],").split("-") if not word.isdigit())
        key = f"{model.rstrip(',') or '-':44} {test}"
        largest[key] = max(largest.get(key, 0.0), apart)
    for key in sorted(largest):
        print(f"{largest[key]:8.1e}  {key}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
