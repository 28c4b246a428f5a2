"""Define the wheel bandit: choose one of five arms, whose rewards depend on a point of a disc.

                 arm 2 │ arm 1       Riquelme et al. 2018, section 5.4. Inside the radius delta the
               ╭───────┼───────╮     best arm is 0, with a reward of 1.2; every other arm gives 1.0.
          ─────┤ arm 0 (delta) ├──   Outside it the quadrant's arm gives 50. Only delta differs
               ╰───────┼───────╯     from problem to problem, so a few points show everything.
                 arm 3 │ arm 4

x is the point, y the reward of all five arms. A device sees the reward of the arm that it chose and
nothing else: the other four are filled with standard normal numbers, as the papers do. Rewards have
the noise of the code that made the papers' tables (std 0.05, and 0.01 of a large one); their text
says 0.01 for all.

Training, with the option `draws`:

    device    our own: N log-uniform from 0 to 511, because a device begins with no point, and most
              of its regret comes from the first steps; a point shows one arm in half the problems
    full      the papers': 512 context points, each of whose 5 rewards is hidden with chance 1/2

The papers' text draws 8 new problems in each step, and so does "full". The code of their baselines
(Nguyen & Grover 2022) draws 8 problems once, trains on these alone, and scores the context points
as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from edgefold.runtime.options import option
from edgefold.train.batch import Batch
from edgefold.train.settings import PAPER_RECIPE
from edgefold.train.tasks.contract import Recipe, Task, options_of

Draws = Literal["device", "full"]

N_ARMS = 5
MEANS = (1.2, 1.0, 1.0, 1.0, 1.0)
STD = 0.05
LARGE_MEAN, LARGE_STD = 50.0, 0.01
Y_SCALE = 10.0
"""Number that rewards are divided by, so that the numbers in a network stay near 1."""
N_CONTEXT, N_TARGETS = 512, 50


def draw_points(n_problems: int, n_points: int, generator: torch.Generator) -> Tensor:
    """Draw points (B, n, 2), uniform in the unit disc, for B problems."""
    radius, turn = torch.rand(2, n_problems, n_points, generator=generator)
    angle = 2 * torch.pi * turn
    return radius.sqrt()[..., None] * torch.stack([angle.cos(), angle.sin()], -1)


def draw_rewards(x: Tensor, delta: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the rewards of all five arms at some points, (B, n, 5).

    Args:
        x: The points, (B, n, 2).
        delta: Inner radius of each problem, (B, 1).
        generator: Source of the noise.
    """
    noise = torch.randn(*x.shape[:-1], N_ARMS, generator=generator)
    small = torch.tensor(MEANS) + STD * noise
    large = LARGE_MEAN + LARGE_STD * noise
    is_large = outer_arm(x)[..., None] == torch.arange(N_ARMS)
    is_large &= (x.norm(dim=-1) >= delta)[..., None]
    return torch.where(is_large, large, small)


def outer_arm(x: Tensor) -> Tensor:
    """Return the number of the arm that belongs to the quadrant of each point x (..., 2).

    It is 1 where both coordinates are positive, then 2, 3 and 4 counterclockwise.
    """
    right, upper = x[..., 0] > 0, x[..., 1] > 0
    return torch.where(upper, torch.where(right, 1, 2), torch.where(right, 4, 3))


def hide_other_rewards(rewards: Tensor, arm: Tensor, generator: torch.Generator) -> Tensor:
    """Return rewards (..., 5) of which a device knows one: the other four become random numbers.

    Args:
        rewards: Rewards of all arms, (..., 5).
        arm: Number of the arm that the device chose, (...,).
        generator: Source of the standard normal numbers in place of the unknown rewards.
    """
    noise = torch.randn(rewards.shape, generator=generator)
    return torch.where(arm[..., None] == torch.arange(N_ARMS), rewards, noise)


@dataclass(frozen=True, slots=True)
class WheelOptions:
    """Holds the options of `edgefold train wheel`."""

    draws: Draws | None = option(
        "context points of training: as a device sees them, from none on, or 512, each reward "
        "hidden with chance 1/2, as in the papers (device)"
    )


class WheelTask(Task):
    """Draws endless wheel problems, each with a delta from U(0, 1).

    Args:
        draws: Context points of training, "device" or "full", as the module describes them.
    """

    name = "wheel"
    about = """\
Learn the wheel bandit of Riquelme et al. 2018: the rewards of five arms at a point of the disc.

The model is of the papers' size: width 16, 1 head, 4 blocks. `python -m benchmarks wheel` lets an
exported bundle play: it queries, acts, and learns the reward of the arm that it chose."""
    n_inputs = 2
    n_outputs = N_ARMS
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 20_000,
        "batch": 16,
        "warmup": 500,
        "optimizer": "muon",
        "learning_rate": 2e-3,
    }
    option_class = WheelOptions
    recipe = Recipe({**PAPER_RECIPE, "steps": 100_000, "batch": 8}, {"draws": "full"})
    model_settings: Mapping[str, Any] = {
        "width": 16,
        "n_heads": 1,
        "n_blocks": 4,
        "feedforward": 64,
        "input_low": -1.0,
        "input_high": 1.0,
    }

    def __init__(self, draws: Draws = "device"):
        self.draws = draws

    @classmethod
    def from_options(cls, args: WheelOptions, kept: dict[str, Any] | None = None) -> WheelTask:
        # A run of before the option has no `draws`.
        return cls(**options_of(args, ["draws"], kept and {"draws": "device", **kept}))

    def describe(self) -> dict[str, Any]:
        """Return name and scaling: points are not scaled, rewards are divided by `Y_SCALE`."""
        return {
            "name": self.name,
            "draws": self.draws,
            "x_shift": [0.0] * 2,
            "x_scale": [1.0] * 2,
            "y_shift": [0.0] * N_ARMS,
            "y_scale": [Y_SCALE] * N_ARMS,
        }

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw a batch of problems, with N context points, log-uniform from 0 to 511, drawn once.

        In half of the problems a context point shows the reward of only one random arm, as on a
        device; in the others it shows all five. The arm is drawn without a look at delta, so that
        the choice itself gives no information.
        """
        if self.draws == "full":
            return self._full_batch(n_tasks, generator)
        unit = torch.rand((), generator=generator)
        n = int((N_CONTEXT + 1) ** unit) - 1
        x = draw_points(n_tasks, n + N_TARGETS, generator)
        delta = torch.rand(n_tasks, 1, generator=generator)
        rewards = draw_rewards(x, delta, generator)
        arm = torch.randint(N_ARMS, (n_tasks, n), generator=generator)
        one_alone = torch.rand(n_tasks, 1, 1, generator=generator) < 0.5
        context = rewards[:, :n]
        context = torch.where(one_alone, hide_other_rewards(context, arm, generator), context)
        return Batch(x[:, :n], context / Y_SCALE, x[:, n:], rewards[:, n:] / Y_SCALE)

    def _full_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw problems of 512 context points, whose rewards are hidden one by one."""
        n = N_CONTEXT
        x = draw_points(n_tasks, n + N_TARGETS, generator)
        rewards = draw_rewards(x, torch.rand(n_tasks, 1, generator=generator), generator)
        noise = torch.randn(n_tasks, n, N_ARMS, generator=generator)
        hidden = torch.rand(n_tasks, n, N_ARMS, generator=generator) < 0.5
        context = torch.where(hidden, noise, rewards[:, :n])
        return Batch(x[:, :n], context / Y_SCALE, x[:, n:], rewards[:, n:] / Y_SCALE)
