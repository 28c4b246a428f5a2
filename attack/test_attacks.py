"""Every kind of attack with all its cases: `make test-attack`, some 60 minutes on two quiet cores.

One kind alone: `make test-attack ATTACK="-k snapshots"`. A case again: `python -m attack.replay`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from attack.brokers.servers import missing
from attack.forks import play_all
from attack.kinds.environments import CASES
from attack.kinds.rows import N_LINES
from attack.outcomes import Tally
from attack.summary import note

COUNTS = {
    "bundles": 100_000,
    "builds": 5000,
    "bundle_commands": 600,
    "snapshots": 50_000,
    "rows": 250,
    "tables": 440,
    "kills": 620,
    "broker_schedules": 1000,
    "torn": 1000,
    "crash_states": 10_000,
    "exceptions": 2000,
    "sensor_exceptions": 1000,
    "sensor_threads": 100,
    "sensor_calls": 500,
    "imports": 500,
    "signatures": 5000,
    "merge": 2000,
    "provenance": 10_000,
    "environments": len(CASES),
}
"""Cases of each kind. 250 files of rows are 1,000,000 rows, and so are 440 tables; 620 commands are
killed over 1,000 times."""
WORKERS = 2
MORE_WORKERS = {"broker_schedules": 4}
"""Kinds whose cases wait more than they compute."""
LEAST_KILLS = 1000


@pytest.mark.parametrize("kind", COUNTS)
def test_no_case_ends_as_it_must_not(kind: str, subjects: Path) -> None:
    if kind == "broker_schedules" and (lacking := missing()):
        pytest.skip(f"it needs {lacking}")
    start_s = time.monotonic()
    tally = play_all(kind, subjects, COUNTS[kind], MORE_WORKERS.get(kind, WORKERS))
    more = {"rows": COUNTS[kind] * N_LINES} if kind == "rows" else {}
    if kind in ("kills", "broker_schedules"):
        more = {"kills": n_kills(tally)}
    note(kind, tally, time.monotonic() - start_s, more)
    if kind == "bundles":
        _require_answers(tally, subjects)
    failures = tally.failures(kind)
    assert not failures, "\n".join(failures)
    assert kind != "kills" or n_kills(tally) >= LEAST_KILLS


def n_kills(tally: Tally) -> int:
    """Return the number of processes that were killed, as the cases report."""
    counts = [(int(d.split()[1]), n) for (_, d), n in tally.ends.items() if d.endswith("kills")]
    return sum(kills * n for kills, n in counts)


def _require_answers(tally: Tally, subjects: Path) -> None:
    """Let `check` answer for every bundle that crashed onnxruntime."""
    from attack.kinds.bundle_commands import answers

    numbers = [n for (v, _), firsts in tally.firsts.items() if v == "crash" for n in firsts]
    start_s, tally_of_answers = time.monotonic(), Tally()
    with tempfile.TemporaryDirectory(dir=subjects) as scratch:
        for number, outcome in zip(numbers, answers(subjects, Path(scratch), numbers), strict=True):
            tally_of_answers.add(number, outcome)
    note("crashes", tally_of_answers, time.monotonic() - start_s)
    failures = tally_of_answers.failures("bundle_commands")
    assert not failures, "\n".join(failures)
