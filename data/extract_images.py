"""Makes train/tasks/built_in_images.npz from the copies that scikit-learn and scikit-image carry.

    pip install scikit-learn scikit-image && python data/extract_images.py

Nothing else in the project needs either. README.md beside this file gives sources and licences.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from skimage import data
from sklearn.datasets import load_digits

OUT = Path(__file__).parents[1] / "train" / "tasks" / "built_in_images.npz"
REDUCED = {
    "astronaut": 2,
    "coffee": 2,
    "hubble_deep_field": 4,
    "retina": 6,
    "chelsea": 2,
    "rocket": 3,
}
"""Photographs that lie in scikit-image's own package, and how many pixels a side become one."""


def reduced(photograph: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Means of blocks of factor x factor pixels, without the rows and columns that are over."""
    height, width = (n // factor for n in photograph.shape[:2])
    blocks = photograph[: height * factor, : width * factor].reshape(
        height, factor, width, factor, 3
    )
    return np.round(blocks.mean((1, 3))).astype(np.uint8)


if __name__ == "__main__":
    images = {name: reduced(getattr(data, name)(), factor) for name, factor in REDUCED.items()}
    images["digits"] = load_digits().images.astype(np.uint8)
    np.savez_compressed(OUT, **images)
    for name, image in images.items():
        print(f"{name}: {image.shape}, mean {image.mean():.4f}")
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")
