"""Make keys and sign bundles with them, on the machine of a bundle's owner.

This needs the package cryptography and the private key. A board needs only the public key
(`edgefold.runtime.bundle.signature`).
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.runtime.bundle.signature import (
    FILE_NAME,
    SCHEMA,
    PublicKey,
    load_expected,
    read_key_file,
    read_signatures,
    signed_message,
)
from edgefold.runtime.errors import KeyFileError
from edgefold.runtime.files import write_atomic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def new_key(path: Path) -> PublicKey:
    """Make a pair of keys: write the private one to PATH, mode 600, the public one to PATH.pub.

    Returns:
        The public key.

    Raises:
        KeyFileError: One of the files exists already, or cannot be written.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    public = _public(private)
    secret = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    name = "".join(c if c.isprintable() else "?" for c in path.name)
    title = f"edgefold public key {public.id} ({name})\n".encode()
    public_path = Path(f"{path}.pub")
    _write_new(public_path, title + pem, 0o644)
    try:
        _write_new(path, secret, 0o600)
    except BaseException:
        public_path.unlink()
        raise
    return public


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a new file and force it to the disk; raise KeyFileError if it exists already."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise KeyFileError(f"{path} exists, and a key is never replaced; choose a name.") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
    except OSError as error:
        path.unlink()
        raise KeyFileError(f"{path} cannot be written: {error.strerror}.") from error


def sign_bundle(
    bundle: str | Path, key: Path, expect_hash: str | None = None
) -> tuple[str, PublicKey]:
    """Check a bundle's files, and add a signature to the signature file in its folder.

    Signatures of other keys stay.

    Args:
        bundle: The bundle's folder.
        key: The file of the private key.
        expect_hash: The hash that the bundle must have; None signs any bundle.

    Returns:
        The bundle's hash, and the public key that belongs to the private one.

    Raises:
        BundleError: The bundle is damaged or not the expected one, or its signature file is
            damaged or signs another bundle.
        KeyFileError: The key cannot be read.
    """
    private = _read_private(key)
    bundle_hash = load_expected(bundle, expect_hash).bundle_hash
    public = _public(private)
    signatures = {s.key: s.value for s in read_signatures(bundle, bundle_hash)}
    signatures[public.id] = private.sign(signed_message(bundle_hash))
    form = {
        "schema": SCHEMA,
        "bundle_hash": bundle_hash,
        "signatures": [{"key": name, "ed25519": value.hex()} for name, value in signatures.items()],
    }
    write_atomic(Path(bundle) / FILE_NAME, json.dumps(form, indent=1).encode() + b"\n")
    return bundle_hash, public


def _read_private(path: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = read_key_file(path)
    try:
        private = load_pem_private_key(content, None)
    except TypeError:
        raise KeyFileError(
            f"{path} is protected by a password, which edgefold does not ask for; keep the key "
            "on a protected disk instead, or decrypt it with `openssl pkey`."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyFileError(
            f"{path} is not an ed25519 private key in PEM; `edgefold sign --new-key NAME` makes "
            "one."
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        warnings.warn(
            f"{path} may be read by others (mode {mode:o}), who can then sign as you: chmod 600 it",
            stacklevel=2,
        )
    return private


def _public(private: Ed25519PrivateKey) -> PublicKey:
    return PublicKey(private.public_key().public_bytes_raw())
