"""Read the memory of a process's control group, by which a container or a service is limited.

Which group: `/proc/self/cgroup` has a line `N:...memory...:/path` (version 1) or `0::/path`
(version 2, when no version 1 hierarchy holds the memory controller). Where it lies:
`/proc/self/mountinfo` names the mount; inside a container the mount shows a part of the tree only,
its root, which is then cut off the path. A group's figures hold its page cache and all its
processes, and a peak is since the group was made: for one process it is an upper bound.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.host import read_board
from edgefold.devices.sysfs import access_of, optional_text, read_text
from edgefold.runtime.errors import MeterError, Remedy

UNLIMITED = 1 << 62
"""Number of bytes from which on a limit means none: version 1 then writes a huge number."""


@dataclass(frozen=True, slots=True)
class CgroupNames:
    """Holds the names that one version of control groups gives to its files."""

    version: int
    current: str
    peak: str
    limit: str


V1 = CgroupNames(1, "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes")
V2 = CgroupNames(2, "memory.current", "memory.peak", "memory.max")

ENABLE = "cgroup_enable=memory"
FIRMWARE = Remedy(
    "memory of control groups: the firmware of a Raspberry Pi switches it off (the command works "
    "from the next boot on)",
    f"sudo sed -i '1s/$/ {ENABLE}/' /boot/firmware/cmdline.txt",
)
UPDATE = Remedy(
    f"memory of control groups: this kernel ignores {ENABLE}, as some 6.12 do "
    "(raspberrypi/linux issue 6980); a newer one does not",
    "sudo apt update && sudo apt full-upgrade",
)


class CgroupMemory:
    """Reads the memory of the control group of one process.

    Args:
        root: Folder that holds /proc and /sys; tests pass a recorded tree.
        pid: Process number, or "self".

    Attributes:
        names: Names of the files in `folder`, by the version of control groups.
        folder: The group's folder.
        name: Version and path of the group, for reports.

    Raises:
        MeterError: No group of this process accounts for memory; the message says why.
    """

    def __init__(self, root: Path = Path("/"), pid: int | str = "self") -> None:
        self.names, path = _membership(root / "proc" / str(pid) / "cgroup")
        mounts = root / "proc" / str(pid) / "mountinfo"
        self._top, self.folder = _locate(root, mounts, self.names.version, path)
        self.name = f"cgroup v{self.names.version} {path}"
        if not os.path.exists(self.folder / self.names.current):
            raise self._absent(root)

    def current_bytes(self) -> int:
        """Return the bytes that the group holds now.

        Raises:
            MeterError: The file cannot be read.
        """
        return _bytes(self.folder / self.names.current)

    def peak_bytes(self) -> int:
        """Return the most bytes that the group held since it was made.

        Raises:
            MeterError: The kernel keeps no peak, or the file cannot be read.
        """
        path = self.folder / self.names.peak
        if not os.path.exists(path):
            raise MeterError(f"{path} is missing: kernels before 5.19 keep no peak of a v2 group")
        return _bytes(path)

    def limit_bytes(self) -> int | None:
        """Return the tightest limit in bytes of the group and those above it; None is unlimited.

        Raises:
            MeterError: A file cannot be read.
        """
        limits = []
        for folder in (self.folder, *self.folder.parents):
            path = folder / self.names.limit
            if os.path.exists(path):  # a root group has none
                text = read_text(path)
                if text != "max" and (limit := _bytes(path)) < UNLIMITED:
                    limits.append(limit)
            if folder == self._top:
                break
        return min(limits, default=None)

    def shared_name(self) -> str:
        """Return the group's name, and how many other processes share the group and its peak."""
        listed = optional_text(self.folder / "cgroup.procs") or ""
        n_others = max(0, len(listed.split()) - 1)
        return f"{self.name}, shared with {n_others:,} other processes" if n_others else self.name

    def _absent(self, root: Path) -> MeterError:
        path = self.folder / self.names.current
        if self.folder == self._top and self.names.version == 2:
            why = "the process is in the root group, which is not accounted"
            return MeterError(f"{path} is missing: {why}")
        if not os.path.isdir(self.folder):
            return MeterError(f"{self.folder} cannot be seen ({access_of(self.folder)})")
        return MeterError(
            f"{path} is missing: the memory controller is not enabled for this group",
            controller_remedy(root),
        )


def controller_remedy(root: Path) -> Remedy | None:
    """Return the command that switches the memory controller on; None where none is known."""
    if not (read_board(root) or "").startswith("Raspberry Pi"):
        return None
    return UPDATE if ENABLE in (optional_text(root / "proc/cmdline") or "").split() else FIRMWARE


def _membership(path: Path) -> tuple[CgroupNames, str]:
    """Read /proc/PID/cgroup at `path`; return its version's file names, and the group's path."""
    unified = None
    for line in read_text(path).splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            return V1, group
        if not controllers:
            unified = group
    if unified is None:
        raise MeterError(f"{path} names no group with a memory controller: the kernel has it off")
    return V2, unified


def _locate(root: Path, mounts: Path, version: int, group: str) -> tuple[Path, Path]:
    """Return the hierarchy's mount point, and the group's folder at or below it.

    Args:
        root: Folder that stands for /.
        mounts: The file /proc/PID/mountinfo.
        version: Version of control groups, 1 or 2.
        group: Path of the group, as /proc/PID/cgroup has it.
    """
    for line in read_text(mounts).splitlines():
        fields, _, rest = line.partition(" - ")
        words, kind = fields.split(), rest.split()
        if len(words) < 5 or len(kind) < 3:
            continue
        if kind[0] != ("cgroup2" if version == 2 else "cgroup"):
            continue
        if version == 1 and "memory" not in kind[2].split(","):
            continue
        shown, top = _plain(words[3]), root / _plain(words[4]).lstrip("/")
        inside = group[len(shown) :] if shown != "/" and _lies_in(group, shown) else group
        return top, top / inside.lstrip("/")
    raise MeterError(f"{mounts} shows no cgroup v{version} mount with memory; mount /sys/fs/cgroup")


def _lies_in(group: str, shown: str) -> bool:
    return group == shown or group.startswith(f"{shown}/")


def _plain(field: str) -> str:
    """Decode a path of mountinfo, where blanks and the like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _bytes(path: Path) -> int:
    text = read_text(path)
    if not text.isdigit():
        raise MeterError(f"{path} holds {text[:40]!r} instead of a number of bytes")
    return int(text)
