"""Write wheels and source archives whose bytes depend only on their content.

Entries are sorted, and times, owners and modes are fixed. The compression is that of this Python's
zlib; another zlib may give other bytes of the same content.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

MODE = 0o644
SOFTWARE = "edgefold's scripts/wheels"


def read_wheel(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name, without its RECORD."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        return {name: archive.read(name) for name in names if not name.endswith("/RECORD")}


def write_wheel(
    files: Mapping[str, bytes], tags: Sequence[str], folder: Path, date: tuple[int, ...]
) -> Path:
    """Write a wheel and return its path.

    Args:
        files: Files by name, RECORD excepted; `read_wheel` of the pure wheel, perhaps with more.
        tags: Its platform tags; "any" alone for a wheel without compiled code.
        folder: Where it is written.
        date: Year, month, day, hour, minute and second of each entry.
    """
    info = next(name.partition("/")[0] for name in files if ".dist-info/" in name)
    pure = list(tags) == ["any"]
    about = [
        "Wheel-Version: 1.0",
        f"Generator: {SOFTWARE}",
        f"Root-Is-Purelib: {str(pure).lower()}",
        *(f"Tag: py3-none-{tag}" for tag in tags),
    ]
    content = {**files, f"{info}/WHEEL": ("\n".join(about) + "\n").encode()}
    names = sorted(content, key=lambda name: (name.startswith(info), name))
    lines = [f"{name},sha256={_digest(content[name])},{len(content[name])}" for name in names]
    record = f"{info}/RECORD"
    content[record] = "".join(f"{line}\n" for line in [*lines, f"{record},,"]).encode()
    out = folder / f"{info.removesuffix('.dist-info')}-py3-none-{'.'.join(tags)}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in [*names, record]:
            entry = zipfile.ZipInfo(name, date)  # type: ignore[arg-type]  # six numbers
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100000 | MODE) << 16
            archive.writestr(entry, content[name], compresslevel=9)
    return out


def rewrite_sdist(path: Path, folder: Path, epoch: int) -> Path:
    """Write a source archive again with fixed times, owners and modes, and return its path."""
    plain = io.BytesIO()
    with (
        tarfile.open(path) as source,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as out,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.mtime = member.type, epoch
            entry.mode = 0o755 if member.isdir() else MODE
            data = source.extractfile(member) if member.isfile() else None
            content = data.read() if data else b""
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
    target = folder / path.name
    target.write_bytes(gzip.compress(plain.getvalue(), 9, mtime=0))
    return target


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
