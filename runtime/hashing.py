"""SHA-256 without OpenSSL.

Importing hashlib maps OpenSSL's libcrypto, 3.6 MB of resident memory on a process that has 80.
CPython carries an implementation of its own: slower (about 25 ms for a bundle of 7 MB), the same
result.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol


class Digest(Protocol):
    """What hashlib's objects offer, as far as it is used here."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def _own_sha256() -> Callable[..., Digest]:
    # _sha2 since CPython 3.12, _sha256 before; hashlib where a build has neither.
    for name in ("_sha2", "_sha256"):
        try:
            found: Callable[..., Digest] = import_module(name).sha256
        except ImportError:
            continue
        return found
    from hashlib import sha256 as of_openssl

    return of_openssl


sha256 = _own_sha256()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, read in blocks of 64 KiB."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 16):
            digest.update(block)
    return digest.hexdigest()
