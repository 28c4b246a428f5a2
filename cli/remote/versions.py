"""Put what was copied in the place of what was there, keep that as the previous one, go back to it.

    bundles/NAME   <── bundles/.NAME.new       bundles/NAME.previous
    bin/NAME       <── .incoming/NAME          bin/NAME.previous

A file is replaced by one rename, so at any moment it is the old or the new one. A folder takes two
renames; a board that loses its power between them has the old one whole as NAME.previous, and the
next deployment goes on from there. A hang-up does not stop a script between them.
"""

from __future__ import annotations

from edgefold.cli.remote.connection import IN_FOLDER, Connection
from edgefold.cli.remote.ssh_errors import board_failure
from edgefold.runtime.errors import BoardError

INCOMING = ".incoming"
NOTHING = 3
SWITCH_FOLDER = f"""{IN_FOLDER}
trap '' HUP
cd "$dir/bundles" || exit 1
name=$1
[ -e "./.$name.new" ] || exit 1
if [ -e "./$name" ]; then
    rm -rf "./.$name.older"
    if [ -e "./$name.previous" ]; then mv "./$name.previous" "./.$name.older" || exit 1; fi
    mv "./$name" "./$name.previous" || exit 1
fi
mv "./.$name.new" "./$name" && exec rm -rf "./.$name.older"
"""
SWITCH_FILE = f"""{IN_FOLDER}
trap '' HUP
name=$1
mkdir -p "$dir/bin" && cd "$dir/bin" || exit 1
if [ -e "./$name" ]; then
    rm -rf ../.former && mkdir ../.former && tar cf ../.former/tar "./$name" || exit 1
    (cd ../.former && tar xf tar) || exit 1
    mv -f "../.former/$name" "./$name.previous" || exit 1
fi
mv -f "../{INCOMING}/$name" "./$name" && exec rm -rf ../.former "../{INCOMING}"
"""
BACK = f"""{IN_FOLDER}
trap '' HUP
cd "$dir/$1" 2>/dev/null || exit {NOTHING}
name=$2
[ -e "./$name.previous" ] || exit {NOTHING}
rm -rf "./.$name.swap"
if [ -e "./$name" ]; then mv "./$name" "./.$name.swap" || exit 1; fi
mv "./$name.previous" "./$name" || exit 1
if [ -e "./.$name.swap" ]; then mv "./.$name.swap" "./$name.previous"; fi
"""


def new_place(name: str) -> str:
    """Return the place in the board's folder where a new bundle waits for its check."""
    return f"bundles/.{name}.new"


def switch_bundle(connection: Connection, folder: str, name: str) -> None:
    """Make the new bundle the bundle of its name, and the former one the previous one."""
    connection.ask(SWITCH_FOLDER, folder, name, doing=f"switching to the new {name}")


def switch_file(connection: Connection, folder: str, name: str) -> None:
    """Make an incoming file the one in `bin`, and the former one the previous one."""
    connection.ask(SWITCH_FILE, folder, name, doing=f"switching to the new {name}")


def go_back(connection: Connection, folder: str, place: str, name: str) -> None:
    """Exchange a bundle or a file with the previous one.

    Args:
        connection: Open connection.
        folder: The board's folder.
        place: "bundles" or "bin".
        name: Name of the bundle or of the file.

    Raises:
        BoardError: There is no previous one.
    """
    doing = f"going back to the previous {name}"
    answer = connection.run(BACK, folder, place, name, doing=doing)
    if answer.code == NOTHING:
        raise BoardError(
            f"{connection.address.text} was asked to go back to the previous {name}, and has none "
            f"in {folder}/{place}; deploy the version that you want."
        )
    if answer.code:
        raise board_failure(connection.address.text, doing, answer.code, answer.messages)
