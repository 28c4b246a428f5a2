from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import SnapshotError, Stream
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.stream.snapshot import EXTRA_BYTES, _digest, read_snapshot, write_snapshot
from tests.runtime.stream.subjects import points


def test_a_snapshot_keeps_the_callers_arrays(stream: Stream, tmp_path: Path) -> None:
    extra = {"lags": np.arange(5.0), "row": np.array(17)}
    stream.save(tmp_path / "s.npz", extra)
    back = stream.restore(tmp_path / "s.npz")
    assert back["row"] == 17
    np.testing.assert_array_equal(back["lags"], extra["lags"])
    assert [p.name for p in tmp_path.iterdir()] == ["s.npz"]


def test_a_snapshot_of_an_older_numpy_holds_no_other_array(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`numpy.savez` takes every keyword for an array before NumPy 2.2, `allow_pickle` too."""
    written = np.savez

    def older(file: Any, **arrays: Any) -> None:
        written(file, **{f"keyword {name}": array for name, array in arrays.items()})

    monkeypatch.setattr(np, "savez", older)
    stream.save(tmp_path / "s.npz", {"row": np.array(17)})
    with zipfile.ZipFile(tmp_path / "s.npz") as archive:
        assert not [name for name in archive.namelist() if "allow_pickle" in name]


def test_a_snapshot_that_an_older_numpy_wrote_with_one_array_too_many_is_read(
    stream: Stream, tmp_path: Path
) -> None:
    stream.update(*points(stream, 10))
    stream.save(tmp_path / "s.npz", {"row": np.array(17)})
    np.save(tmp_path / "a.npy", np.array(False))
    with zipfile.ZipFile(tmp_path / "s.npz", "a") as archive:
        archive.write(tmp_path / "a.npy", "allow_pickle.npy")
    assert stream.restore(tmp_path / "s.npz")["row"] == 17


def test_a_foreign_snapshot_is_refused(stream: Stream, bundles: Path, tmp_path: Path) -> None:
    with Stream.open(bundles / "foreign") as foreign:
        foreign.save(tmp_path / "s.npz")
    with pytest.raises(SnapshotError, match="another bundle"):
        stream.restore(tmp_path / "s.npz")


@pytest.mark.parametrize("earlier", ["48153761c8a6", "9cbb555dd38ca71c", "b1334d85963d3847"])
def test_the_shipped_bundle_resumes_a_state_of_years_from_the_bundles_before_it(
    tmp_path: Path, earlier: str
) -> None:
    """Their graphs were written otherwise, and their states are the same."""
    path = tmp_path / "s.npz"
    values = np.sin(np.arange(42.0))
    with Stream.open(shipped_bundle()) as stream, Stream.open(shipped_bundle()) as resumed:
        (bundle_hash,) = (h for h in stream.manifest.resumes if h.startswith(earlier))
        for value in values:
            stream.step([value, 1.0, 0.0, 0.0])
        stream.save(path, {"rows": np.array(42)})
        record, state, extra = read_snapshot(path, stream.manifest)
        write_snapshot(path, replace(record, bundle_hash=bundle_hash), state, extra)
        assert resumed.restore(path)["rows"] == 42
        expected = stream.step([0.5, 1.0, 0.0, 0.0]).tensors
        found = resumed.step([0.5, 1.0, 0.0, 0.0]).tensors
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
        resumed.save(path)  # the next one is this bundle's own
        assert read_snapshot(path, stream.manifest)[0].bundle_hash == stream.manifest.bundle_hash
        write_snapshot(path, replace(record, bundle_hash="0" * 64), state, extra)
        with pytest.raises(SnapshotError, match="another bundle"):
            resumed.restore(path)


def test_a_state_of_other_tensors_goes_on_as_far_as_a_resuming_bundle_knows_them(
    tmp_path: Path,
) -> None:
    """The bundle before had longer tensors, lacked some, and had one more."""
    path = tmp_path / "s.npz"
    with Stream.open(shipped_bundle()) as stream, Stream.open(shipped_bundle()) as resumed:
        for value in np.sin(np.arange(42.0)):
            stream.step([value, 1.0, 0.0, 0.0])
        stream.save(path)
        record, state, _ = read_snapshot(path, stream.manifest)
        before = {n: a for n, a in state.items() if not n.startswith("further_")}
        before |= {"experts_root": np.repeat(state["experts_root"], 4, 1), "ahead": np.zeros(3)}
        earlier = replace(record, bundle_hash=stream.manifest.resumes[0])
        write_snapshot(path, earlier, before, {})
        resumed.restore(path)
        found = resumed.state()
        for name, array in state.items():
            if not name.startswith("further_"):
                np.testing.assert_array_equal(found[name], array)
        assert (found["further_weight"] == 0).all() and (found["further_factor"] == 0.85).all()
        expected = stream.step([0.5, 1.0, 0.0, 0.0]).mean
        np.testing.assert_array_equal(resumed.step([0.5, 1.0, 0.0, 0.0]).mean, expected)
        for damaged in ({"experts_root": state["experts_root"][:, :, :1]}, {"mean": np.zeros(1)}):
            write_snapshot(path, earlier, {**before, **damaged}, {})
            with pytest.raises(SnapshotError, match="other tensors"):
                resumed.restore(path)
        write_snapshot(path, record, before, {})  # of this bundle itself
        with pytest.raises(SnapshotError, match="other tensors"):
            resumed.restore(path)


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


# Files that somebody made -------------------------------------------------------------------------


def forged(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change a snapshot's record and arrays, and give it the right checksum again."""
    with np.load(path) as archive:
        arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
    record = json.loads(arrays.pop("record").tobytes())
    record.pop("sha256")
    change(record, arrays)
    sealed = {**record, "sha256": _digest(record, arrays)}
    text = np.frombuffer(json.dumps(sealed, sort_keys=True).encode(), np.uint8)
    np.savez(path, allow_pickle=False, record=text, **arrays)


@pytest.fixture
def kept(stream: Stream, tmp_path: Path) -> Path:
    """A snapshot of 10 points."""
    stream.update(*points(stream, 10))
    stream.save(tmp_path / "s.npz", {"mine": np.arange(3)})
    return tmp_path / "s.npz"


def refused(stream: Stream, path: Path) -> None:
    before, n_points = stream.state(), stream.n_points
    with pytest.raises(SnapshotError) as told:
        stream.restore(path)
    assert "\n" not in str(told.value)
    after = stream.state()
    assert stream.n_points == n_points
    assert all(np.array_equal(before[name], after[name]) for name in before)


def _spoil(name: str, value: float, record: dict[str, Any], arrays: dict[str, Any]) -> None:
    arrays[f"state.{name}"].flat[-1] = value


def _change(
    act: Callable[[dict[str, Any]], object], record: dict[str, Any], arrays: dict[str, Any]
) -> None:
    act(arrays)


NO_COUNTS: list[Any] = [None, "7", [7], {}, 7.0, True, -1, 1 << 62, float("nan")]


@pytest.mark.parametrize("name", ["n_points", "n_recent", "schema", "bundle_hash", "unknown"])
@pytest.mark.parametrize("value", NO_COUNTS)
def test_a_record_of_other_types_is_refused(
    stream: Stream, kept: Path, name: str, value: Any
) -> None:
    forged(kept, lambda record, arrays: record.update({name: value}))
    refused(stream, kept)


def test_more_recent_points_than_points_are_refused(stream: Stream, kept: Path) -> None:
    forged(kept, lambda record, arrays: record.update(n_points=3, n_recent=4))
    refused(stream, kept)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_is_neither_restored_nor_written(
    stream: Stream, kept: Path, value: float
) -> None:
    whole = kept.read_bytes()
    for name in stream.state():
        kept.write_bytes(whole)
        forged(kept, partial(_spoil, name, value))
        refused(stream, kept)
    kept.write_bytes(whole)
    name, pair = next(iter(stream._state.pairs.items()))
    pair[stream._state.side(name, stream._state.at.sides)].write(np.array(value, np.float32))
    with pytest.raises(SnapshotError):
        stream.save(kept)
    assert kept.read_bytes() == whole


def test_tensors_of_another_shape_type_or_name_are_refused(stream: Stream, kept: Path) -> None:
    whole, name = kept.read_bytes(), f"state.{stream.manifest.state[0].name}"
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda arrays: arrays.pop(name),
        lambda arrays: arrays.update({name: arrays[name][..., :1]}),
        lambda arrays: arrays.update({name: arrays[name].astype(np.float64)}),
        lambda arrays: arrays.update({"state.more": arrays[name]}),
    ]
    for change in changes:
        kept.write_bytes(whole)
        forged(kept, partial(_change, change))
        refused(stream, kept)


@pytest.mark.long
def test_a_small_file_that_inflates_is_refused_before_it_is_inflated(
    stream: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "bomb.npz"
    header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 28,)}
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("extra.bomb.npy", "w") as file,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(1 << 8):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        refused(stream, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size < 1 << 19 and peak < 1 << 23


def test_extra_arrays_that_could_not_be_read_again_are_not_written(
    stream: Stream, kept: Path
) -> None:
    whole = kept.read_bytes()
    large = np.broadcast_to(np.zeros(1, np.uint8), (EXTRA_BYTES + 1,))
    many = {str(index): np.zeros(1) for index in range(256)}
    for extra in ({"large": large}, many):
        with pytest.raises(SnapshotError):
            stream.save(kept, extra)
    assert kept.read_bytes() == whole


@pytest.mark.parametrize(
    "junk", [b"", b"PK\x03\x04", b"PK\x03\x04" * 999, bytes(9999), b"\x80\x04."]
)
def test_any_other_file_is_one_clear_error(stream: Stream, tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "s.npz").write_bytes(junk)
    refused(stream, tmp_path / "s.npz")


# Several processes --------------------------------------------------------------------------------

WRITER = """
import sys
from edgefold.runtime import Stream
with Stream.open(sys.argv[1]) as stream:
    stream.restore(sys.argv[2])
    for n in range(50):
        stream.save(sys.argv[2])
"""


def test_three_processes_that_save_to_one_path_each_write_it_whole(
    stream: Stream, kept: Path, tiny_bundle: Path
) -> None:
    """Through a link, as a card is named; a fourth reads all the while."""
    link = kept.with_name("link.npz")
    link.symlink_to(kept)
    kept.chmod(0o600)
    command = [sys.executable, "-c", WRITER, str(tiny_bundle)]
    writers = [subprocess.Popen([*command, str(path)]) for path in (kept, link, kept)]
    expected, n_read = stream.state(), 0
    try:
        while any(writer.poll() is None for writer in writers):
            stream.restore(kept)
            n_read += 1
    finally:
        codes = [writer.wait() for writer in writers]
    assert codes == [0, 0, 0] and n_read
    stream.restore(link)
    assert all(np.array_equal(array, stream.state()[name]) for name, array in expected.items())
    assert sorted(path.name for path in kept.parent.iterdir()) == ["link.npz", "s.npz"]
    assert link.is_symlink() and kept.stat().st_mode & 0o777 == 0o600
