"""Name the client of a loop at a broker."""

from __future__ import annotations

import os
from pathlib import Path

from edgefold.runtime.hashing import sha256


def client_name(snapshot: Path | None) -> str:
    """Return the name of a client: always the same for one snapshot of one machine, else a new one.

    A broker keeps a session by this name, so two loops must not share it.
    """
    if snapshot is None:
        return f"edgefold-{os.urandom(6).hex()}"
    place = f"{os.uname().nodename}:{os.path.realpath(snapshot)}"
    return f"edgefold-{sha256(place.encode()).hexdigest()[:12]}"
