"""What a loop writes is predicted from the bundle, and agrees with what its files really hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgefold.devices.budget.flash import (
    DAY_S,
    MQTT,
    YEAR_DAYS,
    FlashDemand,
    judge_flash,
    rows_per_snapshot,
)
from edgefold.devices.budget.flash import journal_bytes as blocks_of
from edgefold.devices.budget.snapshot_size import snapshot_bytes
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.loop.adapters import adapter_for
from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
from edgefold.runtime.rows.sensor_columns import LongColumns
from edgefold.runtime.sensors.shipped_bundle import SHIPPED, shipped_bundle
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sources.input_file import open_input
from edgefold.runtime.sources.journal import BLOCK, LEAST_BYTES, Journal
from edgefold.runtime.sources.message import Message
from edgefold.runtime.sources.row_source import SourceOptions

CARD = FlashDemand(32 * 10**9, 1.0)


@pytest.fixture(params=[*SHIPPED, "tiny"])
def bundle(request: pytest.FixtureRequest) -> Path:
    if request.param == "tiny":
        return Path(request.getfixturevalue("tiny_bundle"))
    return shipped_bundle(request.param)


@pytest.fixture
def sensors() -> Manifest:
    return load_manifest(shipped_bundle("sensors"))


def loop_files(folder: Path, bundle: Path, n_named: int, n_rows: int = 60) -> Path:
    """The snapshot that a loop leaves after some rows, of so many named sensors or of one."""
    snapshot, manifest = folder / "state.npz", load_manifest(bundle)
    adapters = [adapter_for(manifest) for _ in range(max(n_named, 1))]
    names = adapters[0].columns.defaults
    lines = [",".join(["sensor"] * bool(n_named) + list(names))]
    for row in range(n_rows):
        numbers = [str(row), *(f"{np.sin(row + at):.4f}" for at in range(1, len(names)))]
        name = [f"s{row % n_named}"] if n_named else []
        lines.append(",".join(name + numbers))
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    columns = LongColumns(adapters[0].columns, "sensor") if n_named else None
    with Stream.open(bundle, "onnxruntime", slots=n_named) as stream:
        source = open_input(str(path), SourceOptions(snapshot=snapshot))
        output = OutputFile(str(folder / "out.csv"))
        options = LoopOptions(every=25)
        PredictionLoop(stream, adapters, source, output, snapshot, options, columns).run()
        source.close()
    return snapshot


@pytest.mark.parametrize("n_named", [0, 1, 5])
def test_the_length_of_a_snapshot_is_predicted_from_the_manifest(
    bundle: Path, tmp_path: Path, n_named: int
) -> None:
    snapshot = loop_files(tmp_path, bundle, n_named)
    manifest, n_bytes = load_manifest(bundle), snapshot.stat().st_size
    with np.load(snapshot) as arrays:
        loop_bytes = len(arrays["extra.loop"])
        n_points = json.loads(arrays["record"].tobytes())["n_points"]
    assert snapshot_bytes(manifest, n_named, "file", loop_bytes, n_points) == n_bytes
    # The record is estimated: its names, counts and columns may be shorter or longer.
    assert abs(snapshot_bytes(manifest, n_named) - n_bytes) < 1500 + 200 * n_named


class TurnedJournal(Journal):
    """Counts how often it goes on in its other file."""

    n_turns = 0

    def _turn_over(self) -> None:
        self.n_turns += 1
        super()._turn_over()


def written_journal(
    folder: Path, n: int, group: int, message_bytes: int, file_bytes: int
) -> TurnedJournal:
    """A closed journal into which n messages were written, `group` together."""
    journal = TurnedJournal(folder / "state", file_bytes)
    journal.open()
    message = Message("t", bytes(message_bytes - 1), 0.0)
    for number in range(1, n + 1):
        journal.append(message.to_bytes())
        if number % group == 0 or number == n:  # the last one by the snapshot
            journal.sync()
            journal.release(number)
    journal.close()
    return journal


MESSAGES = {
    "n": st.integers(1, 60),
    "group": st.integers(1, 12),
    "message_bytes": st.integers(2, 6000),
}


@settings(max_examples=15)
@given(**MESSAGES)
def test_blocks_of_the_journal_are_those_that_it_writes(
    tmp_path_factory: pytest.TempPathFactory, n: int, group: int, message_bytes: int
) -> None:
    demand = replace(CARD, source=MQTT, message_bytes=message_bytes)
    folder = tmp_path_factory.mktemp("journal")
    journal = written_journal(folder, n, group, message_bytes, 1 << 20)
    assert journal.n_turns == 0
    assert blocks_of(demand, n, group) == journal.n_bytes_written


@settings(max_examples=15)
@given(**MESSAGES)
@example(n=52, group=4, message_bytes=4073)  # a block more than without an end
def test_the_end_of_a_file_of_the_journal_costs_two_blocks_at_most(
    tmp_path_factory: pytest.TempPathFactory, n: int, group: int, message_bytes: int
) -> None:
    """It parts one group in two: each part ends a block, and has a header."""
    demand = replace(CARD, source=MQTT, message_bytes=message_bytes)
    folder = tmp_path_factory.mktemp("journal")
    journal = written_journal(folder, n, group, message_bytes, LEAST_BYTES)
    more = journal.n_bytes_written - blocks_of(demand, n, group)
    assert 0 <= more <= 2 * BLOCK * journal.n_turns


@pytest.mark.parametrize("every", [3, 20, 30, 50, 1000])
def test_a_full_journal_asks_for_the_snapshots_that_are_predicted(
    tmp_path: Path, every: int
) -> None:
    demand = replace(CARD, source=MQTT, journal_bytes=2 << 18, message_bytes=6000)
    journal = Journal(tmp_path / "state", demand.journal_bytes // 2)
    journal.open()
    n, since, snapshots = 800, 0, []
    for number in range(1, n + 1):
        journal.append(Message("t", bytes(5999), 0.0).to_bytes())
        journal.sync()
        since += 1
        if since >= every or journal.wants_release(number):
            journal.release(number)
            snapshots.append(number)
            since = 0
    journal.close()
    assert n / len(snapshots) == pytest.approx(rows_per_snapshot(demand, every, 1), rel=0.05)


def test_years_are_the_cycles_of_the_whole_storage_over_the_bytes_of_a_year(
    sensors: Manifest,
) -> None:
    found = judge_flash(sensors, CARD, (100, 1.0), (1000,), (10.0,))
    assert [setting.every for setting in found.settings] == [100, 1000]
    asked = found.asked
    parts = asked.snapshot_bytes + asked.output_bytes + asked.journal_bytes
    assert asked.process_bytes == pytest.approx(parts)
    assert asked.device_bytes == pytest.approx(parts + asked.file_system_bytes)
    whole = CARD.flash_bytes * CARD.endurance_cycles / CARD.write_amplification
    assert asked.flash_years * asked.device_bytes * YEAR_DAYS == pytest.approx(whole)
    pages = -(-found.snapshot_file_bytes // BLOCK) * BLOCK
    assert asked.snapshot_bytes == pytest.approx(pages * DAY_S / 100)
    assert asked.sync_s is None and asked.group is None


def test_rarer_snapshots_and_longer_syncs_never_write_more(sensors: Manifest) -> None:
    demand = replace(CARD, source=MQTT, n_streams=8, window=400)
    found = judge_flash(sensors, demand, (1000, 1.0), (100, 10_000), (10.0, 60.0))
    by = {(setting.every, setting.sync_s): setting for setting in found.settings}
    assert len(by) == 9
    for every in (100, 1000, 10_000):
        days = [by[every, sync_s].device_bytes for sync_s in (1.0, 10.0, 60.0)]
        assert days == sorted(days, reverse=True)
    for sync_s in (1.0, 10.0, 60.0):
        days = [by[every, sync_s].device_bytes for every in (100, 1000, 10_000)]
        assert days == sorted(days, reverse=True)
    assert [by[1000, sync_s].group for sync_s in (1.0, 10.0, 60.0)] == [1, 10, 60]


def test_half_a_window_bounds_a_group_and_loops_add_up(sensors: Manifest) -> None:
    demand = replace(CARD, source=MQTT)
    one = judge_flash(sensors, demand, (1000, 60.0), (), ()).asked
    assert one.group == demand.window // 2
    four = judge_flash(sensors, replace(demand, processes=4), (1000, 60.0), (), ()).asked
    assert four.device_bytes == pytest.approx(4 * one.device_bytes)
    assert four.flash_years == pytest.approx(one.flash_years / 4)


def test_without_an_output_no_bytes_of_it_are_counted(sensors: Manifest) -> None:
    with_output = judge_flash(sensors, CARD, (100, 1.0), (), ()).asked
    without = judge_flash(sensors, replace(CARD, has_output=False), (100, 1.0), (), ()).asked
    assert without.output_bytes == 0 < with_output.output_bytes
    assert without.file_system_bytes < with_output.file_system_bytes
