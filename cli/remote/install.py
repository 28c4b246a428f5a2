"""Install a wheel of edgefold on a board, into an environment of its own next to the former ones.

    wheels ──> .wheels/ ──pip──> environments/VERSION-HASH/ ──check──> bin/edgefold

`bin/edgefold` is a script of two lines that starts the chosen environment. It is replaced as a
whole when the check has passed, so a deployment that breaks off leaves the former edgefold in use.
"""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefold.cli.remote.board import SeenBoard
from edgefold.cli.remote.connection import IN_FOLDER, WATCHED, Connection
from edgefold.cli.remote.copy import (
    EXECUTABLE,
    FileToCopy,
    file_to_copy,
    send,
    text_to_copy,
)
from edgefold.cli.remote.ssh_errors import board_failure
from edgefold.cli.remote.wheels import Wheel
from edgefold.runtime.errors import BoardFailedError
from edgefold.runtime.hashing import sha256

WHEELS = ".wheels"
MISSING = "No matching distribution found for "
"""Words that pip prints before a requirement for which it has no wheel."""
UNPACKED = 5  # a wheel of numpy takes some four times its bytes when it is installed
EXECUTE = f"""{IN_FOLDER}
{WATCHED}"""
IN_WHEELS = f"""{IN_FOLDER}
cd "$dir/{WHEELS}" || exit 1
{WATCHED}"""
"""Runs pip among the wheels, because it cannot read every path in what it is asked for."""
IS_WHOLE = f"""{IN_FOLDER}
[ -e "$dir/environments/$1/.whole" ] && echo yes
exit 0
"""
CLEAR = f"""{IN_FOLDER}
mkdir -p "$dir/environments" && exec rm -rf "$dir/environments/$1"
"""
FINISH = f"""{IN_FOLDER}
: >"$dir/environments/$1/.whole" && exec rm -rf "$dir/{WHEELS}"
"""
REMOVE_UNUSED = f"""{IN_FOLDER}
cd "$dir/environments" 2>/dev/null || exit 0
for one in *; do
    kept=no
    for name in "$dir/bin/edgefold" "$dir/bin/edgefold.previous"; do
        [ -e "$name" ] && case $(cat "$name") in *"/environments/$one/"*) kept=yes ;; esac
    done
    [ "$kept" = yes ] || rm -rf "./$one"
done
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """Describes what is installed: the wheels, and how pip is called.

    Attributes:
        wheels: The wheel of edgefold, then the others that the board gets.
        extras: Extras of edgefold, such as "cpu".
        is_offline: Whether pip takes only these wheels, and no network is needed.
        sees_system: Whether the environment has the system's packages too.
        python: Name or path of the board's Python.
    """

    wheels: tuple[Wheel, ...]
    extras: tuple[str, ...]
    is_offline: bool
    sees_system: bool
    python: str

    @property
    def version(self) -> str:
        """Return the version of edgefold."""
        return self.wheels[0].version

    @property
    def n_bytes(self) -> int:
        """Return the bytes that it needs on the board at most, as estimated from the wheels."""
        return UNPACKED * sum(wheel.path.stat().st_size for wheel in self.wheels)

    def files(self) -> list[FileToCopy]:
        """Return the wheels as files to copy."""
        return [file_to_copy(wheel.path) for wheel in self.wheels]

    def name(self, files: Sequence[FileToCopy]) -> str:
        """Return the name of the environment, which is another one for other wheels or options."""
        facts = [file.sha256 for file in files]
        facts += [*self.extras, str(self.sees_system), self.python]
        return f"{self.version}-{sha256(' '.join(facts).encode()).hexdigest()[:8]}"


def is_installed(connection: Connection, folder: str, name: str) -> bool:
    """Return whether an environment is on the board and whole."""
    return connection.ask(IS_WHOLE, folder, name, doing="looking for edgefold").strip() == "yes"


def install(
    connection: Connection,
    board: SeenBoard,
    installation: Installation,
    show: Callable[[str], None],
) -> str:
    """Make the environment on the board, if it is not there, and return its path.

    Raises:
        BoardFailedError: The line was lost, no environment can be made, or pip failed.
    """
    files, folder = installation.files(), board.folder
    name = installation.name(files)
    environment = f"{folder}/environments/{name}"
    if not is_installed(connection, folder, name):
        pip = None if board.has_ensurepip else _pip_of_here(connection.address.text, installation)
        wheels = files if pip is None or pip in files else [*files, pip]
        send(connection, folder, WHEELS, wheels, show)
        show("makes an environment")
        connection.ask(CLEAR, folder, name, doing="making an environment")
        _make(connection, folder, environment, installation, pip)
        show(f"installs edgefold {installation.version}")
        _install(connection, folder, environment, installation)
        connection.ask(FINISH, folder, name, doing="installing edgefold")
    return environment


def launcher(environment: str) -> FileToCopy:
    """Return the script `edgefold` that starts the edgefold of an environment.

    The script of pip is given to Python by name, because its own first line cannot hold every path.
    """
    python, script = (shlex.quote(f"{environment}/bin/{name}") for name in ("python", "edgefold"))
    return text_to_copy(f'#!/bin/sh\nexec {python} {script} "$@"\n', "edgefold", EXECUTABLE)


def remove_unused(connection: Connection, folder: str) -> None:
    """Remove environments that neither the present nor the former `bin/edgefold` starts."""
    connection.ask(REMOVE_UNUSED, folder, doing="removing old environments")


def _make(
    connection: Connection,
    folder: str,
    environment: str,
    installation: Installation,
    pip: FileToCopy | None,
) -> None:
    """Make an empty environment with pip; a Python without ensurepip gets the pip of here."""
    words = [installation.python, "-m", "venv"]
    words += ["--system-site-packages"] if installation.sees_system else []
    words += ["--without-pip"] if pip else []
    _execute(connection, folder, [*words, environment], "making an environment")
    if pip:
        python, wheel = f"{environment}/bin/python", f"{folder}/{WHEELS}/{pip.name}"
        words = [python, f"{wheel}/pip", "install", "--quiet", "--no-index", wheel]
        _execute(connection, folder, words, "installing pip")


def _install(
    connection: Connection, folder: str, environment: str, installation: Installation
) -> None:
    wheel = f"./{installation.wheels[0].path.name}"
    extras = f"[{','.join(installation.extras)}]" if installation.extras else ""
    words = [f"{environment}/bin/python", "-m", "pip", "install", "--quiet", "--no-input"]
    words += ["--disable-pip-version-check"]
    words += ["--no-index"] if installation.is_offline else []
    words += ["--find-links", ".", f"{wheel}{extras}"]
    answer = connection.run(IN_WHEELS, folder, *words, doing="installing edgefold")
    if answer.code == 0:
        return
    name = connection.address.text
    _, is_missing, requirement = answer.messages.rpartition(MISSING)
    if is_missing:
        needed = requirement.splitlines()[0]
        where = "the folder of wheels" if installation.is_offline else "the board's network"
        raise BoardFailedError(
            f"{name}: installing edgefold needs {needed}, and {where} has none "
            "for this board; put its wheel into the folder that --wheel names (`pip download`), "
            "or install the system's package there and give --system-site-packages."
        )
    raise board_failure(name, "installing edgefold", answer.code, answer.messages)


def _execute(connection: Connection, folder: str, words: Sequence[str], doing: str) -> None:
    connection.ask(EXECUTE, folder, *words, doing=doing)


def _pip_of_here(name: str, installation: Installation) -> FileToCopy | None:
    """Return the wheel of pip that a board without ensurepip gets; None if one is sent anyway.

    Raises:
        BoardFailedError: No wheel of pip is at hand.
    """
    theirs = [wheel for wheel in installation.wheels if wheel.name == "pip"]
    bundled = Path(getattr(importlib.util.find_spec("ensurepip"), "origin", None) or "/").parent
    places = (bundled / "_bundled", Path("/usr/share/python-wheels"))
    paths = [wheel.path for wheel in theirs]
    paths += [path for place in places for path in sorted(place.glob("pip-*.whl"))]
    if not paths:
        raise BoardFailedError(
            f"{name}: its Python has no ensurepip, and no wheel of pip is here; install it there "
            "(`apt install python3-venv`), or put pip's wheel into the folder that --wheel names."
        )
    return file_to_copy(paths[0])
