"""SHA-256 without OpenSSL.

Importing hashlib maps OpenSSL's libcrypto, 3.6 MB of resident memory on a process that has 80.
CPython carries an implementation of its own, slower (about 25 ms for a bundle of 7 MB) and the same.
"""

from __future__ import annotations

from pathlib import Path

try:
    from _sha2 import sha256  # CPython 3.12 and later
except ImportError:
    try:
        from _sha256 import sha256  # CPython 3.10 and 3.11
    except ImportError:  # a Python built without it
        from hashlib import sha256

__all__ = ["sha256", "sha256_of"]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, read in blocks of 64 KiB."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 16):
            digest.update(block)
    return digest.hexdigest()
