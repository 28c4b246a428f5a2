"""Report the progress of a training in lines of text, for a log where no terminal shows a bar.

    step 20: the first estimate ──> then a line when a minute and a twentieth of the steps are over

The clock starts at the end of the first step, because that step also loads and allocates.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torch import Tensor

from edgefold.runtime.series.durations import duration

FIRST_STEPS = 20
INTERVAL_S = 60.0
PARTS = 20


class ProgressLines:
    """Counts the steps of a training, and from time to time writes a line on its progress.

    Args:
        say: Takes each line of text.
        n_steps: Number of steps of the whole training.
        done: Number of steps that the resumed run has already done.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        n_steps: int,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._say, self._n_steps, self._done, self._clock = say, n_steps, done, clock
        self._first = self._said = (done + 1, 0.0)  # step and time, once the first is over
        self._losses: list[float | Tensor] = []

    def step(self, loss: float | Tensor) -> None:
        """Count one step and its loss (); write a line if one is due."""
        self._done += 1
        self._losses.append(loss)
        now = (self._done, self._clock())
        n_timed = self._done - self._first[0]
        if n_timed == 0:
            self._first = self._said = now
        since = self._done - self._said[0], now[1] - self._said[1]
        later = since[0] >= self._n_steps / PARTS and since[1] >= INTERVAL_S
        if n_timed != FIRST_STEPS - 1 and not (n_timed >= FIRST_STEPS and later):
            return
        each_s = (now[1] - self._first[1]) / n_timed
        left_s = each_s * (self._n_steps - self._done)
        self._say(
            f"step {self._done:,} of {self._n_steps:,} ({self._done / self._n_steps:.0%}): loss "
            f"{sum(self._losses) / len(self._losses):.3f}, {duration(each_s)} a step, about "
            f"{duration(left_s)} left"
        )
        self._said = now
        self._losses.clear()
