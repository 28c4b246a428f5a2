"""The papers' log-likelihoods, and the order of the models that they state.

The log-likelihoods stand with the models (`StreamingModel.published`).
"""

from __future__ import annotations

from typing import Final

from edgefold.train.models.registry import learners, model_class

SOURCES: Final = {
    "gp": {"gp": 2},
    "images": {"celeba-32": 1, "celeba-64": 1, "celeba-128": 1, "emnist": 2},
}
"""By task, keys of `StreamingModel.published` and their scores: together a row of `COLUMNS`."""


def published(task: str) -> dict[str, list[float | None]]:
    """The papers' row of each model, None where they have no figure."""
    found = {}
    for name in learners():
        row: list[float | None] = []
        for source, n_columns in SOURCES[task].items():
            rows = model_class(name).published.get(source, {})
            scores = next(iter(rows.values()), ())
            row += (*scores, *(None,) * (n_columns - len(scores)))
        found[name] = row
    return found


def order(task: str) -> list[tuple[str, str]]:
    """Pairs whose second model is to be at least as good: of images those that the papers state."""
    rows = published(task)

    def is_stated(first: str, second: str) -> bool:
        pairs = zip(rows[first], rows[second], strict=True)
        both = [(low, high) for low, high in pairs if low is not None and high is not None]
        return bool(both) and all(low <= high for low, high in both)

    return [pair for pair in ORDER if task == "gp" or is_stated(*pair)]


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
"""Demands of the project on gp: the second model is at least as good as the first."""

ALIKE: Final = (("lbanp", "cmanp"),)
"""These two score alike: at most `ALIKE_NATS` apart. In the papers they are 0.03 and 0.05 apart."""
ALIKE_NATS: Final = 0.1
