"""Scores that the papers state, in the form of `StreamingModel.published`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CELEBA = (32, 64, 128)
"""Pixels a side."""

Published = Mapping[str, Mapping[str, tuple[float, ...]]]
"""By task, and then by row."""


def as_published(
    gp: Mapping[str, tuple[float, float]],
    images: Mapping[str, Sequence[float | None]] | None = None,
) -> Published:
    """Log-likelihoods by task, of models under their papers' names; the model's own comes first.

    Args:
        gp: Of a target under RBF and Matern 5/2: table 4 of Feng et al. 2024 (constant memory
            attention), table 2 of Feng et al. 2023 (LBANP), or what the model names.
        images: Of a pixel, table 3 of Feng et al. 2024: CelebA of 32, 64 and 128 pixels, and
            EMNIST's seen and unseen classes. None where the authors could not run it.
    """
    found: dict[str, dict[str, tuple[float, ...]]] = {"gp": {}}
    for name, scores in gp.items():
        found["gp"][f"{name}, as published"] = scores
    for name, of_images in (images or {}).items():
        row = f"{name}, as published"
        for size, score in zip(CELEBA, of_images, strict=False):
            if score is not None:
                found.setdefault(f"celeba-{size}", {})[row] = (score,)
        emnist = [score for score in of_images[len(CELEBA) :] if score is not None]
        if emnist:
            found.setdefault("emnist", {})[row] = tuple(emnist)
    return found
