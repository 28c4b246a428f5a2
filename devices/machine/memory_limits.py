"""Find out whether the kernel enforces memory limits, such as `MemoryMax=` of a service.

A kernel without the memory controller takes such a limit and says nothing. The firmware of a
Raspberry Pi boots with `cgroup_disable=memory`. Files that report it:

    cgroup.controllers   of the v2 hierarchy: what may be limited
    /proc/cgroups        a line `memory hierarchy groups enabled`; kernels from 6.12 on may leave it
                         out although v2 has the controller
"""

from __future__ import annotations

from pathlib import Path

from edgefold.devices.memory.cgroup import controller_remedy
from edgefold.devices.sysfs import optional_text
from edgefold.runtime.errors import MeterError

HIERARCHIES = ("sys/fs/cgroup", "sys/fs/cgroup/unified")  # v2 only, and v2 next to v1


def require_memory_limits(root: Path = Path("/")) -> str:
    """Return which control groups enforce limits of memory: "cgroup v1" or "cgroup v2".

    Args:
        root: Folder that holds /proc and /sys; tests pass a recorded tree.

    Raises:
        MeterError: The kernel enforces no limits (with a remedy where a command helps), or does not
            show whether it does.
    """
    lists = [optional_text(root / place / "cgroup.controllers") for place in HIERARCHIES]
    if any("memory" in (names or "").split() for names in lists):
        return "cgroup v2"
    table = optional_text(root / "proc/cgroups")
    rows = [line.split() for line in (table or "").splitlines()]
    if ["memory", "1"] in [[row[0], row[-1]] for row in rows if row]:
        return "cgroup v1"
    if table is None and not any(lists):
        raise MeterError("neither /proc/cgroups nor cgroup.controllers tells of memory limits")
    raise MeterError(
        "the kernel has no memory controller, so MemoryMax= of a service and a container's limit "
        "are taken and not enforced",
        controller_remedy(root),
    )
