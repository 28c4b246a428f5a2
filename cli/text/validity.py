"""Write as lines of text whether a measurement was disturbed."""

from __future__ import annotations

from typing import Any

MEANING = {
    "valid": "nothing lowered clocks or moved them, and no other program used the processor",
    "unknown": "nothing was seen, but this machine does not show everything",
    "unsteady": "clocks moved with the load, so the figures belong to no one clock",
    "disturbed": "measure again without what stands below before you compare",
}


def validity_lines(validity: dict[str, Any]) -> list[str]:
    """Return the verdict with its meaning, each reason, and what the machine does not show."""
    verdict = validity["verdict"]
    return [
        f"{verdict}: {MEANING[verdict]}",
        *validity["reasons"],
        *(f"not shown here: {what}" for what in validity["untold"]),
    ]
