"""An hour of a sensor with each fault of the benchmark of simulated days, and its record."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.loop.simulated_days import measure, requirements
from benchmarks.loop.simulated_days_table import simulated_days
from benchmarks.loop.simulated_rows import REFUSED, UNREADABLE, make_day
from benchmarks.loop.simulated_run import CALM, DISK, PROCESS, QUICK, Plan
from benchmarks.record import RECORDS

OF_MACHINES = ("memory", "flash", "descriptors", "threads", "metrics off")
"""Requirements that hold for longer runs on a quiet machine."""


def test_a_day_is_the_same_each_time_and_another_one_on_the_next() -> None:
    first, again, next_one = (make_day(1, number, 4.0, 3600.0, PROCESS) for number in (0, 0, 1))
    assert first == again and first.lines != next_one.lines
    assert len(first.lines) == len(first.fates)
    fates = Counter(first.fates)
    assert fates[UNREADABLE] == first.injected["unreadable"]
    # Twice, late and too large; back 2 + 1 times for 8 rows each, ahead 1 + 2 times, and the gap.
    assert fates[REFUSED] == 3 * 8 + 3 * 7 + 3 * 1 + 1


def test_most_days_have_faults_of_the_process_and_the_middle_ones_none() -> None:
    plan = Plan()
    calm = [number for number in range(plan.n_days) if plan.faults(number, True) == CALM]
    assert calm == [*range(10, 20)]
    assert {plan.faults(number, True)[-1] for number in range(10)} == {*DISK}


@pytest.mark.long
@pytest.mark.parametrize("has_disk", [False, True])
def test_an_hour_with_every_fault_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_disk: bool
) -> None:
    pytest.importorskip("prometheus_client")
    if not has_disk:
        monkeypatch.setattr("os.geteuid", lambda: 1000)
    data = json.loads(json.dumps(measure(QUICK, tmp_path, lambda: False)))
    wrong = [
        each
        for each in requirements(data)
        if not each.met and not any(word in each.what for word in OF_MACHINES)
    ]
    assert not wrong and data["n_stretches"] == 1
    assert {*PROCESS} <= {*data["injected"]}
    assert sum(len(table.rows) for table in simulated_days(data)) > 10
    if has_disk and not data["has_disk"]:
        pytest.skip("faults of the disk itself need root and a loop device; the others were tested")
    assert ({*DISK} <= {*data["injected"]}) == has_disk


def test_the_recorded_days_met_every_requirement() -> None:
    record = json.loads((RECORDS / "simulated_days.json").read_text())
    assert not record["quick"] and all(each["met"] for each in record["requirements"])
    assert simulated_days(record["data"])
