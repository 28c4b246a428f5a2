"""Settings with which the papers trained their neural processes.

Adam at a rate of 5e-4 that falls as a cosine, 100,000 steps of 16 tasks: Nguyen & Grover 2022, and
Feng et al. 2023, 2024, whose code follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PAPER_TRAINING: Final[Mapping[str, Mapping[str, Any]]] = {
    "paper": {"steps": 100_000, "learning_rate": 5e-4}
}
"""`training_defaults` of a model whose preset `paper` is trained so."""
