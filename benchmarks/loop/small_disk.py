"""A small disk for a loop: ext4 in a file, which can be full, read-only or cut off from its power.

It needs root and a free loop device; `small_disk` yields None without them.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHUTDOWN = 0x8004587D
"""ext4's ioctl EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)."""
WITHOUT_LOG = 2
"""Its flag EXT4_GOING_FLAGS_NOLOGFLUSH: what is not on the disk yet is lost, as by a power cut."""


class SmallDisk:
    """A file system of its own.

    Args:
        image: The file that holds it, which is made if it does not exist.
        place: The folder at which it is mounted, which is made too.
        n_bytes: Its size.
    """

    def __init__(self, image: Path, place: Path, n_bytes: int):
        self._image, self.place = image, place
        self._ballast = place / "ballast"
        place.mkdir(parents=True, exist_ok=True)
        if not image.exists():
            with image.open("wb") as file:
                file.truncate(n_bytes)
            _run("/sbin/mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        self.mount()

    def mount(self) -> None:
        """Mount it; a journal that was cut off is replayed."""
        _run("mount", "-o", "loop", str(self._image), str(self.place))

    def unmount(self) -> None:
        """Unmount it."""
        _run("umount", str(self.place))

    def fill(self) -> None:
        """Leave no free byte."""
        with self._ballast.open("wb") as file:
            free = os.statvfs(self.place)
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - (1 << 16)))
            try:
                while True:
                    os.write(file.fileno(), bytes(4096))
            except OSError:
                os.fsync(file.fileno())

    def free(self) -> None:
        """Undo `fill`."""
        self._ballast.unlink()
        os.sync()

    def set_read_only(self, is_read_only: bool) -> None:
        """Refuse every write, or no longer; no file may be open for writing."""
        _run("mount", "-o", f"remount,{'ro' if is_read_only else 'rw'}", str(self.place))

    def cut_power(self) -> None:
        """Refuse everything from now on, and forget what was not forced to the disk."""
        handle = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(handle)

    def return_power(self) -> None:
        """Mount it again after `cut_power`, once no process has a file open on it."""
        self.unmount()
        self.mount()


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[SmallDisk | None]:
    """Yield a small disk in a folder, mounted for as long; None where it cannot be made."""
    try:
        if os.geteuid() != 0:
            raise OSError("only root may mount a file system")
        disk = SmallDisk(folder / "disk.img", folder / "disk", n_bytes)
    except OSError:
        yield None
        return
    try:
        yield disk
    finally:
        disk.unmount()


def _run(*words: str) -> None:
    """Run a system's program; raise OSError with its message if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
