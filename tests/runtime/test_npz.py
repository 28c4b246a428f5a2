"""An .npz that somebody else made is read within bounds, or refused in one kind of error."""

from __future__ import annotations

import os
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime.npz import npz_bytes, read_npz, write_npz

MANY = 1 << 20


def arrays() -> dict[str, Any]:
    numbers = np.arange(12.0).reshape(3, 4)
    return {
        "rows": numbers,
        "state.transposed": np.asfortranarray(numbers),
        "single": np.array(3.0),
        "empty": np.zeros((0, 4), np.float32),
        "text": np.array(["ab", "c"]),
        "flags": np.array([True, False]),
        "swapped": np.arange(3, dtype=">i4"),
        "fields": np.zeros(3, [("a", "f4"), ("b", "i2")]),
        "prediction.ü": np.ones(1),
    }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_array_comes_back_as_it_was_written(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "a.npz", **arrays())
    found = read_npz(tmp_path / "a.npz", MANY)
    assert found.keys() == arrays().keys()
    for name, expected in arrays().items():
        assert (found[name].dtype, found[name].shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found[name], expected)
        found[name].flags.writeable = True


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_written_as_numpy_writes_them(tmp_path: Path, compressed: bool) -> None:
    write_npz(tmp_path / "a.npz", arrays(), compressed=compressed)
    (np.savez_compressed if compressed else np.savez)(tmp_path / "b.npz", **arrays())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_objects_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_npz(tmp_path / "a.npz", {"a": np.array([object()])})


def test_what_would_inflate_beyond_the_bound_is_not_inflated(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(10**8, np.uint8))
    tracemalloc.start()
    with pytest.raises(ValueError):
        read_npz(tmp_path / "a.npz", MANY)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < MANY


def test_a_header_that_says_more_than_the_member_holds_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(8))
    data = (tmp_path / "a.npy").read_bytes().replace(b"(8,), }         ", b"(8000000000,), }")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", data)
    with pytest.raises(ValueError):
        read_npz(tmp_path / "a.npz", MANY)


@pytest.mark.parametrize("shape", [b"(4,), }", b"(-8,), }"])
def test_a_header_of_another_shape_than_the_data_is_refused(tmp_path: Path, shape: bytes) -> None:
    np.save(tmp_path / "a.npy", np.zeros(8))
    data = (tmp_path / "a.npy").read_bytes()
    before = b"(8,), }".ljust(len(shape))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", data.replace(before, shape))
    with pytest.raises(ValueError):
        read_npz(tmp_path / "a.npz", MANY)


def test_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.array([{}], object))
    with pytest.raises(ValueError):
        read_npz(tmp_path / "a.npz", MANY)


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    many: dict[str, Any] = {f"a{index}": np.zeros(1) for index in range(300)}
    np.savez(tmp_path / "a.npz", **many)
    with pytest.raises(ValueError):
        read_npz(tmp_path / "a.npz", MANY)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(8))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, pytest.warns(UserWarning):
        for _ in range(2):
            archive.write(tmp_path / "a.npy", "a.npy")
    with pytest.raises(ValueError):
        read_npz(tmp_path / "a.npz", MANY)


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(1), b=np.zeros(1))
    with pytest.raises(ValueError):
        read_npz(tmp_path / "a.npz", MANY, lambda name: name == "a")


def test_what_is_no_regular_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing", "a\0b", "\ud800"):
        with pytest.raises(OSError):
            read_npz(tmp_path / name, MANY)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_archives_raise_one_kind_of_error(tmp_path: Path, save: Any) -> None:
    place = tmp_path / "a.npz"
    save(place, **arrays())
    whole, drawn, refused = place.read_bytes(), random.Random(0), 0
    for _ in range(500):
        data = bytearray(whole)
        at = drawn.randrange(len(data))
        match drawn.randrange(3):
            case 0:
                data[at] = drawn.randrange(256)
            case 1:
                del data[at : at + drawn.randrange(1, 9)]
            case 2:
                data[at:at] = drawn.randbytes(drawn.randrange(1, 9))
        place.write_bytes(data)
        try:
            read_npz(place, MANY)
        except ValueError:
            refused += 1
    assert refused > 400  # the others changed what no reader looks at


def test_the_length_of_a_file_is_known_before_it_is_written(tmp_path: Path) -> None:
    named: dict[str, Any] = {
        "a": np.zeros((3, 4), np.float32),
        "scalar": np.array(1.0),
        "none": np.zeros((0, 5), np.int64),
        "flags": np.zeros(7, bool),
        "a.ü.name" * 5: np.zeros((123_456, 2), np.int8),
    }
    path = tmp_path / "arrays.npz"
    write_npz(path, named)
    shapes = {name: (array.shape, array.dtype.name) for name, array in named.items()}
    assert npz_bytes(shapes) == path.stat().st_size
