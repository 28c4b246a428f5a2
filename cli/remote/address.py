"""Read the names of boards as ssh takes them, and give each one a short name for tables and files.

pi@kitchen              user and host, or an alias of ~/.ssh/config     kitchen
ssh://pi@kitchen:2222   another port                                    kitchen-2222
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCHEME = "ssh://"


@dataclass(frozen=True, slots=True)
class Address:
    """Holds a board's address: the text for ssh, and the user, host and port in it.

    Attributes:
        text: The address as the user typed it; ssh gets it unchanged.
        user, port: The parts that it names; "" for those that it leaves to ssh.
        host: Host, or alias of ssh's configuration.
    """

    text: str
    user: str
    host: str
    port: str


def board_address(text: str) -> Address:
    """Read USER@HOST, an alias or ssh://USER@HOST:PORT.

    Raises:
        ValueError: The text is none of them; its words say what to write instead.
    """
    rest = text.removeprefix(SCHEME)
    user, at, host = rest.rpartition("@")
    port = ""
    if text.startswith(SCHEME):
        host = host.removesuffix("/")
        if match := re.fullmatch(r"(\[[^\]]+\]|[^:]+):(\d+)", host):
            host, port = match.groups()
        host = host.strip("[]")
    elif match := re.fullmatch(r"([^:]+):(\d+)", host):
        raise ValueError(f"{text!r} has a port; write {SCHEME}{text}, or give --port {match[2]}")
    unsafe = re.search(r"[\s\x00-\x1f\x7f/'\"`$;|&<>()\\*?]", rest.removesuffix("/"))
    if not host or unsafe or (at and not user) or user.startswith("-") or host.startswith("-"):
        raise ValueError(f"{text!r} is not USER@HOST, an alias of ssh or {SCHEME}USER@HOST:PORT")
    return Address(text, user, host, port)


def short_names(addresses: Sequence[Address]) -> list[str]:
    """Return a name for each board, unique among them, that suits tables and names of files.

    It is the host; where several boards have one host, the port or the user is in it too.
    """
    forms = (
        [a.host for a in addresses],
        ["-".join(filter(None, (a.host, a.port))) for a in addresses],
        ["-".join(filter(None, (a.user, a.host, a.port))) for a in addresses],
    )
    for form in forms:
        names = [re.sub(r"[^A-Za-z0-9._-]", "_", name) for name in form]
        if len(set(names)) == len(names):
            return names
    counts = Counter[str]()
    for index, name in enumerate(names):
        counts[name] += 1
        names[index] = f"{name}-{counts[name]}"
    return names


def file_of_board(path: Path, name: str, n_boards: int) -> Path:
    """Return the file for one of several boards, profile.NAME.json for profile.json.

    Raises:
        ValueError: The path is standard output or a device, which takes one board's record.
    """
    if n_boards == 1:
        return path
    if path.parts[1:2] in (("dev",), ("proc",)):
        raise ValueError("standard output and devices take the record of one board; name a file")
    return path.with_name(f"{path.stem}.{name}{path.suffix}")
