"""Read the Linux release and the power mode of a Jetson. Nothing is set.

nvpmodel keeps the mode that was chosen last in /var/lib/nvpmodel/status (`pmode:0002`), and the
list of modes, with the one taken when none was chosen, in /etc/nvpmodel.conf. The numbers are not
in the order of speed: on an Orin Nano Super, 0 is 15 W, 2 has no limit, 3 is 7 W.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgefold.devices.host import Runner, optional_answer
from edgefold.devices.sysfs import optional_text
from edgefold.runtime.record_fields import Index, Shared

JETPACK = {32: "4", 34: "5", 35: "5", 36: "6", 38: "7", 39: "7"}
"""Major version of JetPack by major version of Jetson Linux, from NVIDIA's JetPack archive."""


@dataclass(frozen=True, slots=True)
class ActivePowerMode:
    """Describes the power mode that a Jetson is in; null on other machines."""

    mode: Annotated[Index, "Number of the mode in force, for nvpmodel."]
    name: Annotated[str | None, "Its name."]
    choices: Annotated[
        dict[int, Annotated[str, "Name of a mode."]], "Names of all modes by their numbers."
    ]

    def fastest(self) -> int | None:
        """Return the number of the fastest mode by its name; None if no name shows its speed.

        MAXN, which has no limits, comes first; then the mode of the most watts and cores.
        """
        best = max(self.choices, key=lambda mode: _rank(self.choices[mode]), default=None)
        return best if best is not None and any(_rank(self.choices[best])) else None


PowerMode = Annotated[ActivePowerMode | None, Shared("power_mode")]


@dataclass(frozen=True, slots=True)
class JetsonRelease:
    """Describes the software of a Jetson: its releases of Jetson Linux and of JetPack."""

    linux: Annotated[str, "Release of Jetson Linux, such as R36.4.3."]
    jetpack: Annotated[str | None, "Major version of JetPack."]


def read_release(root: Path = Path("/")) -> JetsonRelease | None:
    """Return the software release of a Jetson; None on other machines."""
    match = re.match(
        r"# R(\d+) \(release\), REVISION: ([\d.]+)",
        optional_text(root / "etc/nv_tegra_release") or "",
    )
    if match is None:
        return None
    return JetsonRelease(f"R{match[1]}.{match[2]}", JETPACK.get(int(match[1])))


def read_power_mode(root: Path = Path("/"), run: Runner | None = None) -> ActivePowerMode | None:
    """Return the power mode of a Jetson; None on machines without nvpmodel.

    Args:
        root: Folder that holds /etc and /var.
        run: Runs nvpmodel where it has written no status file; None does not run it.
    """
    conf = "\n".join(
        line
        for line in (optional_text(root / "etc/nvpmodel.conf") or "").splitlines()
        if not line.startswith("#")
    )
    pairs = re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=([^\s>]+)", conf)
    choices = {int(mode): name for mode, name in pairs}
    said = optional_answer(run, "nvpmodel", "-q") if run and choices else ""
    status = re.search(
        r"pmode:(\d+)", optional_text(root / "var/lib/nvpmodel/status") or ""
    ) or re.search(r"^\s*(\d+)\s*$", said, re.MULTILINE)
    chosen = status or re.search(r"<\s*PM_CONFIG\s+DEFAULT=(\d+)", conf)
    if chosen is None:
        return None
    return ActivePowerMode(int(chosen[1]), choices.get(int(chosen[1])), choices)


def _rank(name: str) -> tuple[int, int, int]:
    """Return a key that is larger for a faster mode; zeros for a name that shows no speed.

    Its parts are the length of a name MAXN or MAXN_SUPER, the watts, and the number of cores.
    """
    if name.startswith("MAXN"):
        return len(name), 0, 0
    watts, cores = (re.search(rf"(\d+){unit}", name) for unit in ("W", "CORE"))
    return 0, int(watts[1]) if watts else 0, int(cores[1]) if cores else 0
