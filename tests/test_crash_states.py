"""The disk of the attack `crash_states` keeps what it must and loses all that it may."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

from attack.kinds.crash_states.cases import N_OF_PLAN, Cases
from attack.kinds.crash_states.disk import SECTOR, Disk
from attack.kinds.crash_states.plans import Plan, draw_plan
from attack.kinds.crash_states.recording import Operation
from attack.outcomes import random_of
from edgefold.runtime.sources.message_source import MessageSource
from edgefold.runtime.trial.kept_rows import KeptRows

OLD, NEW = b"o" * SECTOR, b"n" * SECTOR


def states(
    files: dict[str, bytes], operations: list[Operation], n: int = 300
) -> list[dict[str, bytes]]:
    """Return states that a power cut may leave after some operations, without garbage."""
    random = np.random.default_rng(1)
    disk = Disk(files)
    disk.perform(operations)
    drawn = [disk.after_power_cut(random) for _ in range(n)]
    return [state for style, state in drawn if "garbage" not in style]


def test_what_was_synced_is_in_every_state() -> None:
    operations = [
        Operation("create", "a.tmp", 1),
        Operation("write", "", 1, 0, NEW * 2),
        Operation("sync", "", 1),
        Operation("rename", "a.tmp", to="a"),
        Operation("sync folder", ""),
        Operation("create", "b", 2),
    ]
    found = states({"a": OLD}, operations)
    assert {state["a"] for state in found} == {NEW * 2}
    assert {frozenset(state) for state in found} == {frozenset("a"), frozenset("ab")}


def test_each_sector_that_is_written_is_old_or_new_and_the_others_stay() -> None:
    operations = [Operation("open", "a", 1), Operation("write", "", 1, SECTOR, NEW * 2)]
    found = {state["a"] for state in states({"a": OLD * 4}, operations)}
    assert found == {OLD + one + other + OLD for one in (OLD, NEW) for other in (OLD, NEW)}


def test_a_length_may_come_without_its_data_and_data_without_their_length() -> None:
    operations = [
        Operation("open", "a", 1),
        Operation("write", "", 1, SECTOR, NEW),
        Operation("write", "", 1, 2 * SECTOR, NEW),
    ]
    found = {state["a"] for state in states({"a": OLD}, operations)}
    nothing = bytes(SECTOR)
    assert {OLD, OLD + NEW, OLD + nothing, OLD + nothing + NEW, OLD + NEW * 2} <= found
    assert {len(content) for content in found} == {SECTOR, 2 * SECTOR, 3 * SECTOR}


def test_a_rename_changes_both_names_or_none() -> None:
    operations = [Operation("rename", "a", to="b")]
    found = {tuple(sorted(state.items())) for state in states({"a": NEW, "b": OLD}, operations)}
    assert found == {(("a", NEW), ("b", OLD)), (("b", NEW),)}


def test_the_sync_of_a_file_keeps_no_name_and_that_of_a_folder_no_data() -> None:
    operations = [
        Operation("create", "in/a", 1),
        Operation("write", "", 1, 0, NEW),
        Operation("sync", "", 1),
        Operation("create", "out/b", 2),
        Operation("write", "", 2, 0, NEW),
        Operation("sync folder", "out"),
    ]
    found = states({}, operations)
    assert any("in/a" not in state for state in found)
    assert {state["in/a"] for state in found if "in/a" in state} == {NEW}
    assert {state["out/b"] for state in found} >= {b"", bytes(SECTOR), NEW}


def test_a_kill_loses_nothing() -> None:
    disk = Disk({"a": OLD})
    disk.perform([Operation("open", "a", 1), Operation("write", "", 1, 4, b"new")])
    assert disk.files() == {"a": OLD[:4] + b"new" + OLD[7:]}
    disk.perform([Operation("truncate", "", 1, 2), Operation("unlink", "a")])
    assert disk.files() == {}


def finds_fault(folder: Path, has_it: Callable[[Plan], bool]) -> bool:
    """Whether one of the cases of the first four plans that have something ends wrong."""
    plans = (n for n in count() if has_it(draw_plan(random_of("crash_states", n))))
    cases = Cases(folder, folder)
    return any(
        cases.play(N_OF_PLAN * plan + number).verdict == "wrong"
        for plan in islice(plans, 4)
        for number in range(N_OF_PLAN)
    )


@pytest.mark.long
def test_a_loop_that_acknowledges_too_early_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(self: MessageSource) -> None:
        self._feed.acknowledge(self._n_open)
        self._n_open = 0
        if self._journal is not None:
            self._journal.sync()

    monkeypatch.setattr(MessageSource, "_commit", commit)
    assert finds_fault(tmp_path, lambda plan: not plan.is_log)


@pytest.mark.long
def test_rows_that_are_kept_too_late_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(self: KeptRows, name: str, numbers: tuple[float, ...]) -> None:
        late.append((name, numbers))
        if len(late) > 1:
            true_add(self, *late.pop(0))

    late: list[tuple[str, tuple[float, ...]]] = []
    true_add = KeptRows.add
    monkeypatch.setattr(KeptRows, "add", add)
    assert finds_fault(tmp_path, lambda plan: "--keep-rows" in plan.words)
