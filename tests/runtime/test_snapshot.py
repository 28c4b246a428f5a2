from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime import SnapshotError, Stream
from tests.runtime.subjects import points


def test_a_snapshot_keeps_the_callers_arrays(stream: Stream, tmp_path: Path) -> None:
    extra = {"lags": np.arange(5.0), "row": np.array(17)}
    stream.save(tmp_path / "s.npz", extra)
    back = stream.restore(tmp_path / "s.npz")
    assert back["row"] == 17
    np.testing.assert_array_equal(back["lags"], extra["lags"])
    assert [p.name for p in tmp_path.iterdir()] == ["s.npz"]


def test_a_foreign_snapshot_is_refused(stream: Stream, bundles: Path, tmp_path: Path) -> None:
    with Stream.open(bundles / "foreign") as foreign:
        foreign.save(tmp_path / "s.npz")
    with pytest.raises(SnapshotError, match="another bundle"):
        stream.restore(tmp_path / "s.npz")


def test_every_damaged_byte_of_a_snapshot_is_noticed(stream: Stream, tmp_path: Path) -> None:
    x, y = points(stream, 10)
    stream.update(x, y)
    path = tmp_path / "s.npz"
    stream.save(path)
    whole = path.read_bytes()
    expected = stream.state()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        place = int(random.integers(len(whole)))
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        try:
            stream.restore(path)
        except SnapshotError:
            refused += 1
        # Some bytes of a zip (time stamps) carry nothing; what was taken must be the truth.
        state = stream.state()
        assert all(np.array_equal(expected[name], state[name]) for name in expected)
    assert refused > 40
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(SnapshotError):
            stream.restore(path)


def test_a_missing_snapshot_folder_is_one_clear_error(stream: Stream, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="was not written"):
        stream.save(tmp_path / "no" / "s.npz")
    with pytest.raises(SnapshotError, match="does not exist"):
        stream.restore(tmp_path / "s.npz")


def test_places_that_are_no_file_are_one_clear_error(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("time,value\n1,2\n")
    os.mkfifo(tmp_path / "pipe")
    cases = {
        "file/x": "Not a directory",
        "no/s.npz": "No such file or directory .* Choose another path",
        ".": "is a folder; name a file",
        "": "is a folder; name a file",
        "pipe": "is a device or a pipe; name a file",
        "/dev/null": "is a device or a pipe; name a file",
        "a\0b": "cannot be a file",
    }
    for path, words in cases.items():
        with pytest.raises(SnapshotError, match=words) as refused:
            stream.save(path)
        assert "\n" not in str(refused.value) and "Free space" not in str(refused.value)
    with pytest.raises(SnapshotError, match="is a device or a pipe"):
        stream.restore("pipe")
    with pytest.raises(SnapshotError, match="file is not a snapshot") as refused:
        stream.restore("file")
    assert "pickle" not in str(refused.value)
    assert (tmp_path / "file").read_text() == "time,value\n1,2\n"


def test_a_full_disk_that_cannot_be_tidied_is_one_clear_error(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def read_only(_: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(SnapshotError, match=r"No space left on device; .* Free space"):
        stream.save(tmp_path / "s.npz")


def test_a_link_stays_a_link(stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    link, target = tmp_path / "s.npz", tmp_path / "card" / "s.npz"
    link.symlink_to(target)
    for _ in range(2):
        stream.save(link)
        assert link.is_symlink() and target.is_file()
    stream.restore(link)
    assert [path.name for path in target.parent.iterdir()] == ["s.npz"]
