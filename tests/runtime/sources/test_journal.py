"""The journal keeps what `sync` wrote, whatever a kill or a power cut leaves of the rest."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from edgefold.runtime.errors import DataError, OutputError
from edgefold.runtime.sources.journal import BLOCK, LEAST_BYTES, Journal

SECTOR = 512


def opened(path: Path, identity: str = "", released: int = 0) -> Journal:
    journal = Journal(path, LEAST_BYTES)
    journal.open(identity, released)
    return journal


def content(n: int, size: int = 100) -> bytes:
    return f"{n}:".encode().ljust(size, b"x")


def fill(journal: Journal, n: int, group: int = 5, size: int = 100) -> None:
    """Add `n` records, and write them in groups; a snapshot is simulated where one is wanted."""
    for _ in range(n):
        journal.append(content(journal.last + 1, size))
        if journal.n_unsynced == group:
            journal.sync()
        if journal.wants_release(journal.last):
            journal.release(journal.last)
    journal.sync()


def test_records_come_back_in_order_with_their_numbers(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    fill(journal, 12)
    journal.close()
    again = opened(tmp_path / "j", journal.identity, released=4)
    assert list(again.records()) == [(n, content(n)) for n in range(5, 13)]
    assert again.last == 12


def test_the_files_never_grow_and_keep_all_that_is_not_released(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    released = 0
    for _ in range(60):
        fill(journal, 37, group=3, size=700)
        released = journal._released
        copy = opened(tmp_path / "j", journal.identity, released)
        assert [number for number, _ in copy.records()] == [*range(released + 1, journal.last + 1)]
        copy.close()
    assert journal.last == 60 * 37 and released > 1000
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {LEAST_BYTES}
    assert journal.n_bytes_written == (60 * 13) * BLOCK  # 12 groups of 3 and one of 1 each time


def test_records_longer_than_a_block_are_kept(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    fill(journal, 20, group=2, size=65536)
    again = opened(tmp_path / "j", journal.identity, journal._released)
    numbers = [number for number, record in again.records() if record == content(number, 65536)]
    assert numbers == [*range(journal._released + 1, 21)]


def test_a_group_that_waits_counts_when_room_is_asked_for(tmp_path: Path) -> None:
    """Ten records of 60,000 bytes are larger than a file of the smallest size."""
    journal = opened(tmp_path / "j")
    fill(journal, 25, group=10, size=60_000)
    assert journal.last == 25


def test_records_that_are_read_again_ask_for_one_snapshot(tmp_path: Path) -> None:
    """A snapshot for each of them would wear the disk, and make no file free before the last."""
    journal = opened(tmp_path / "j")
    while not journal.wants_release(journal.last):
        journal.append(content(journal.last + 1))
        journal.sync()
    again = opened(tmp_path / "j", journal.identity)
    asked = [number for number, _ in again.records() if again.wants_release(number)]
    assert 1 < asked[0] < journal.last  # with it the full file is free
    assert asked == [*range(asked[0], journal.last + 1)]
    again.release(asked[0])
    assert not again.wants_release(journal.last)


def test_what_was_not_synced_is_lost_and_nothing_else(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    fill(journal, 7)
    journal.append(b"only in memory")
    assert journal.n_unsynced == 1
    again = opened(tmp_path / "j", journal.identity)
    assert again.last == 7


def torn(path: Path, before: bytes, after: bytes, chance: random.Random) -> None:
    """Leave of the last write what a power cut may leave: some sectors, each old, new or damaged.

    A sector that both contents share stays as it is: nobody writes it.
    """
    sectors = []
    for place in range(0, len(after), SECTOR):
        old, new = before[place : place + SECTOR], after[place : place + SECTOR]
        kind = chance.random()
        damaged = chance.randbytes(SECTOR) if kind > 0.9 else new if kind > 0.5 else old
        sectors.append(new if old == new else damaged)
    path.write_bytes(b"".join(sectors))


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_during_a_group_loses_only_that_group(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    journal = opened(tmp_path / "j")
    for _ in range(25):
        fill(journal, chance.randrange(1, 60), chance.randrange(1, 12), chance.randrange(10, 3000))
        synced = journal.last
        before = {path: path.read_bytes() for path in tmp_path.glob("j.?")}
        size = chance.randrange(10, 8_000)
        for _ in range(chance.randrange(1, 10)):
            journal.append(content(journal.last + 1, size))
        journal.sync()
        cut = tmp_path / "cut"
        cut.mkdir()
        for path, old in before.items():
            torn(cut / path.name, old, path.read_bytes(), chance)
        again = opened(cut / "j", journal.identity, journal._released)
        found = dict(again.records())
        wanted = [*range(journal._released + 1, synced + 1)]
        assert [*found][: len(wanted)] == wanted
        assert synced <= again.last <= journal.last
        again.append(b"goes on")
        again.sync()
        last = again.last
        again.close()
        third = opened(cut / "j", journal.identity, journal._released)
        assert third.last == last and dict(third.records())[last] == b"goes on"
        third.close()
        shutil.rmtree(cut)


def test_the_journal_of_another_snapshot_is_refused(tmp_path: Path) -> None:
    fill(opened(tmp_path / "j"), 3)
    with pytest.raises(DataError, match="belongs to another snapshot"):
        opened(tmp_path / "j", "00" * 8)


def test_an_older_snapshot_than_the_journal_is_refused(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    fill(journal, 3000, group=1)
    with pytest.raises(DataError, match="the snapshot is an older copy"):
        opened(tmp_path / "j", journal.identity, 3)


def test_records_released_without_a_snapshot_are_not_missed(tmp_path: Path) -> None:
    """Messages without a row are released, and the first snapshot is written with the first row."""
    journal = opened(tmp_path / "j")
    fill(journal, 300, group=1)
    again = opened(tmp_path / "j")
    first, *_, last = (number for number, _ in again.records())
    assert first > 1 and last == 300
    assert again.identity == journal.identity and again.append(b"next") == 301


def test_the_names_of_files_that_a_killed_process_made_are_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(opened(tmp_path / "j"), 3)
    synced, true_sync = set(), os.fsync

    def sync(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        true_sync(handle)

    monkeypatch.setattr(os, "fsync", sync)
    opened(tmp_path / "j")
    assert tmp_path.stat().st_ino in synced


def test_a_journal_that_was_removed_begins_behind_the_snapshot(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    fill(journal, 30)
    journal.close()
    journal.remove()
    again = opened(tmp_path / "j", journal.identity, 30)
    assert again.append(b"next") == 31
    again.sync()
    assert list(opened(tmp_path / "j", journal.identity, 30).records()) == [(31, b"next")]


def test_an_older_copy_of_the_journal_is_not_read_again(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    fill(journal, 30)
    again = opened(tmp_path / "j", journal.identity, 45)
    assert list(again.records()) == []
    assert again.append(b"next") == 46
    again.sync()
    assert list(opened(tmp_path / "j", journal.identity, 45).records()) == [(46, b"next")]


def test_a_file_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "j.0").write_bytes(b"")
    fill(opened(tmp_path / "j"), 3)
    assert (tmp_path / "j.0").stat().st_size == LEAST_BYTES


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="journal"):
        opened(tmp_path / "no folder" / "j")


def test_a_disk_that_fails_ends_the_run_before_anything_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path / "j")
    journal.append(b"row")

    def fails(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(OutputError, match="Input/output error"):
        journal.sync()
    assert journal.n_unsynced == 1
