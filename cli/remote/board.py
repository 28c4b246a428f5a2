"""Look at a board before anything is changed there: processor, C library, Python, disk, edgefold.

One script prints a line for each fact. A fact that the board cannot give is empty, and the step
that needs it refuses with a line of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgefold.cli.remote.command import FIND
from edgefold.cli.remote.connection import IN_FOLDER, Connection
from edgefold.runtime.errors import BoardFailedError

OLDEST_PYTHON = (3, 10)
PYTHON_FACTS = """
import os, struct, sys
def has(name):
    try: __import__(name)
    except Exception: return "no"
    return "yes"
print("python %d.%d.%d" % sys.version_info[:3])
print("bits %d" % (struct.calcsize("P") * 8))
print("venv " + has("venv"))
print("ensurepip " + has("ensurepip"))
try: print("libc " + os.confstr("CS_GNU_LIBC_VERSION"))
except Exception: pass
"""
LOOK = f"""{IN_FOLDER}
python=$1 program=$2
echo "folder $dir"
echo "processor $(uname -m)"
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
case $libc in
glibc*) ;;
*)
    libc=
    for file in /lib/ld-musl-*; do [ -e "$file" ] && libc=musl; done
    ;;
esac
echo "libc $libc"
place=$dir
while [ -n "$place" ] && [ ! -e "$place" ]; do place=${{place%/*}}; done
[ -n "$place" ] || place=/
[ -w "$place" ] && echo "writable yes"
echo space $( (df -Pk "$place" || df -k "$place") 2>/dev/null)
command -v "$python" >/dev/null 2>&1 && "$python" -c '{PYTHON_FACTS}'
{FIND}
echo "path $found"
[ -n "$found" ] && echo "edgefold $("$found" --version 2>/dev/null)"
[ -n "$program" ] && [ -e "$dir/bin/$program" ] && echo "program yes"
exit 0
"""


@dataclass(frozen=True, slots=True)
class SeenBoard:
    """Holds what a board showed.

    Attributes:
        folder: Absolute path of its folder for edgefold, which need not exist.
        processor: As `uname -m` names it, such as aarch64.
        libc: "glibc 2.36", "musl", or "" where neither shows itself.
        python: Version of its Python; None where there is none.
        bits: Bits of an address in its Python, which may be 32 on a processor of 64.
        has_venv, has_ensurepip: Modules of its Python that make environments.
        is_writable: Whether this user may write in the folder or where it would be made.
        free_bytes: Free space there; None where `df` does not say.
        edgefold: Version that is there already; "" for none.
        path: Path of that edgefold.
    """

    folder: str
    processor: str
    libc: str
    python: tuple[int, ...] | None
    bits: int
    has_venv: bool
    has_ensurepip: bool
    is_writable: bool
    free_bytes: int | None
    edgefold: str
    path: str

    @property
    def python_processor(self) -> str:
        """Return the processor of wheels: that of Python, which may be of 32 bits on one of 64."""
        if self.bits == 32:
            narrow = {"aarch64": "armv7l", "armv8l": "armv7l", "x86_64": "i686"}
            return narrow.get(self.processor, self.processor)
        return {"arm64": "aarch64", "amd64": "x86_64"}.get(self.processor, self.processor)


def look_at(connection: Connection, folder: str, python: str, program: str = "") -> SeenBoard:
    """Look at a board; nothing is changed there.

    Args:
        connection: Open connection.
        folder: The board's folder, as the user named it.
        python: Name or path of the board's Python.
        program: Name of a program in the folder that is asked for.

    Raises:
        BoardFailedError: The line was lost, or the board has no `uname`.
    """
    text = connection.ask(LOOK, folder, python, program, doing="looking at the board")
    facts = dict(line.partition(" ")[::2] for line in text.splitlines())
    if not facts.get("processor"):
        raise BoardFailedError(
            f"{connection.address.text}: `uname -m` names no processor; install coreutils or "
            "busybox there."
        )
    version = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", facts.get("python", ""))
    return SeenBoard(
        folder=facts["folder"],
        processor=facts["processor"],
        libc=facts.get("libc", ""),
        python=tuple(map(int, version.groups())) if version else None,
        bits=int(facts.get("bits", "64")),
        has_venv=facts.get("venv") == "yes",
        has_ensurepip=facts.get("ensurepip") == "yes",
        is_writable=facts.get("writable") == "yes",
        free_bytes=_free_bytes(facts.get("space", "")),
        edgefold=facts.get("edgefold", "").removeprefix("edgefold ").strip(),
        path=facts.get("path", ""),
    )


def require_room(name: str, board: SeenBoard, n_bytes: int) -> None:
    """Refuse a folder that cannot be written, or has less free space than is needed.

    Raises:
        BoardFailedError: The folder is read-only for this user, or its disk is too full.
    """
    from edgefold.cli.text.numbers import format_bytes

    if not board.is_writable:
        raise BoardFailedError(
            f"{name}: {board.folder} was asked for and cannot be written by this user (read-only, "
            "or another's); choose a folder with --board-dir. Root is never needed."
        )
    if board.free_bytes is not None and board.free_bytes < n_bytes:
        raise BoardFailedError(
            f"{name}: {format_bytes(n_bytes)} are needed in {board.folder}, and its disk has "
            f"{format_bytes(board.free_bytes)} free; free some space there, or choose another "
            "place with --board-dir."
        )


def require_python(name: str, board: SeenBoard, python: str) -> None:
    """Refuse a board without Python, with one that is too old, or that makes no environment.

    Raises:
        BoardFailedError: One of these.
    """
    oldest = ".".join(map(str, OLDEST_PYTHON))
    advice = (
        f"install Python {oldest} or newer there, name another one with --python, or deploy a "
        "program that needs none (`edgefold build BUNDLE --program`, then --program FILE)"
    )
    if board.python is None:
        raise BoardFailedError(f"{name}: a wheel needs Python, and no {python} is there; {advice}.")
    if board.python < OLDEST_PYTHON:
        version = ".".join(map(str, board.python))
        raise BoardFailedError(
            f"{name}: a wheel needs Python {oldest} or newer, and {python} is {version}; {advice}."
        )
    if not board.has_venv:
        raise BoardFailedError(
            f"{name}: its {python} has no module venv, so no environment can be made; install it "
            "there (`apt install python3-venv`), or name another one with --python."
        )


def _free_bytes(table: str) -> int | None:
    """Return the free bytes from the words of `df -k`: what stands before the share in percent."""
    match = re.search(r"(\d+)\s+\d+%", table)
    return int(match[1]) * 1024 if match else None
