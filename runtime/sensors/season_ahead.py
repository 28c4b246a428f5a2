"""What was forecast, one season before, of each slot of the season to come.

Rolling a model on by its own forecasts loses the shape of a season that has sharp parts, such as
nights without sun. The forecasts that were made one season ahead keep it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray


class SeasonAhead:
    """A ring of distributions by the slot that they are of; its size is fixed.

    Args:
        longest: The longest season, in slots.
        n_levels: Q.
    """

    def __init__(self, longest: int, n_levels: int):
        self._target = np.full(longest, -1, np.int64)
        self._told = np.zeros((longest, 1 + n_levels), np.float32)  # the mean, then the quantiles

    def keep(self, target: int, mean: float, quantiles: FloatArray) -> None:
        """Keep what is forecast of a slot, in the place of what was forecast a ring before."""
        at = target % len(self._target)
        self._target[at] = target
        self._told[at, 0], self._told[at, 1:] = mean, quantiles

    def find(self, first: int, n: int) -> FloatArray | None:
        """Means and quantiles, (n, 1 + Q), of n slots from one on; None if one is not known."""
        targets = np.arange(first, first + n)
        places = targets % len(self._target)
        if n > len(self._target) or (self._target[places] != targets).any():
            return None
        return self._told[places].astype(np.float64)

    def arrays(self) -> dict[str, Array]:
        """What a snapshot must keep for `load`."""
        return {"target": self._target, "told": self._told}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take over what `arrays` returned; raises KeyError or ValueError for what is damaged."""
        for name, mine in self.arrays().items():
            found = arrays[name]
            if (found.shape, found.dtype) != (mine.shape, mine.dtype):
                raise ValueError(f"{name} is of another shape")
            if not np.isfinite(found).all():
                raise ValueError(f"{name} is not finite")
        for name, mine in self.arrays().items():
            mine[...] = arrays[name]
