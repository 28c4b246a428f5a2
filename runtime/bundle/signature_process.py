"""Check ed25519 signatures in a child process; see `edgefold.runtime.bundle.signature`."""

from __future__ import annotations

import json
from typing import IO, Any


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Write which signatures are valid for key and message, or why none can be checked."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        answer.write(json.dumps({"missing": str(error)}).encode())
        return
    message, valid = bytes.fromhex(request["message"]), []
    for key, signature in request["pairs"]:
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
            public.verify(bytes.fromhex(signature), message)
        except (InvalidSignature, ValueError):  # ValueError: the bytes are not a key
            valid.append(False)
        else:
            valid.append(True)
    answer.write(json.dumps({"valid": valid}).encode())
