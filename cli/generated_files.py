"""Write the text files that `edgefold build` generates, and replace only files that it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from edgefold.runtime.errors import OutputError
from edgefold.runtime.files import write_atomic

MARK = "Written by `edgefold build`, which replaces this file when it runs again."
"""Stands in the first lines of every file that is written; a file without it is somebody else's."""
HEAD_BYTES = 300
COMMENTS = {
    **dict.fromkeys((".c", ".h", ".ino", ".cpp"), "/* {} */\n"),
    ".md": "<!-- {} -->\n",
    ".sql": "-- {}\n",
    ".json": "",  # has no comments: its text holds the mark
}
"""How a comment on a line of its own is written, by the ending of the file's name."""


def marked(files: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files as bytes by name, each begun with a comment that this command wrote it."""
    return {name: f"{_comment(name)}{text}".encode() for name, text in files.items()}


def _comment(name: str) -> str:
    return COMMENTS.get(PurePosixPath(name).suffix, "# {}\n").format(MARK)


def require_own(folder: Path, names: Iterable[str]) -> None:
    """Refuse to replace a file that this command did not write, such as a main.c of the user's."""
    for path in (folder / name for name in names):
        if not path.exists() and not path.is_symlink():
            continue
        if not (path.is_file() and MARK.encode() in path.read_bytes()[:HEAD_BYTES]):
            raise OutputError(
                f"{path} exists, and `edgefold build` did not write it; give another --out, or "
                "move it away. Nothing was written."
            )


def write_files(folder: Path, files: Mapping[str, bytes], mode: int | None = None) -> None:
    """Write files into a folder, and print a line for each."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / name, data, mode=mode)
        print(f"written  {folder / name}")
