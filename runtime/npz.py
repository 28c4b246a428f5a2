"""Write .npz files, and read one that somebody else made: sizes are checked before unpacking.

    size of the file ──> size of the zip's directory ──> sizes of all members, added up
        ──> for each member: the array's header (type, shape) ──> its data

Numpy's own reader unpacks every member of the zip, whatever its size, and loads pickled objects if
it is allowed to. This reader checks no values: its caller does.
"""

from __future__ import annotations

import errno
import io
import math
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.lib import format as npy

from edgefold.runtime.arrays import Array
from edgefold.runtime.plain_files import open_plain

if TYPE_CHECKING:
    import zipfile

MOST_MEMBERS = 256
HEADER_BYTES = 10_240  # numpy refuses the text of a header beyond 10,000
ENTRY_BYTES = 1024  # of a member in the zip's directory and before its data, its name included
BLOCK = 1 << 18
READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
END = struct.Struct("<4s4H2LH")  # the last record of a zip (APPNOTE.TXT, 4.3.16)
FRAME_BYTES = 30 + 20 + 46
"""Bytes of a member besides its content and its name, which stands in the file twice: local header,
lengths of 64 bits, entry in the zip's directory (4.3.7, 4.5.3, 4.3.12)."""
ZIP32_BYTES = (1 << 31) - 2  # of the largest zip for which numpy and zipfile need no zip64
ZIP64_LOCATOR = b"PK\x06\x07", 20  # 4.3.15; numpy needs it for files beyond 2 GiB only


def write_npz(
    file: Path | IO[bytes], arrays: Mapping[str, Array], *, compressed: bool = False
) -> None:
    """Write arrays to an .npz file as `numpy.savez` does, without pickled objects.

    `numpy.savez` itself takes `allow_pickle` only since NumPy 2.2. Every NumPy before it adds an
    array of that name to the file.

    Args:
        file: The file's path, or a file that is open for writing and can seek.
        arrays: The arrays by name.
        compressed: Whether to deflate the arrays, as `numpy.savez_compressed` does.

    Raises:
        ValueError: An array holds Python objects.
        OSError: The file cannot be written.
    """
    import zipfile  # takes 0.7 MB, which a stream without a snapshot does not need

    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    archive, member = zipfile.ZipFile(file, "w", kind), None
    try:
        for name, array in arrays.items():
            # As numpy.savez: a member's length is not known before it is written.
            member = archive.open(f"{name}.npy", "w", force_zip64=True)
            npy.write_array(member, np.asanyarray(array), allow_pickle=False)
            member.close()
    finally:  # also after an interrupt at any line: a zip with an open member cannot be closed
        if member is not None:
            member.close()
        archive.close()


def npz_bytes(arrays: Mapping[str, tuple[tuple[int, ...], str]]) -> int:
    """Return the length of the file that `write_npz` makes of arrays, uncompressed, in bytes.

    Args:
        arrays: Shape and element type of each array, by name.
    """
    total = END.size
    for name, (shape, dtype) in arrays.items():
        header, kind = io.BytesIO(), np.dtype(dtype)
        form = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(header, form)
        content = len(header.getvalue()) + math.prod(shape) * kind.itemsize
        total += content + FRAME_BYTES + 2 * len(f"{name}.npy".encode())
    return total


def read_npz(
    path: Path, max_bytes: int, is_known: Callable[[str], bool] = lambda name: True
) -> dict[str, Array]:
    """Read all arrays of an .npz file into memory, and allocate no more than about `max_bytes`.

    Args:
        path: The file. Links are followed.
        max_bytes: The most bytes that all arrays together may take.
        is_known: Function that returns whether the file may hold an array of this name.

    Returns:
        The arrays by name. Each is writable and has the type and shape that the file states.

    Raises:
        ValueError: The file is not an .npz or is damaged; or it holds more than `max_bytes`,
            Python objects, more than 256 arrays, one name twice or an unknown name.
        OSError: The file is missing, cannot be read, or is not a regular file.
    """
    with open_plain(path) as file:
        try:
            return _read(file, max_bytes, is_known)
        except ValueError:
            raise
        except Exception as error:  # zipfile, zlib and numpy raise many kinds on damaged bytes
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of a seek to nowhere
                raise
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _read(file: BinaryIO, max_bytes: int, is_known: Callable[[str], bool]) -> dict[str, Array]:
    import zipfile  # takes 0.7 MB, which a stream without a snapshot does not need

    _require_small_directory(file, max_bytes)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names):
            raise ValueError("one name stands in it twice")
        for name, member in zip(names, members, strict=True):
            if not member.filename.endswith(".npy") or not is_known(name):
                raise ValueError(f"it holds {member.filename!r}, which is not expected")
            if member.flag_bits & 1 or member.compress_type not in (
                zipfile.ZIP_STORED,
                zipfile.ZIP_DEFLATED,
            ):
                raise ValueError(f"{name!r} is packed in a way that numpy does not write")
        n_bytes = sum(member.file_size for member in members)
        if n_bytes > max_bytes + HEADER_BYTES * len(members):
            raise ValueError(f"its arrays take {n_bytes} bytes, at most {max_bytes} are expected")
        return {name: _member(archive, member) for name, member in zip(names, members, strict=True)}


def _require_small_directory(file: BinaryIO, max_bytes: int) -> None:
    """Refuse a zip that lists too many members, because `ZipFile` makes an object for each.

    Afterwards the file is at its beginning again.

    Raises:
        ValueError: The list of members (the zip's directory) or the file is too large, or the file
            is not a zip as numpy writes it.
    """
    size = os.fstat(file.fileno()).st_size
    tail, (mark, n_mark) = END.size, ZIP64_LOCATOR
    start = max(0, size - tail - n_mark)
    file.seek(start)
    last = file.read(tail + n_mark)
    if len(last) < tail:
        raise ValueError("it is not a zip archive")
    magic, *_, n_members, n_directory, _, n_comment = END.unpack(last[-tail:])
    if magic != b"PK\x05\x06" or n_comment:
        raise ValueError("it is not a zip archive as numpy writes it")
    if n_members > MOST_MEMBERS:
        raise ValueError(f"it holds {n_members} arrays, at most {MOST_MEMBERS} are expected")
    far = size > ZIP32_BYTES
    if not far and (last.startswith(mark) or n_directory > n_members * ENTRY_BYTES):
        raise ValueError("its directory is longer than its entries")
    if size > max_bytes + max_bytes // 64 + (n_members + 1) * (HEADER_BYTES + 2 * ENTRY_BYTES):
        raise ValueError(f"it takes {size} bytes, at most about {max_bytes} are expected")
    file.seek(0)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as file:
        try:
            shape, transposed, dtype = READERS[npy.read_magic(file)](file)
        except KeyError:
            raise ValueError(f"{member.filename!r} is of a newer format than 2.0") from None
        if dtype.hasobject or not dtype.itemsize or dtype.subdtype:
            raise ValueError(f"{member.filename!r} holds {dtype}, which is not read")
        n_bytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or n_bytes > member.file_size:
            raise ValueError(f"{member.filename!r} has shape {shape} in {member.file_size} bytes")
        array = np.empty(shape, dtype, order="F" if transposed else "C")
        _fill(array.reshape(-1, order="A").view(np.uint8), file)
        if file.read(1):  # reaches the end, where zipfile compares the checksum
            raise ValueError(f"{member.filename!r} is longer than its shape {shape}")
    return array


def _fill(block: Array, file: IO[bytes]) -> None:
    done = 0
    while done < block.size:
        part = file.read(min(BLOCK, block.size - done))
        if not part:
            raise ValueError("an array ends early")
        block[done : done + len(part)] = np.frombuffer(part, np.uint8)
        done += len(part)
