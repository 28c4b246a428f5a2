"""Find a bundle on a board, or bring it there for one command and remove it afterwards.

    a shipped bundle's word ──────────────> the same word: the board's edgefold has it
    bundles/NAME there has the same bytes ─> its path
    else ────────────────────────────────> a copy, which is removed when the command has ended

What `edgefold deploy` put under the name is never replaced here, as a loop may run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefold.cli.remote.connection import IN_FOLDER, Connection
from edgefold.cli.remote.copy import FileToCopy, files_of_bundle, is_same_there, remove, send
from edgefold.runtime.errors import BoardError
from edgefold.runtime.sensors.shipped_bundle import word_of

WHERE = f"""{IN_FOLDER}
printf '%s\\n' "$dir"
"""


class BundleToUse:
    """Holds a bundle of this machine that commands on boards shall use; its files are read once.

    Args:
        bundle: Folder of the bundle here; that of a shipped bundle stands for its word.

    Raises:
        BundleError: The folder is not a bundle, or is damaged.
    """

    def __init__(self, bundle: str):
        word = word_of(bundle)
        self.word = word if word != bundle else None
        self.name = self.word or Path(bundle).resolve().name
        self.files: Sequence[FileToCopy] = [] if self.word else files_of_bundle(Path(bundle))

    @property
    def place(self) -> str:
        """Return the bundle's place in a board's folder."""
        return f"bundles/{self.name}"


@contextmanager
def bundle_there(
    connection: Connection, folder: str, bundle: BundleToUse, show: Callable[[str], None]
) -> Iterator[str]:
    """Give the word or the absolute path that names a bundle on a board, for a `with` block.

    Args:
        connection: Open connection.
        folder: The board's folder, an absolute path.
        bundle: Bundle of this machine.
        show: Gets the progress of a copy.

    Raises:
        BoardFailedError: The line was lost, or the board has no room.
    """
    if bundle.word:
        yield bundle.word
        return
    if is_same_there(connection, folder, bundle.place, bundle.files):
        yield f"{folder}/{bundle.place}"
        return
    digits = next(file.sha256 for file in bundle.files if file.name == "manifest.json")
    place = f"bundles/.{bundle.name}.{digits[:12]}"
    try:
        send(connection, folder, place, bundle.files, show)
        yield f"{folder}/{place}"
    finally:
        with suppress(BoardError):  # the line is gone; the next copy to this place removes it
            remove(connection, folder, place)


def folder_there(connection: Connection, folder: str) -> str:
    """Return the absolute path of the board's folder, which the user named from the home on."""
    where = connection.ask(WHERE, folder, doing="finding the user's home")
    return where.rstrip("\n")
