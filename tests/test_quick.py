"""Which tests `--quick` leaves out."""

from __future__ import annotations

import subprocess
import sys

from tests.quick import is_quick


def start() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def by_way_of_another() -> None:
    start()


def within() -> None:
    def inner() -> None:
        subprocess.run(["true"], check=True)

    inner()


def arithmetic() -> None:
    assert 1 + 1 == 2


def test_a_test_that_starts_a_process_is_not_quick() -> None:
    assert not is_quick(start, {})
    assert not is_quick(by_way_of_another, {})
    assert not is_quick(within, {})
    assert is_quick(arithmetic, {})


def test_fixtures_count_but_for_those_that_all_share() -> None:
    assert not is_quick(arithmetic, {"made": start})
    assert is_quick(arithmetic, {"bundles": start, "number": arithmetic})
