"""Refuse a bundle that is not the expected one, or that no trusted key has signed.

    signature.json ── ed25519 ──> bundle hash ── SHA-256 ──> manifest.json ── SHA-256 ──> every file

Hashes show only damage, because whoever changes a bundle can compute them again. A signature shows
who made the bundle. The bytes of the manifest are checked before they are parsed, and before any
graph is opened. The package `cryptography` checks the signature in a child process; otherwise a
loop would hold the package's 8.5 MB (2.0 MB of them needed) for years, instead of 0.5 MB.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from edgefold.runtime.bundle.manifest import FILE_NAME as MANIFEST
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS, load_manifest
from edgefold.runtime.errors import BundleError, KeyFileError, install_extra
from edgefold.runtime.hashing import sha256
from edgefold.runtime.plain_files import open_plain

FILE_NAME = "signature.json"
SCHEMA = 1
DOMAIN = b"edgefold bundle signature 1\n"
"""The signed bytes begin with this text, so that a signature for another purpose is not valid."""
MAX_BYTES = 1 << 16  # of a signature file or a key; some hundred signatures
SPKI = bytes.fromhex("302a300506032b6570032100")
"""An encoded ed25519 public key consists of these bytes and the key's 32 bytes (RFC 8410)."""
BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)

KeySource = str | Path | bytes
"""A public key is given as the path of its file, or as the file's content in bytes."""
TrustedKeys = KeySource | Sequence[KeySource]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Holds an ed25519 public key.

    Attributes:
        raw: The key's 32 bytes.
    """

    raw: bytes

    @property
    def id(self) -> str:
        """Return the key's id, 16 hexadecimal digits that name the key but prove nothing."""
        return sha256(self.raw).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Signature:
    """Holds one signature of a signature file.

    Attributes:
        key: The id of the key that made it; see `PublicKey.id`.
        value: The signature, 64 bytes.
    """

    key: str
    value: bytes


def load_expected(
    bundle: str | Path,
    expect_hash: str | None = None,
    trusted_keys: TrustedKeys | None = None,
) -> Manifest:
    """Load a bundle's manifest, if it is the expected one and a trusted key has signed it.

    Args:
        bundle: The bundle's folder.
        expect_hash: The hash that the bundle must have, 64 hexadecimal digits in either case; None
            accepts any hash.
        trusted_keys: Public keys, one of which must have signed the bundle; None accepts a bundle
            without a signature.

    Raises:
        BundleError: The bundle is another one, or unsigned, or signed by other keys, or cannot be
            verified because the package cryptography is missing; or `load_manifest` refuses it.
        KeyFileError: A trusted key cannot be read, or the list of keys is empty.
    """
    digest = expected_hash(bundle, expect_hash, trusted_keys)
    manifest = load_manifest(bundle)
    if digest is not None and manifest.bundle_hash != digest:
        raise BundleError(f"{bundle} was changed while it was opened; open it again.")
    return manifest


def expected_hash(
    bundle: str | Path,
    expect_hash: str | None = None,
    trusted_keys: TrustedKeys | None = None,
) -> str | None:
    """Check a bundle's hash and signature as `load_expected` does, without parsing the manifest.

    Returns:
        The bundle's hash; None if neither a hash nor keys are given, so that nothing was checked.
    """
    if expect_hash is None and trusted_keys is None:
        return None
    if expect_hash is not None:
        expected, digest = read_hash(expect_hash), bundle_hash_of(bundle)
        if digest != expected:
            raise BundleError(
                f"{bundle} is another bundle than the expected one: its hash is {digest}, expected "
                f"was {expected}."
            )
    if trusted_keys is not None:
        digest, _ = signer_of(bundle, trusted_keys)
    return digest


def read_hash(text: str) -> str:
    """Convert a bundle's hash that a user typed to 64 lower-case hexadecimal digits.

    Raises:
        BundleError: The text is not 64 hexadecimal digits.
    """
    digits = text.strip().lower() if isinstance(text, str) else ""
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise BundleError(
            f"{text!r} is not a bundle's hash: give the 64 hexadecimal digits that `edgefold "
            "export` printed; `sha256sum BUNDLE/manifest.json` shows them, too."
        )
    return digits


def bundle_hash_of(bundle: str | Path) -> str:
    """Return the bundle's hash, the SHA-256 of its manifest file, without parsing the manifest.

    Raises:
        BundleError: The manifest cannot be read.
    """
    path = Path(bundle) / MANIFEST
    try:
        with open_plain(path) as file:
            digest = sha256()
            while block := file.read(1 << 16):
                digest.update(block)
    except OSError as error:
        raise BundleError(f"{bundle} is not a bundle: {path}: {error.strerror}.") from None
    return digest.hexdigest()


def signer_of(bundle: str | Path, trusted_keys: TrustedKeys) -> tuple[str, PublicKey]:
    """Return a bundle's hash, and the first of the trusted keys with which it is signed.

    Raises:
        BundleError, KeyFileError: See `load_expected`.
    """
    keys = read_public_keys(trusted_keys)
    found = bundle_hash_of(bundle)
    signatures = read_signatures(bundle, found)
    listed = ", ".join(key.id for key in keys)
    if not signatures:
        raise BundleError(
            f"{bundle} is not signed ({FILE_NAME} is missing or empty), and only bundles of the "
            f"key {listed} are trusted. Get a signed copy from its maker, or make a signature with "
            "`edgefold sign`."
        )
    pairs = [(key, s.value) for key in keys for s in signatures if s.key == key.id]
    if not pairs:
        others = ", ".join(s.key for s in signatures)
        raise BundleError(
            f"{bundle} is signed by the key {others}, and only bundles of the key {listed} are "
            "trusted. Get one from their owner."
        )
    valid = _verified(f"{bundle} cannot be verified", signed_message(found), pairs)
    for (key, _), is_valid in zip(pairs, valid, strict=True):
        if is_valid:
            return found, key
    raise BundleError(
        f"{bundle} has a false signature: the key {pairs[0][0].id} did not sign this bundle. "
        "Do not use it; get it again from its maker."
    )


def signed_message(bundle_hash: str) -> bytes:
    """Return the bytes that are signed for a bundle with this hash."""
    return DOMAIN + bundle_hash.encode()


def _verified(what: str, message: bytes, pairs: list[tuple[PublicKey, bytes]]) -> list[bool]:
    """Check in a child process which signatures of a message are valid.

    Args:
        what: Words for the start of an error message.
        message: The signed bytes.
        pairs: Each signature with the key that should have made it: (key, signature).

    Returns:
        For each pair, whether the signature is valid.

    Raises:
        BundleError: The child does not start or ends early, or the package cryptography is missing.
    """
    # Imported here: a loop without trusted keys must not load them.
    from edgefold.runtime.bundle import signature_process
    from edgefold.runtime.child_process import child_process

    request = {
        "message": message.hex(),
        "pairs": [[key.raw.hex(), value.hex()] for key, value in pairs],
    }
    try:
        with child_process(signature_process.__name__, request) as child:
            answer = child.answer.read()
            ending = child.wait()
    except OSError as error:
        raise BundleError(f"{what}: another Python process does not start.") from error
    try:
        result = json.loads(answer)
    except ValueError:
        raise BundleError(f"{what}: the process that does it {ending.describe()}.") from None
    if "missing" in result:
        cause = ModuleNotFoundError(result["missing"], name="cryptography")
        raise BundleError(
            f"{what}: the package cryptography does not load ({result['missing']}); "
            f"{install_extra('sign')} installs it."
        ) from cause
    return [verdict is True for verdict in result["valid"]]


# Files --------------------------------------------------------------------------------------------


def read_public_keys(sources: TrustedKeys) -> list[PublicKey]:
    """Read public keys from one or several files, or from files' contents.

    Each file may hold several keys.

    Raises:
        KeyFileError: There is no key, or a key is not an ed25519 public key in PEM format.
    """
    if isinstance(sources, str | bytes | PurePath):
        sources = [sources]
    keys = [key for source in sources for key in _keys_of(source)]
    if not keys:
        raise KeyFileError("no trusted key was given, so no bundle is trusted; name a public key.")
    return keys


def _keys_of(source: KeySource) -> list[PublicKey]:
    name = "the trusted key" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else read_key_file(source)
    keys = []
    for kind, body in BLOCK.findall(content.decode("ascii", "replace")):
        if "PRIVATE" in kind:
            raise KeyFileError(
                f"{name} is a private key, which belongs on no board; give its public half, the "
                "file that ends in .pub."
            )
        try:
            import base64

            der = base64.b64decode("".join(body.split()), validate=True)
        except ValueError:
            der = b""
        if kind != "PUBLIC KEY" or not der.startswith(SPKI) or len(der) != len(SPKI) + 32:
            raise KeyFileError(
                f"{name} is not an ed25519 public key; `edgefold sign --new-key NAME` makes a pair."
            )
        keys.append(PublicKey(der[len(SPKI) :]))
    if not keys:
        raise KeyFileError(f"{name} holds no public key in PEM (-----BEGIN PUBLIC KEY-----).")
    return keys


def read_key_file(path: str | Path) -> bytes:
    """Return the content of a key's file.

    Raises:
        KeyFileError: The file cannot be read, or is too long to be a key.
    """
    try:
        with open_plain(path) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"the key {path} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_BYTES:
        raise KeyFileError(f"{path} has more than {MAX_BYTES:,} bytes, so it is not a key.")
    return content


def read_signatures(bundle: str | Path, bundle_hash: str) -> list[Signature]:
    """Read the signature file in a bundle's folder; without a file the list is empty.

    The signatures are not checked here.

    Args:
        bundle: The bundle's folder.
        bundle_hash: The bundle's hash, which the file must name.

    Raises:
        BundleError: The file is damaged, or belongs to a bundle with another hash.
    """
    path = Path(bundle) / FILE_NAME
    try:
        with open_plain(path, os.O_NOFOLLOW) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        form: dict[str, Any] = json.loads(content)
        schema, signed = form["schema"], form["bundle_hash"]
        signatures = [Signature(s["key"], bytes.fromhex(s["ed25519"])) for s in form["signatures"]]
        if not all(re.fullmatch("[0-9a-f]{16}", s.key) for s in signatures):
            raise ValueError("a key's id is not 16 hexadecimal digits")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
    except PARSE_ERRORS as error:
        raise BundleError(f"{path} is damaged ({error}); get it again, or sign again.") from error
    if schema != SCHEMA:
        raise BundleError(f"{path} has schema {schema!r}, this version reads {SCHEMA}.")
    if signed != bundle_hash:
        raise BundleError(
            f"{path} is the signature of another bundle: it signs {str(signed)[:64]!r}, this one "
            f"is {bundle_hash}. Get both again from their maker; if that is you, remove the file "
            "and sign again."
        )
    return signatures
