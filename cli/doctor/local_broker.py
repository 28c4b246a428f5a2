"""Find the brokers that run on this machine, and the files with which they were started."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path


def is_local(host: str) -> bool:
    """Return whether a host is this machine: whether one of its addresses can be bound here."""
    try:
        places = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, place in places:
        with closing(socket.socket(family, kind, protocol)) as probe:
            try:
                probe.bind(place)
            except OSError:
                continue
            return True
    return False


def files_of_processes(root: Path, program: str, options: Sequence[str]) -> Iterator[Path | None]:
    """Yield for each process of a program the file that one of these options names, or None.

    Args:
        root: The folder that holds proc.
        program: The program's name.
        options: The names of the option.
    """
    for place in sorted((root / "proc").glob("[0-9]*")):
        try:
            words = [os.fsdecode(w) for w in (place / "cmdline").read_bytes().split(b"\0")]
            if os.path.basename(words[0]) != program:
                continue
            given = dict(pairwise(words))
            name = next((given[option] for option in options if option in given), None)
            if name is None:
                yield None
                continue
            folder = "/" if name.startswith("/") else os.readlink(place / "cwd")
        except OSError:  # it has ended, or belongs to another user
            continue
        yield root / os.path.join(folder, name).lstrip("/")
