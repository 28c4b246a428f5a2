"""Identify this machine's processor by the facts on which compiled code depends."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

READ_BYTES = 1 << 16  # the first cores of some hundreds; all of them are alike where it matters
MODEL = ("model name", "Model", "uarch")
PARTS = ("CPU implementer", "CPU part")
ISA = "isa"  # RISC-V's, whose extensions are joined by underscores; flags of x86 have some inside
FEATURES = ("flags", "Features", ISA)


@dataclass(frozen=True, slots=True)
class Processor:
    """Describes a processor with the facts from /proc/cpuinfo.

    Attributes:
        architecture: The name that `platform.machine()` returns, such as "aarch64".
        model: The processor's name, on Arm followed by the implementers and part numbers of its
            cores; "" where the kernel shows none of them.
        features: Names of the processor's instruction sets and other abilities.
    """

    architecture: str
    model: str
    features: frozenset[str]

    def __str__(self) -> str:
        return f"{self.model or 'an unnamed processor'} ({self.architecture})"


def read_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    """Read the facts of this machine's processor; a fact that the kernel hides is empty."""
    try:
        with cpuinfo.open(errors="replace") as file:
            text = file.read(READ_BYTES)
    except OSError:
        text = ""
    entries = re.findall(r"^([^\t\n:]+?)\s*: *(.+)$", text, re.MULTILINE)
    names = [value for key, value in entries if key in MODEL][:1]
    parts = [sorted({value for key, value in entries if key == name}) for name in PARTS]
    key, features = next(((key, value) for key, value in entries if key in FEATURES), ("", ""))
    words = re.split(r"[\s_]+" if key == ISA else r"\s+", features)
    model = " ".join([*names, *("/".join(part) for part in parts if part)])
    return Processor(os.uname().machine, model, frozenset(words) - {""})
