"""Name the client of a loop at a broker."""

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
    place = f"{_machine()}:{os.uname().nodename}:{os.path.realpath(snapshot)}"
    return f"edgefold-{sha256(place.encode()).hexdigest()[:12]}"


def _machine() -> str:
    """Return the identity that the system gave itself when it was installed; "" without one."""
    try:
        return MACHINE_ID.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
