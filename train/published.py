"""Keep the scores that papers state for their models, in the form of `StreamingModel.published`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CELEBA = (32, 64, 128)
"""Pixels a side of the CelebA images for which scores are published."""

Published = Mapping[str, Mapping[str, tuple[float, ...]]]
"""Scores in the order of the paper's columns, by task and then by the name of the model."""


SEQUENCES: Published = {
    "gtzan": {
        "Att, 1 layer": (93.12, 5.44),
        "Att, 2 layers": (94.32, 4.31),
        "AttCo, 1 layer": (93.16, 5.39),
        "AttCo, 2 layers": (94.52, 4.05),
        "AttNy-4, 1 layer": (93.54, 4.26),
        "AttNy-4, 2 layers": (93.92, 4.43),
        "AttNyFix-4, 1 layer": (93.24, 5.30),
        "AttNyFix-4, 2 layers": (93.76, 5.14),
        "AttCoNyCont-4, 1 layer": (92.92, 5.43),
        "AttCoNyCont-4, 2 layers": (93.54, 4.91),
        "AttCoNyFix-4, 1 layer": (90.76, 5.52),
        "AttCoNyFix-4, 2 layers": (92.36, 5.52),
    },
    "thumos14-kinetics": {
        "Att, 1 layer": (64.32, 0.66, 98.27, 0.05),
        "Att, 2 layers": (64.66, 0.30, 98.28, 0.06),
        "AttCo, 1 layer": (63.89, 0.14, 98.33, 0.05),
        "AttCo, 2 layers": (63.93, 0.43, 98.34, 0.02),
        "AttNy-16, 1 layer": (59.74, 0.29, 97.72, 0.03),
        "AttNy-16, 2 layers": (59.32, 0.23, 97.72, 0.04),
        "AttNyFix-16, 1 layer": (56.77, 0.51, 97.46, 0.11),
        "AttNyFix-16, 2 layers": (53.80, 2.19, 97.28, 0.29),
        "AttCoNyCont-16, 1 layer": (60.03, 0.33, 97.70, 0.03),
        "AttCoNyCont-16, 2 layers": (59.30, 0.39, 97.64, 0.07),
        "AttCoNyFix-16, 1 layer": (55.48, 0.26, 97.21, 0.07),
        "AttCoNyFix-16, 2 layers": (52.41, 0.65, 96.82, 0.13),
    },
    "thumos14-anet": {
        "Att, 1 layer": (56.00, 0.71, 97.39, 0.04),
        "Att, 2 layers": (56.95, 0.80, 97.36, 0.06),
        "AttCo, 1 layer": (55.69, 0.41, 97.43, 0.04),
        "AttCo, 2 layers": (56.04, 0.27, 97.40, 0.08),
        "AttNy-16, 1 layer": (50.57, 0.52, 96.63, 0.05),
        "AttNy-16, 2 layers": (50.24, 0.14, 96.47, 0.03),
        "AttNyFix-16, 1 layer": (48.80, 0.75, 96.41, 0.12),
        "AttNyFix-16, 2 layers": (48.53, 0.61, 96.19, 0.11),
        "AttCoNyCont-16, 1 layer": (50.60, 0.13, 96.64, 0.03),
        "AttCoNyCont-16, 2 layers": (50.68, 0.38, 96.64, 0.04),
        "AttCoNyFix-16, 1 layer": (47.92, 0.69, 96.05, 0.05),
        "AttCoNyFix-16, 2 layers": (46.60, 0.36, 95.76, 0.06),
    },
}
"""Scores of Carreto Picón et al. 2024, tables III and IV, each as mean and standard deviation in
percent.

For GTZAN it is the accuracy over 25 runs; for THUMOS14 mAP, then cmAP (mean average precision,
plain and calibrated), on features of a network trained on Kinetics or on ActivityNet (anet).
"""


def as_published(
    gp: Mapping[str, tuple[float, float]],
    images: Mapping[str, Sequence[float | None]] | None = None,
) -> Published:
    """Arrange published log-likelihoods, in nats, by task and then by the name of the model.

    Args:
        gp: By the name of a model, its log-likelihoods of a target under RBF and Matern 5/2: from
            table 4 of Feng et al. 2024 (constant memory attention), table 2 of Feng et al. 2023
            (LBANP), or another source that the model's file names. The model's own come first.
        images: By the name of a model, its log-likelihoods of a pixel, table 3 of Feng et al. 2024:
            CelebA of 32, 64 and 128 pixels, and EMNIST's seen and unseen classes. A score is None
            where the authors could not run the model.
    """
    scores_by_task: dict[str, dict[str, tuple[float, ...]]] = {"gp": {}}
    for name, scores in gp.items():
        scores_by_task["gp"][f"{name}, as published"] = scores
    for name, of_images in (images or {}).items():
        row = f"{name}, as published"
        for size, score in zip(CELEBA, of_images, strict=False):
            if score is not None:
                scores_by_task.setdefault(f"celeba-{size}", {})[row] = (score,)
        emnist = [score for score in of_images[len(CELEBA) :] if score is not None]
        if emnist:
            scores_by_task.setdefault("emnist", {})[row] = tuple(emnist)
    return scores_by_task
