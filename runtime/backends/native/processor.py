"""Identify this machine's processor, as far as compiled code depends on it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

READ_BYTES = 1 << 16  # the first cores of some hundreds; all of them are alike where it matters
MODEL = ("model name", "Model", "uarch")
PARTS = ("CPU implementer", "CPU part")
FEATURES = ("flags", "Features", "isa")


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor as /proc/cpuinfo describes it.

    Attributes:
        architecture: The name that `platform.machine()` returns.
        model: The processor's name, on Arm with the parts of its cores; "" where the kernel shows
            none.
        features: Names of its instruction sets and other abilities.
    """

    architecture: str
    model: str
    features: frozenset[str]

    def __str__(self) -> str:
        return f"{self.model or 'an unnamed processor'} ({self.architecture})"


def read_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    """Read the facts of this machine's processor; facts that the kernel hides stay empty."""
    try:
        with cpuinfo.open(errors="replace") as file:
            text = file.read(READ_BYTES)
    except OSError:
        text = ""
    entries = re.findall(r"^([^\t\n:]+?)\s*: *(.+)$", text, re.MULTILINE)
    names = [value for key, value in entries if key in MODEL][:1]
    parts = [sorted({value for key, value in entries if key == name}) for name in PARTS]
    features = next((value for key, value in entries if key in FEATURES), "")
    model = " ".join([*names, *("/".join(part) for part in parts if part)])
    return Processor(os.uname().machine, model, frozenset(re.split(r"[\s_]+", features)) - {""})
