"""A device that plays the wheel bandit through `Stream`.

    the next point ──> query: 5 means and stds ──> the arm of the largest mean + std ──> its reward
          ▲                                                                                  │
          └───────── update with that reward, and noise for the arms that were not seen <────┘

It needs numpy and the runtime alone, so that it runs on a board as it is. The task is
`edgefold.train.tasks.wheel`, which says what the arms pay and why unseen rewards are noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: points x (n, 2) in the order they come, and rewards (n, 5) of all arms."""

    x: FloatArray
    rewards: FloatArray

    def regret(self, arms: NDArray[np.integer]) -> FloatArray:
        """Return the loss of each step (n,) against the arm that is best there on average.

        The best arm pays the largest mean, 1.2 or 50, which the noise never hides.
        """
        is_large = self.rewards.max(1) > 25
        best = np.where(is_large, self.rewards.argmax(1), 0)
        steps = np.arange(len(self.x))
        lost: FloatArray = self.rewards[steps, best] - self.rewards[steps, arms]
        return lost

    def uniform_regret(self) -> float:
        """Mean regret, over all draws, of the policy that draws each arm with the same chance."""
        every = [
            self.regret(np.full(len(self.x), arm)).sum() for arm in range(self.rewards.shape[1])
        ]
        return float(np.mean(every))


def play(stream: Stream, problem: Problem, random: np.random.Generator) -> NDArray[np.integer]:
    """Choose an arm at every point by the upper confidence bound, and learn what it paid.

    Args:
        stream: Of a bundle with 2 inputs and 5 outputs; it is reset first.
        problem: What comes.
        random: Draws the noise that stands for the rewards of arms that were not chosen.

    Returns:
        The arms, (n,).
    """
    kind = stream.manifest.prediction
    n, n_arms = problem.rewards.shape
    arms = np.empty(n, np.int64)
    learned = random.normal(size=(n, n_arms))
    stream.reset()
    for step in range(n):
        here = slice(step, step + 1)
        found = stream.query(problem.x[here]).tensors
        arms[step] = arm = int(np.argmax(kind.center(found)[0] + kind.deviation(found)[0]))
        learned[step, arm] = problem.rewards[step, arm]
        stream.update(problem.x[here], learned[here])
    return arms
