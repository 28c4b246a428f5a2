"""Name a loop at a broker."""

from __future__ import annotations

import os
from pathlib import Path

from edgefold.runtime.hashing import sha256

MACHINE_ID = Path("/etc/machine-id")


def client_name(snapshot: Path | None) -> str:
    """Return the name of a client: always the same for one snapshot of one machine, else a new one.

    A broker keeps a session by this name, so two loops must not share it. Boards often have the
    same host name, so the system's own identity is in the name too.
    """
    if snapshot is None:
        return f"edgefold-{os.urandom(6).hex()}"
    return f"edgefold-{digits_of(os.path.realpath(snapshot))}"


def digits_of(place: str) -> str:
    """Return 12 hexadecimal digits for a place on this machine, which no other machine has."""
    return sha256(f"{_machine()}:{os.uname().nodename}:{place}".encode()).hexdigest()[:12]


def _machine() -> str:
    """Return the identity that the system gave itself when it was installed; "" without one."""
    try:
        return MACHINE_ID.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
