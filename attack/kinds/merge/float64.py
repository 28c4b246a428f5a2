"""Join parts of streams in float64, and print the largest differences of each model.

    python -m attack.kinds.merge.float64 10000

The ordinary cases compare with a tolerance; this shows by how much it is met. Rounding of float64
hides no fault of a merge, so that every difference is one of the order of sums.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from attack.kinds.merge.cases import SIZES, Cases
from attack.kinds.merge.subjects import SMALL, in_double
from attack.outcomes import random_of


def largest(first: int, stop: int) -> dict[str, tuple[int, float, float]]:
    """Return for each model its number of cases, and the largest differences that they have.

    The first difference is that of predictions, the second that of the state, relative to the
    largest value of each tensor and to 1 at least. The cases have the numbers `first` to before
    `stop`.
    """
    subjects = {name: in_double(name) for name in SMALL}
    found = defaultdict[str, list[tuple[float, float]]](list)
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        cases = Cases(Path(folder), Path(folder))
        for number in range(first, stop):
            random = random_of("float64", number)
            name = tuple(SMALL)[number % len(SMALL)]
            n_points, n_parts = SIZES[int(random.integers(len(SIZES)))], int(random.integers(2, 7))
            each = cases.differences(subjects[name], number, n_points, n_parts, random)
            predictions = each.pop("predictions")
            found[name].append((predictions, float(np.max([*each.values()]))))
    worst = {name: np.max(pairs, axis=0).tolist() for name, pairs in found.items()}  # NaN, too
    return {name: (len(found[name]), *pair) for name, pair in worst.items()}


def main() -> None:
    """Play as many cases as the command line says, on one core."""
    n = int(sys.argv[1])
    torch.set_num_threads(1)
    print(f"{'model':<20} {'cases':>6} {'predictions':>12} {'state':>9}")
    for name, (cases, predictions, state) in largest(0, n).items():
        print(f"{name.rpartition(':')[2]:<20} {cases:>6,} {predictions:>12.1e} {state:>9.1e}")


if __name__ == "__main__":
    main()
