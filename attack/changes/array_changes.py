"""Changes of bytes, of the golden stream's arrays, and of the archives that hold arrays."""

from __future__ import annotations

import functools
import io
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

from attack.changes.drafts import Draft

Random = np.random.Generator


def one_of(random: Random, items: Any) -> Any:
    return items[int(random.integers(len(items)))]


def change_bytes(random: Random, content: bytes) -> tuple[bytes, str]:
    """Flip, cut, repeat, remove or insert bytes."""
    data = bytearray(content)
    pick = int(random.integers(7))
    place = int(random.integers(len(data))) if data else 0
    if pick <= 2:
        for _ in range(int(2 ** random.integers(0, 6))):
            if data:
                data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        return bytes(data), "bits flipped"
    if pick == 3:
        return bytes(data[:place]), f"cut to {place} of {len(data)} bytes"
    if pick == 4:
        stop = min(len(data), place + int(random.integers(1, 64)))
        data[place:stop] = b""
        return bytes(data), f"bytes {place} to {stop} removed"
    if pick == 5:
        junk = random.bytes(int(2 ** random.integers(0, 12)))
        data[place:place] = junk
        return bytes(data), f"{len(junk)} bytes inserted at {place}"
    stop = min(len(data), place + int(random.integers(1, 16)))
    data[place:stop] = (b"\xff" if random.random() < 0.5 else b"\0") * (stop - place)
    return bytes(data), f"bytes {place} to {stop} overwritten"


def read_arrays(content: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an .npz in memory."""
    with np.load(io.BytesIO(content)) as archive:
        return dict(archive)


def packed(arrays: dict[str, Any]) -> bytes:
    """Arrays as an .npz."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def change_array(random: Random, array: np.ndarray[Any, Any]) -> tuple[Any, str]:
    """Another shape, type or content of an array."""
    pick = int(random.integers(11))
    if pick == 0:
        return array.reshape(-1), "made flat"
    if pick == 1:
        return array[None], "given an axis more"
    if pick == 2 and array.ndim:
        return array[:0], "emptied"
    if pick == 3 and array.ndim:
        return np.concatenate([array, array]), "doubled"
    if pick == 4:
        names = (
            "float16",
            "float64",
            "int8",
            "int64",
            "complex64",
            "bool",
            "S3",
            "U2",
            "M8[s]",
            ">f4",
        )
        dtype = one_of(random, names)
        try:
            return array.astype(dtype), f"made {dtype}"
        except (ValueError, TypeError):
            return np.zeros(array.shape, dtype), f"made {dtype}"
    if pick == 5 and array.dtype.kind == "f":
        return np.full_like(array, np.nan), "filled with NaN"
    if pick == 6:
        value = one_of(random, (-1, 0, 10**15, 2**62, -(2**63), 3))
        return np.full_like(array, value, dtype=np.int64), f"filled with {value}"
    if pick == 7 and array.dtype.kind in "fiub":
        return array.astype(float) + float(one_of(random, (1e-3, 5.0, 1e30, np.inf))), "moved"
    if pick == 8 and array.ndim:
        return array[::-1].copy(), "reversed"
    if pick == 9 and array.ndim and array.shape[-1]:
        return array[..., :-1], "without its last column"
    return np.full(int(random.integers(1, 6)), 1.5), "another array"


@functools.cache
def zeros_deflated(n_bytes: int) -> bytes:
    """Return n zero bytes, deflated as a member of a zip."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    parts = [compressor.compress(block) for _ in range(n_bytes >> 20)]
    return b"".join([*parts, compressor.compress(bytes(n_bytes & 0xFFFFF)), compressor.flush()])


@functools.cache
def zeros_crc(n_bytes: int) -> int:
    """The CRC of that many zero bytes."""
    crc = 0
    for _ in range(n_bytes >> 20):
        crc = zlib.crc32(bytes(1 << 20), crc)
    return zlib.crc32(bytes(n_bytes & 0xFFFFF), crc)


def header_of(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """The header of an .npy file; padded as numpy writes it."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


BOMB_BYTES = 1 << 27


def bomb(name: str) -> bytes:
    """A zip of an eighth of a megabyte whose only member inflates to 128 MiB."""
    body = zeros_deflated(BOMB_BYTES)
    crc = zeros_crc(BOMB_BYTES)
    label = f"{name}.npy".encode()
    fields = (0, 8, 0, 33, crc, len(body), BOMB_BYTES, len(label))
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, *fields, 0) + label + body
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, *fields, 0, 0, 0, 0, 0, 0)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central) + len(label), len(local), 0)
    return local + central + label + end


def change_archive(
    random: Random, arrays: dict[str, Any], compress: bool = False
) -> tuple[bytes, str]:
    """Write arrays as a zip that no numpy writes."""
    name = one_of(random, sorted(arrays))
    pick = int(random.integers(9))
    if pick == 0:
        return bomb(name), f"a bomb called {name}"
    file = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    what = ""
    with zipfile.ZipFile(file, "w", method) as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            content = member.getvalue()
            if key == name:
                shapes = ((10**9,), (2**62,), (2**40, 2**40), (-1,), (0, 10**18), ())
                if pick == 1:
                    shape = one_of(random, shapes)
                    content, what = header_of(shape), f"{key} declares the shape {shape}"
                elif pick == 2:
                    content, what = header_of((4,), "|O") + b"\x80\x04N.", f"{key} is a pickle"
                elif pick == 3:
                    content, what = content[: int(random.integers(len(content)))], f"{key} is cut"
                elif pick == 4:
                    content, what = change_bytes(random, content)[0], f"bytes of {key} changed"
                elif pick == 5:
                    archive.writestr(f"{key}.npy", content)
                    what = f"{key} is there twice"
                elif pick == 6:
                    archive.writestr("../../x.npy", content)
                    archive.writestr("y" * 60_000, b"")
                    what = "members with odd names"
                elif pick == 7:
                    header = header_of((2,), f"({2**30},)f4")
                    content, what = header, f"{key} is of a type of 4 GiB"
            archive.writestr(f"{key}.npy", content)
        if pick == 8:
            for index in range(700):
                archive.writestr(f"m{index}.npy", b"")
            what = "700 empty members"
    return file.getvalue(), what


def golden_fields(random: Random, draft: Draft) -> str:
    """Change arrays of the golden stream, or how they are packed."""
    arrays = read_arrays(draft.bytes_of("golden.npz"))
    if random.random() < 0.3:
        draft.changed["golden.npz"], what = change_archive(random, arrays, random.random() < 0.5)
        return f"golden: {what}"
    done = []
    for _ in range(1 if random.random() < 0.7 else 2):
        name = one_of(random, sorted(arrays))
        pick = int(random.integers(8))
        if pick == 0:
            del arrays[name]
            done.append(f"{name} removed")
        elif pick == 1:
            arrays[f"{name}_"] = arrays[name]
            done.append(f"{name} doubled")
        elif pick == 2:
            arrays["moments"] = np.array(
                one_of(
                    random,
                    ([10**15], [5, 3], [-1], [], [2.5], [np.nan], [2**62, 1], [[1]], [1] * 99),
                )
            )
            done.append(f"moments = {arrays['moments'].tolist()[:3]}")
        elif pick == 3:
            value = one_of(random, (1e9, np.nan, np.inf, -1.0, 0.0, 1e-30, "x", [1.0], [[1e-4]]))
            arrays["tolerance"] = np.array(value)
            done.append(f"tolerance = {value}")
        elif pick == 4:
            value = one_of(random, (-1, 10**15, 0, 1, 2**62, 2.5, np.nan, [1], "x"))
            arrays["n_condition"] = np.array(value)
            done.append(f"n_condition = {value}")
        else:
            arrays[name], what = change_array(random, arrays[name])
            done.append(f"{name} {what}")
        if not arrays:
            break
    draft.changed["golden.npz"] = packed(arrays)
    return f"golden: {'; '.join(done)}"


def golden_bytes(random: Random, draft: Draft) -> str:
    """Change bytes of the golden stream's file."""
    draft.changed["golden.npz"], what = change_bytes(random, draft.bytes_of("golden.npz"))
    return f"golden.npz: {what}"
