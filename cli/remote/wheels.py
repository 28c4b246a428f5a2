"""Choose, by their names, the wheels that a board can install.

edgefold-0.2.0-py3-none-manylinux_2_17_aarch64.musllinux_1_2_aarch64.whl
name     version Python ABI platforms, any one of which suffices
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefold.cli.remote.board import SeenBoard
from edgefold.runtime.errors import BoardError

PRODUCT = "edgefold"
OLD_TAGS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}


@dataclass(frozen=True, slots=True)
class Wheel:
    """Holds a wheel's file and what its name says: name, version, and tags."""

    path: Path
    name: str
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]

    @property
    def is_for_any(self) -> bool:
        """Return whether it has no code for a processor."""
        return "any" in self.platforms

    def fits(self, board: SeenBoard) -> bool:
        """Return whether a board's Python can install it."""
        return _fits_python(self, board) and any(
            _fits_platform(platform, board) for platform in self.platforms
        )


def read_wheel(path: Path) -> Wheel | None:
    """Read the name of a wheel's file; None for a file that is none."""
    parts = path.name.removesuffix(".whl").split("-")
    if path.suffix != ".whl" or len(parts) not in (5, 6):
        return None
    tags = [tuple(part.split(".")) for part in parts[-3:]]
    name = re.sub(r"[-_.]+", "-", parts[0]).lower()
    return Wheel(path, name, parts[1], *tags)


def read_wheels(path: Path) -> list[Wheel]:
    """Return the wheel of a file, or the wheels of a folder.

    Raises:
        OSError: The path is not there.
        BoardError: It is no wheel, or a folder without a wheel of edgefold.
    """
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    wheels = [wheel for one in paths if (wheel := read_wheel(one))]
    path.stat()
    if not any(wheel.name == PRODUCT for wheel in wheels):
        raise BoardError(
            f"{path} was given as a wheel of edgefold, or as a folder that has one, and is "
            "neither; `make wheels` in a clone writes them into dist/."
        )
    return wheels


def choose_wheels(wheels: Sequence[Wheel], board: SeenBoard, name: str) -> list[Wheel]:
    """Return what a board gets: the newest edgefold that fits, then every other wheel that fits.

    Args:
        wheels: Wheels of this machine.
        board: What the board showed.
        name: The board's address, for the error.

    Raises:
        BoardError: No wheel of edgefold is for this board.
    """
    ours = [wheel for wheel in wheels if wheel.name == PRODUCT]
    candidates = [wheel for wheel in ours if wheel.fits(board)]
    if not candidates:
        shown = ", ".join(wheel.path.name for wheel in ours[:3])
        raise BoardError(
            f"{name} has {board.python_processor} with {board.libc or 'an unknown C library'} and "
            f"Python {'.'.join(map(str, board.python or ()))}, and {shown} is not for it; give the "
            "wheel whose name ends in this processor, or a folder that has it (docs/install.md)."
        )
    best = max(candidates, key=lambda wheel: (_numbers(wheel.version), not wheel.is_for_any))
    return [best, *(w for w in wheels if w.name != PRODUCT and w.fits(board))]


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def _fits_python(wheel: Wheel, board: SeenBoard) -> bool:
    major, minor = (board.python or (0, 0))[:2]
    for tag in wheel.pythons:
        match = re.fullmatch(r"(py|cp)(\d)(\d*)", tag)
        if not match or int(match[2]) != major:
            continue
        if not match[3] or (match[1] == "py" and int(match[3]) <= minor):
            return True
        if "abi3" in wheel.abis and int(match[3]) <= minor:
            return True
        if int(match[3]) == minor and {"none", "abi3", f"cp{major}{minor}"} & {*wheel.abis}:
            return True
    return False


def _fits_platform(tag: str, board: SeenBoard) -> bool:
    if tag == "any":
        return True
    processor = board.python_processor
    if tag == f"linux_{processor}":
        return True
    match = re.fullmatch(rf"(manylinux|musllinux)_(\d+)_(\d+)_{re.escape(processor)}", tag)
    kind = match[1] if match else "manylinux"
    needed = (int(match[2]), int(match[3])) if match else None
    for old, version in OLD_TAGS.items():
        needed = version if tag == f"{old}_{processor}" else needed
    if needed is None:
        return False
    if kind == "musllinux":
        return board.libc == "musl"
    there = _numbers(board.libc)
    return "glibc" in board.libc and tuple(there) >= needed
