"""Define the papers' regression task: learn functions of one input, drawn from a Gaussian process.

Protocol of the papers' code (their text gives another range of length scales, their tables were
made with this one): RBF for training, RBF and Matern 5/2 for evaluation, x ~ U(-2, 2), length scale
U(0.1, 0.6), signal std U(0.1, 1), noise std 0.02, N in [3, 46] context points and M in [3, 49 - N]
targets, both drawn once a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.runtime.predictions import Gaussian
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.settings import PAPER_RECIPE
from edgefold.train.tasks.contract import (
    N_CALIBRATED,
    Episode,
    Recipe,
    Score,
    Task,
    TaskStreams,
    episode_of,
    mean_score,
    options_of,
)

Kernel = Literal["rbf", "matern52"]
Draws = Literal["function", "batch", "posterior"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)
NOISE_STD = 0.02
LENGTHS = (0.1, 0.6)
"""Bounds of the papers' length scales, in units of x."""
LONG = 512
"""Number of points of one long calibration stream: ten times as many as training shows, because
streams on a device get long."""


def covariance(x: Tensor, length: Tensor, signal_std: Tensor, kernel: Kernel) -> Tensor:
    """Return the noise-free covariance of a Gaussian process at some points, (B, n, n).

    Args:
        x: The points, (B, n, 1).
        length: Length scale of each process, (B, 1, 1), in units of x.
        signal_std: Standard deviation of each process, (B, 1, 1).
        kernel: Covariance function: "rbf", or "matern52" for Matern 5/2.
    """
    distance = (x - x.mT).abs() / length
    if kernel == "rbf":
        correlation = torch.exp(-0.5 * distance**2)
    else:
        scaled = math.sqrt(5) * distance
        correlation = (1 + scaled + scaled**2 / 3) * torch.exp(-scaled)
    return signal_std**2 * correlation


@dataclass(frozen=True, slots=True)
class DrawnFunctions:
    """Holds B random functions at n points, in float64.

    Attributes:
        x: The points, (B, n, 1).
        y: Noisy values, (B, n, 1).
        covariance: Covariance of the noise-free values, (B, n, n).
    """

    x: Tensor
    y: Tensor
    covariance: Tensor


def draw_processes(
    n_tasks: int,
    n_points: int,
    kernel: Kernel,
    generator: torch.Generator,
    least_length: float = LENGTHS[0],
) -> DrawnFunctions:
    """Draw n_tasks random functions at n_points points each, with their covariances.

    Length scales lie evenly from `least_length` to the papers' upper bound.
    """

    def uniform(*shape: int, low: float, high: float) -> Tensor:
        unit = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return low + (high - low) * unit

    x = uniform(n_tasks, n_points, 1, low=-2, high=2)
    length = uniform(n_tasks, 1, 1, low=least_length, high=LENGTHS[1])
    signal_std = uniform(n_tasks, 1, 1, low=0.1, high=1.0)
    matrix = covariance(x, length, signal_std, kernel)
    noise = NOISE_STD**2 * torch.eye(n_points, dtype=torch.float64)
    factor = torch.linalg.cholesky(matrix + noise)
    white = torch.randn(n_tasks, n_points, 1, generator=generator, dtype=torch.float64)
    return DrawnFunctions(x, factor @ white, matrix)


def draw_functions(
    n_tasks: int, n_points: int, kernel: Kernel, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw points x and noisy values y of n_tasks = B random functions, each (B, n, 1).

    `kernel` is "rbf" or "matern52". The results are float32, computed in float64.
    """
    drawn = draw_processes(n_tasks, n_points, kernel, generator)
    return drawn.x.float(), drawn.y.float()


def posterior(drawn: DrawnFunctions, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation (B, M, 1) of noisy values, given those of the first N points.

    They are those of the Gaussian process with each function's own length and scale (Rasmussen and
    Williams 2006, equations 2.22 to 2.24).

    Args:
        drawn: Functions at N context points and M targets.
        mask: True for the context points that are given, (B, N).
    """
    n = mask.shape[1]
    given, one = mask[..., None], mask[..., None] & mask[:, None]
    own = torch.where(one, drawn.covariance[:, :n, :n], 0.0)
    own = own + torch.diag_embed(torch.where(mask, NOISE_STD**2, 1.0).double())
    to_targets = torch.where(given, drawn.covariance[:, :n, n:], 0.0)
    y = torch.where(given, drawn.y[:, :n], 0.0)
    solved = torch.linalg.solve_triangular(
        torch.linalg.cholesky(own), torch.cat([to_targets, y], -1), upper=False
    )
    weights, values = solved[..., :-1], solved[..., -1:]
    prior = drawn.covariance[:, n:, n:].diagonal(dim1=1, dim2=2)
    variance = prior - weights.square().sum(1) + NOISE_STD**2
    return weights.mT @ values, variance.clamp(min=NOISE_STD**2).sqrt()[..., None]


def length_scale(text: str) -> float:
    """Return a length scale below the papers' largest; raise DataError for any other text."""
    try:
        length = float(text)
    except ValueError:
        length = math.nan
    require_length(length, text)
    return length


def require_length(length: float, text: str) -> None:
    """Raise DataError, which shows `text`, unless a length scale lies below the papers' largest."""
    if not 0 < length < LENGTHS[1]:
        raise DataError(f"{text} is no length scale: give a number above 0 and below {LENGTHS[1]}.")


@dataclass(frozen=True, slots=True)
class GpOptions:
    """Holds the options of `edgefold train gp`."""

    draws: Draws | None = option(
        "training: context points drawn for each function, with 48 targets; or their numbers once "
        "a batch, as in the papers; or as for each function, with the exact posterior's deviation "
        "above and below its mean as targets (function)"
    )
    least_length: float | None = option(
        "training: least length scale of the functions; less than 0.1, where the papers begin, "
        "prepares the model for rougher functions (0.1)",
        "LENGTH",
        parse=length_scale,
    )


OPTIONS: Mapping[str, Any] = {"draws": "function", "least_length": LENGTHS[0]}
"""Options of the task, with what they are by default."""


class GpTask(Task):
    """Draws random functions of Gaussian processes: endless training batches, and the papers' test.

    Args:
        n_context: Most context points of a training task.
        n_targets: Number of targets of a training task.
        draws: Whether the number of context points is drawn for each "function", with all
            `n_targets`, or the numbers of both once a "batch", as in the papers; or as for each
            function, with the loss that a target has on average given its context ("posterior").
        least_length: Least length scale of the functions of training.

    Raises:
        DataError: `least_length` is not between 0 and the papers' largest length scale, or is given
            with the papers' own draws, "batch".
    """

    name = "gp"
    about = "Learn the papers' one-dimensional regression, on functions of a Gaussian process."
    n_inputs = 1
    n_outputs = 1
    option_class = GpOptions
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 10_000,
        "batch": 16,
        "warmup": 500,
        "learning_rate": 2e-3,
        "threads": 2,
    }
    recipe = Recipe({**PAPER_RECIPE, "steps": 100_000, "batch": 16}, {"draws": "batch"})

    def __init__(
        self,
        n_context: int = 46,
        n_targets: int = 48,
        draws: Draws = "function",
        least_length: float = LENGTHS[0],
    ):
        self.n_context = n_context
        self.n_targets = n_targets
        self.draws = draws
        self.least_length = least_length
        require_length(least_length, str(least_length))
        if draws == "batch" and least_length != LENGTHS[0]:
            raise DataError(
                "--least-length changes the papers' draws: leave out --draws batch, which --recipe "
                "paper takes, too."
            )
        if draws == "posterior":  # the pairs of values stand for a Gaussian's mean loss alone
            self.prediction = Gaussian.name

    def describe(self) -> dict[str, Any]:
        """Return name and sizes of the task; x and y are used without scaling."""
        sizes = {"n_context": self.n_context, "n_targets": self.n_targets}
        return {"name": self.name, **sizes, **{name: getattr(self, name) for name in OPTIONS}}

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw a batch of RBF functions: N context points, from 3 on, and all targets of each.

        The papers draw N and a number of targets once a batch, as `draws` "batch" does: a batch of
        `evaluation_batch`. With "function" each task has its own N, and always all `n_targets`: a
        model's latents cost the same however few there are, and more targets teach more in a step.
        One task in 32 has fewer than 3 context points, so that the model also learns what to
        predict before it knows anything.

        With "posterior" each target's x comes twice, with values one deviation above and below the
        mean of the exact posterior. The mean loss of both is that of all values the target may have
        given its context, for a Gaussian prediction: it has the same minimum, without the noise of
        single values.
        """
        if self.draws == "batch":
            return self.evaluation_batch(n_tasks, "rbf", generator)
        n_context = torch.randint(3, self.n_context + 1, (n_tasks, 1), generator=generator)
        rare = torch.rand(n_tasks, 1, generator=generator) < 1 / 32
        few = torch.randint(0, 3, (n_tasks, 1), generator=generator)
        n_context = torch.where(rare, few, n_context)
        n_points = self.n_context + self.n_targets
        drawn = draw_processes(n_tasks, n_points, "rbf", generator, self.least_length)
        n = self.n_context
        mask = torch.arange(n)[None] < n_context
        targets = drawn.x[:, n:], drawn.y[:, n:]
        if self.draws == "posterior":
            mean, deviation = posterior(drawn, mask)
            twice = torch.cat([mean + deviation, mean - deviation], 1)
            targets = targets[0].repeat(1, 2, 1), twice
        x, y = targets
        return Batch(drawn.x[:, :n].float(), drawn.y[:, :n].float(), x.float(), y.float(), mask)

    def evaluation_batch(self, n_tasks: int, kernel: Kernel, generator: torch.Generator) -> Batch:
        """Draw a batch by the papers' protocol: N context points and M targets of each function.

        N is drawn from 3 to 46 and M from 3 to 49 - N, once for the batch: it needs no mask.
        """
        n = int(torch.randint(3, 47, (), generator=generator))
        m = int(torch.randint(3, 50 - n, (), generator=generator))
        x, y = draw_functions(n_tasks, n + m, kernel, generator)
        return Batch(x[:, :n], y[:, :n], x[:, n:], y[:, n:])

    @classmethod
    def from_options(cls, args: GpOptions, kept: dict[str, Any] | None = None) -> GpTask:
        # Runs of before these options do not hold them.
        named = options_of(args, list(OPTIONS), kept and {**OPTIONS, **kept})
        sizes = {name: kept[name] for name in ("n_context", "n_targets")} if kept else {}
        return cls(**sizes, **named)

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Score a model on batches of `evaluation_batch`, of both kernels, with the same seed.

        The score is the mean log-likelihood of a target. Each batch has 16 functions; the papers
        take 3,000 batches.
        """
        scores = {kernel: score_gp(model, kernel, n_batches, seed=seed) for kernel in KERNELS}
        name, rows = ", ".join(names), model.published.get(self.name, {})
        width = max(map(len, (name, *rows))) + 2
        cells = "".join(
            f"{s.log_likelihood:>8.3f} ± {s.standard_error:.3f}" for s in scores.values()
        )
        lines = [
            "mean log-likelihood of a target, nats",
            f"{'':{width}}{'RBF':>16}{'Matern 5/2':>16}",
            f"{name:{width}}{cells}",
            *(f"{row:{width}}{rbf:>8.2f}{matern:>16.2f}" for row, (rbf, matern) in rows.items()),
        ]
        return {kernel: asdict(score) for kernel, score in scores.items()}, "\n".join(lines)

    @classmethod
    def streams(cls, described: dict[str, Any], args: Any) -> TaskStreams:
        """Return RBF streams to set a narrow precision's ranges, and ones of both kernels to score.

        Matern 5/2 sets no ranges, so that it is as foreign to them as it was to training.
        """
        task = cls.from_options(args, described)
        generator = torch.Generator().manual_seed(20240611)
        calibration = []
        for n in (*[task.n_context] * N_CALIBRATED, LONG):
            x, y = draw_functions(1, n + task.n_targets, "rbf", generator)
            calibration.append(episode_of(Batch(x[:, :n], y[:, :n], x[:, n:], y[:, n:]), {}))
        return TaskStreams(
            calibration,
            {kernel: task._protocol(kernel) for kernel in KERNELS},
            f"{N_CALIBRATED} streams of {task.n_context} points and one of {LONG}, RBF",
            "draws of the gp task by the papers' protocol",
        )

    def _protocol(self, kernel: Kernel) -> Iterator[Episode]:
        generator = torch.Generator().manual_seed(20240612)
        while True:
            yield episode_of(self.evaluation_batch(1, kernel, generator), {})


def score_gp(
    model: StreamingModel, kernel: Kernel, n_batches: int = 3000, batch: int = 16, seed: int = 1
) -> Score:
    """Return the mean log-likelihood of a target, as in the papers, on functions of one kernel.

    Args:
        model: The model of one input, in evaluation mode.
        kernel: Covariance function: "rbf", or "matern52" for Matern 5/2.
        n_batches: Number of batches.
        batch: Number of functions of a batch.
        seed: Seed of the batches; training draws with other seeds.
    """
    task = GpTask()

    def draw(generator: torch.Generator) -> Batch:
        return task.evaluation_batch(batch, kernel, generator)

    return mean_score(model, draw, n_batches, seed, kernel)
