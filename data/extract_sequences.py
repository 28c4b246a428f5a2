"""Makes train/tasks/built_in_sequences.npz from the copies that two packages carry.

    pip install scikit-learn seglearn && python data/extract_sequences.py

Nothing else in the project needs either. README.md beside this file gives sources and licences.
The images of the digits are in built_in_images.npz already; here are their labels alone.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from seglearn.datasets import load_watch
from sklearn.datasets import load_digits

OUT = Path(__file__).parents[1] / "train" / "tasks" / "built_in_sequences.npz"
BLOCK = 4
"""Readings of 50 Hz that become one of 12.5 Hz, their mean: an exercise takes some two seconds."""
STEPS = (0.01, 0.01, 0.01, 0.02, 0.02, 0.02)
"""What one unit of the kept integers is, in the sensors' units; readings reach from -29 to 13."""


if __name__ == "__main__":
    watch = load_watch()
    recordings = [
        part[: len(part) // BLOCK * BLOCK].reshape(-1, BLOCK, len(STEPS)).mean(1)
        for part in watch["X"]
    ]
    texts = [f for f in distribution("seglearn").files or [] if f.name == "LICENSE"]
    np.savez_compressed(
        OUT,
        digit_labels=load_digits().target.astype(np.uint8),
        # Channels apart, so that neighbours in the file are neighbours in time.
        exercise_readings=np.round(np.concatenate(recordings) / STEPS).astype(np.int16).T,
        exercise_lengths=np.array([len(part) for part in recordings], np.int16),
        exercise_labels=np.array(watch["y"], np.uint8),
        exercise_subjects=np.array(watch["subject"], np.uint8),
        exercise_licence=np.array(texts[0].read_text()),
    )
    print(f"{len(recordings)} recordings, {sum(map(len, recordings)):,} readings")
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")
