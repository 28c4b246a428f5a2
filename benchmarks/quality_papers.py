"""The papers' log-likelihoods, and the order of the models that they state.

gp        Feng et al. 2024 (CMANP), table 4; EQTNP and TNP-A: Feng et al. 2023 (LBANP), table 2
images    Feng et al. 2024, table 3
"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = {
    "gp": {"rbf": "RBF", "matern52": "Matern 5/2"},
    "images": {
        "celeba32": "CelebA 32",
        "celeba64": "CelebA 64",
        "celeba128": "CelebA 128",
        "seen": "EMNIST, seen",
        "unseen": "EMNIST, unseen",
    },
}
"""The papers' columns by task: names of our scores where we have the same, and titles."""

PUBLISHED: Final[dict[str, dict[str, tuple[float | None, ...]]]] = {
    "gp": {
        "cnp": (0.26, 0.04),
        "canp": (0.79, 0.62),
        "np": (0.27, 0.07),
        "anp": (0.81, 0.63),
        "bnp": (0.38, 0.18),
        "banp": (0.82, 0.66),
        "tnp-d": (1.39, 0.95),
        "eqtnp": (1.32, 0.92),
        "lbanp": (1.27, 0.85),
        "cmanp": (1.24, 0.80),
        "tnp-nd": (1.46, 1.02),
        "tnp-a": (1.63, 1.21),
        "lbanp-nd": (1.24, 0.78),
        "cmanp-and": (1.48, 0.96),
    },
    "images": {
        "cnp": (2.15, 2.43, 2.55, 0.73, 0.49),
        "canp": (2.66, 3.15, None, 0.94, 0.82),
        "np": (2.48, 2.60, 2.67, 0.79, 0.59),
        "anp": (2.90, None, None, 0.98, 0.89),
        "bnp": (2.76, 2.97, None, 0.88, 0.73),
        "banp": (3.09, None, None, 1.01, 0.94),
        "tnp-d": (3.89, 5.41, None, 1.46, 1.31),
        "lbanp": (3.97, 5.09, 5.84, 1.39, 1.17),
        "cmanp": (3.93, 5.02, 5.55, 1.36, 1.09),
        "tnp-nd": (5.48, None, None, 1.50, 1.31),
        "lbanp-nd": (5.57, None, None, 1.42, 1.14),
        "cmanp-and": (6.31, 6.96, 7.15, 1.48, 1.19),
    },
}
"""A row for each model; None where the authors could not run it."""

ORDER: Final = (
    ("cnp", "canp"),
    ("cnp", "anp"),
    ("canp", "lbanp"),
    ("anp", "lbanp"),
    ("canp", "cmanp"),
    ("anp", "cmanp"),
    ("lbanp", "tnp-d"),
    ("cmanp", "tnp-d"),
    ("tnp-d", "tnp-nd"),
    ("lbanp", "lbanp-nd"),
    ("lbanp", "lbanp-end"),
    ("cmanp", "cmanp-and"),
)
"""The second model is at least as good as the first."""

ALIKE: Final = (("lbanp", "cmanp"),)
"""These two score alike: at most `ALIKE_NATS` apart. In the papers they are 0.03 and 0.05 apart."""
ALIKE_NATS: Final = 0.1
