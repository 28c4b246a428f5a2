"""Check ed25519 signatures in a child process; see `edgefold.runtime.bundle.signature`."""

from __future__ import annotations

import json
from typing import IO, Any


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Check signatures, and write for each whether it is valid, or why none can be checked.

    Args:
        request: "message", in hexadecimal digits, and "pairs", a list of [key, signature] in
            hexadecimal digits.
        answer: The pipe that gets a JSON object: "valid" with a bool for each pair, or "missing"
            with the reason why the package cryptography does not load.
    """
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
