"""Define the task of predicting a series one step ahead, learned from made-up targets.

Training on the series' own targets overfits within minutes (right mean, far too narrow a band).
So the inputs are real and the targets are drawn: in each training task a map from x to y, and noise
around it. A part of the maps is scattered around the linear autoregression fitted to the training
part, which is what the stream will most likely turn out to be; the rest is broad, so that the
context decides and the stream adapts when its dynamics change. The stretch that is held out for
evaluation is never seen: the caller hands in the training part alone.

Rows come from `edgefold.runtime.series.features`, as arrays: training does not read files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.runtime.rows.row_format import kept_format
from edgefold.runtime.series.features import central_std, scaling, series_points
from edgefold.runtime.series.held_out import HELD_OUT, HeldOut, held_out, points_before
from edgefold.runtime.series.options import SeriesOptions, find_series
from edgefold.runtime.series.spec import DAY_S, SeriesSpec
from edgefold.train.batch import Batch
from edgefold.train.tasks.contract import (
    N_CALIBRATED,
    Episode,
    Task,
    TaskStreams,
    episode_of,
)
from edgefold.train.tasks.series_notes import series_notes

Numbers = NDArray[np.floating[Any]]

ABOUT = """\
Learn to predict a sensor series one step ahead. The last fifth of the rows is held out.

5,000 steps take 7 to 8 minutes on one nearly idle core of a two-core x86-64 machine (0.08 to 0.10
seconds a step), and 12 to 18 where others use the cores too. `--steps 1500` takes a third."""
N_REAL = 64
"""Number of random rows of the training part that each calibration stream must predict."""


@dataclass(frozen=True, slots=True)
class SeriesPrior:
    """Holds the settings for drawing training tasks; stds are in units of scaled y unless noted.

    Attributes:
        n_targets: M, the number of targets of each task.
        n_context: Largest N, the number of context points, where the series has as many rows.
        short: Share of batches with few context points, log-uniform from 2 to 256; in the other
            batches N is uniform above 256.
        centred: Share of tasks whose maps from x to y are scattered around the fitted
            autoregression ("centred" tasks).
        spread: Std of a centred map's weights around the fitted ones: relative to these, and in
            addition an absolute std of spread / sqrt(X).
        noise_spread: Std of the logarithm of the noise std from one centred task to another.
        nonlinear: Largest std of the random network in a centred map, relative to the linear part.
        uneven: Largest std, over x, of the logarithm of the noise std within a task.
        tails: Share of tasks whose noise is Student's t, with 4 to 12 degrees of freedom.
        jitter: Std of the noise on x, in units of the scaled x: no row is ever seen twice.
    """

    n_targets: int = 128
    n_context: int = 1024
    short: float = 0.25
    centred: float = 0.6
    spread: float = 0.3
    noise_spread: float = 0.2
    nonlinear: float = 0.4
    uneven: float = 0.4
    tails: float = 0.5
    jitter: float = 0.05


def ridge_weights(x: Tensor, y: Tensor, penalty: float = 1.0) -> Tensor:
    """Fit a linear map from x (n, X) to y (n, 1) by ridge regression; return its weights (X,).

    It is computed in float64 and returned in float32.
    """
    x64, y64 = x.double(), y.double()
    gram = x64.mT @ x64 + penalty * torch.eye(x.shape[1], dtype=torch.float64)
    return torch.linalg.solve(gram, x64.mT @ y64)[:, 0].float()


class _Draw:
    """Draws random numbers for the B tasks of a batch, all from one generator."""

    def __init__(self, n_tasks: int, generator: torch.Generator):
        self.n_tasks = n_tasks
        self.generator = generator

    def uniform(self, low: float, high: float) -> Tensor:
        """Draw one uniform number from low to high for each task, (B, 1)."""
        return low + (high - low) * torch.rand(self.n_tasks, 1, generator=self.generator)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers of shape (B, *shape)."""
        return torch.randn(self.n_tasks, *shape, generator=self.generator)

    def network(self, x: Tensor, n_hidden: int = 8) -> Tensor:
        """Return the outputs (B, n) of small random tanh networks, one a task, for x (B, n, X).

        The outputs of each task are scaled to mean 0 and std 1 over its n points.
        """
        gain = self.uniform(0.5, 2.0)[..., None] / math.sqrt(x.shape[-1])
        hidden = torch.tanh(
            x @ (gain * self.normal(x.shape[-1], n_hidden)) + self.normal(1, n_hidden)
        )
        return standardised((hidden @ self.normal(n_hidden, 1))[..., 0])


def standardised(rows: Tensor) -> Tensor:
    """Shift and scale rows (B, n) so that each has mean 0 and std 1."""
    return (rows - rows.mean(-1, keepdim=True)) / rows.std(-1, keepdim=True).clamp(min=1e-6)


def _season_length(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise DataError(f"{text} is not a length of time; 0 is for none")
    return number


@dataclass(frozen=True, slots=True)
class SeriesTaskOptions(SeriesOptions):
    """Holds the options of `edgefold train series`."""

    season: float | None = option(
        "season in days, or in units of times that are numbers; 0 for none (default: a year for "
        "dated rows 1 to 120 days apart, a day for dated rows up to 6 hours apart, else none)",
        parse=_season_length,
    )


class SeriesTask(Task):
    """Draws training batches for one series: real inputs, and made-up targets over them.

    Args:
        x: Features (n, X) of the training part, raw units.
        y: Targets (n, 1) of the training part, raw units.
        description: The entries by which `edgefold.runtime` makes the same points: `features` (the
            specification), x_shift, x_scale, y_shift, y_scale; and whatever else the caller keeps.
        prior: Settings for drawing tasks; the default ones where it is None.
    """

    option_class = SeriesTaskOptions
    name = "series"
    about = ABOUT
    n_outputs = 1
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 5_000,
        "batch": 8,
        "warmup": 200,
        "learning_rate": 2e-3,
        "threads": 1,
    }
    # Lower frequencies for some ten inputs than for one: a map close to linear is then in reach
    # from the first step.
    model_settings: Mapping[str, Any] = {"fourier_std": 0.8}

    def __init__(
        self,
        x: Numbers,
        y: Numbers,
        description: dict[str, Any],
        prior: SeriesPrior | None = None,
    ):
        if y.ndim != 2 or y.shape != (x.shape[0], 1):
            raise ValueError(f"x is {x.shape} and y is {y.shape}; they must be (n, X) and (n, 1).")
        if len(x) < 64:
            raise ValueError(f"the training part has {len(x)} points; at least 64 are needed.")
        self.prior = prior or SeriesPrior()
        self.description = description
        self.n_inputs = x.shape[1]
        self.x = _scaled(x, description["x_shift"], description["x_scale"])
        scaled_y = _scaled(y, description["y_shift"], description["y_scale"])
        self.weights = ridge_weights(self.x, scaled_y)  # (X,)
        self.noise_std = central_std((scaled_y[:, 0] - self.x @ self.weights).double().numpy())

    def describe(self) -> dict[str, Any]:
        """Return the specification and scaling of the features, and the settings of the draw."""
        return {**self.description, "name": self.name, "prior": asdict(self.prior)}

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Draw a batch of tasks over random rows of the training part.

        The number of context points N is drawn once a batch, so that it needs no mask.
        """
        prior, draw = self.prior, _Draw(n_tasks, generator)
        n_targets = min(prior.n_targets, len(self.x) // 4)
        most = len(self.x) - n_targets
        n_context = self._draw_n_context(min(prior.n_context, most), generator)
        order = torch.rand(n_tasks, len(self.x), generator=generator).argsort(-1)
        x = self.x[order[:, : n_context + n_targets]]  # (B, N + M, X)
        x = x + prior.jitter * draw.normal(*x.shape[1:])
        y = self.draw_targets(x, draw)[..., None]
        n = n_context
        return Batch(x[:, :n], y[:, :n], x[:, n:], y[:, n:])

    def _draw_n_context(self, most: int, generator: torch.Generator) -> int:
        unit, which = torch.rand(2, generator=generator).tolist()
        few = min(256, most)
        if which < self.prior.short:
            return round(2 * (few / 2) ** unit)
        return round(few + (most - few) * unit)

    def draw_targets(self, x: Tensor, draw: _Draw) -> Tensor:
        """Draw a map with noise for each task; return its targets y (B, n) at x (B, n, X)."""
        prior = self.prior
        centred = draw.uniform(0, 1) < prior.centred
        near_map, near_std = self._near(x, draw)
        broad_map, broad_std = self._broad(x, draw)
        signal = torch.where(centred, near_map, broad_map)
        noise_std = torch.where(centred, near_std, broad_std)
        noise = draw.normal(x.shape[1])
        # Student's t: a normal over the root of a scaled chi-square, made to have variance 1.
        freedom = draw.uniform(4, 12).round()
        squares = draw.normal(x.shape[1], 12) ** 2
        chosen = torch.arange(12) < freedom[..., None]  # (B, 1, 12)
        chi_square = (squares * chosen).sum(-1) / freedom
        heavy = noise * ((freedom - 2) / freedom / chi_square.clamp(min=1e-3)).sqrt()
        noise = torch.where(draw.uniform(0, 1) < prior.tails, heavy, noise)
        log_std = draw.uniform(0, prior.uneven) * draw.network(x, 4)
        return signal + noise_std * torch.exp(log_std - log_std.var(-1, keepdim=True)) * noise

    def _near(self, x: Tensor, draw: _Draw) -> tuple[Tensor, Tensor]:
        """Draw a map close to the fitted autoregression for each task.

        Returns:
            The values of the maps at x, (B, n), and the std of their noise, (B, 1).
        """
        prior, n_inputs = self.prior, x.shape[-1]
        relative = 1 + prior.spread * draw.normal(n_inputs)
        scatter = prior.spread / math.sqrt(n_inputs) * draw.normal(n_inputs)
        weights = self.weights * relative + scatter  # (B, X)
        linear = (x @ weights[..., None])[..., 0]
        bent = draw.uniform(0, prior.nonlinear) * linear.std(-1, keepdim=True) * draw.network(x)
        offset = 0.05 * draw.normal(1)
        noise_std = self.noise_std * torch.exp(prior.noise_spread * draw.normal(1))
        return linear + bent + offset, noise_std

    def _broad(self, x: Tensor, draw: _Draw) -> tuple[Tensor, Tensor]:
        """Draw a sparse linear map mixed with a random network for each task.

        Returns:
            The values of the maps at x, (B, n), and the std of their noise, (B, 1). Values and
            noise together have a std of about 1.
        """
        n_inputs = x.shape[-1]
        is_used = torch.rand(draw.n_tasks, n_inputs, generator=draw.generator) < draw.uniform(
            0.2, 1.0
        )
        linear = standardised((x @ (draw.normal(n_inputs) * is_used)[..., None])[..., 0])
        bent = draw.uniform(0, 1) ** 2
        signal = torch.sqrt(1 - bent**2) * linear + bent * draw.network(x)
        unexplained = draw.uniform(0.1, 1.0)
        total = torch.exp(0.15 * draw.normal(1))
        offset = 0.1 * draw.normal(1)
        signal = total * torch.sqrt(1 - unexplained**2) * standardised(signal) + offset
        return signal, total * unexplained

    @classmethod
    def from_options(
        cls, args: SeriesTaskOptions, kept: dict[str, Any] | None = None
    ) -> SeriesTask:
        """Read the file that the options name, and return its task.

        Args:
            args: Options of the command.
            kept: Description of the task of the run that is resumed: options that the user leaves
                out are taken from it, and the new task must have the same description.

        Raises:
            DataError: The file does not hold a clean series, is too short, or is not the file of
                the run.
        """
        if args.csv is None and kept is None:
            raise DataError("the series task needs a series; give --csv FILE.")
        path, series = args.path(kept or {}), args.read(kept or {})
        n_training = int((1 - HELD_OUT) * len(series.values))
        times, values = series.times[:n_training], series.values[:n_training]
        try:
            if kept and args.season is None:
                spec = SeriesSpec.from_json(kept["features"])
            else:
                season: float | str = "auto"
                if args.season is not None:
                    season = args.season * (DAY_S if series.clock == "date" else 1.0) or "none"
                spec = SeriesSpec.of_series(times, values, series.clock, season)
            points = series_points(spec, series.times, series.values)
            n = points_before(points, series.times, n_training)
            if not n:
                raise DataError(
                    f"the {n_training} rows of the training part give no point, which needs "
                    f"{spec.n_rows} before it; give a longer series or a shorter season."
                )
            x, y = points.x[:n], points.y[:n]
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        description: dict[str, Any] = {
            "features": spec.to_json(),
            **scaling(x, y),
            "file": path.name,
            "columns": list(series.columns),
            "held_out": HELD_OUT,
            "n_training_rows": n_training,
            **asdict(args.mending(kept or {})),
            "format": kept_format(kept or {}, args.format.given).to_json(),
        }
        try:
            task = cls(x, y, description)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from error
        described = task.describe()
        changed = [name for name in kept or {} if described.get(name) != (kept or {})[name]]
        if changed:
            raise DataError(
                f"{path} and these options give another task than the run was started with "
                f"({', '.join(changed)} differ); resume with the same file and options, or start "
                "another run with another --out."
            )
        asked = kept is not None or args.season is not None
        n_refused = points.n_passed_over
        task.notes = series_notes(path.name, series, spec, n_training, n_refused, asked)
        return task

    @classmethod
    def streams(cls, described: dict[str, Any], args: SeriesTaskOptions) -> TaskStreams:
        """Return streams to calibrate a narrow precision and measure its cost.

        They are of the real rows if `args` names the series' file, or if the file is found that
        `described`, the description of the trained task, names; else of made-up rows.
        """
        if args.csv is not None or find_series(described) is not None:
            part = held_out(args, described)
            return _real_streams(part.path.name, part)
        return TaskStreams(
            list(islice(_made_up(described, 20240611), N_CALIBRATED)),
            {"made_up": _made_up(described, 20240612)},
            f"{N_CALIBRATED} made-up maps over normal inputs",
            "made-up maps over normal inputs, for want of the series",
        )


def _real_streams(name: str, part: HeldOut) -> TaskStreams:
    """Return streams of the real rows: four to calibrate a precision, one to measure its cost.

    The four learn the training rows from their start, from a quarter, a half and three quarters on.

    Args:
        name: Name of the file.
        part: Points of the series, and the number of those that are for training.
    """
    x, y, n = part.points.x, part.points.y, part.n_training
    if not 0 < n < len(x) - 1:
        raise DataError(
            f"{name} has {n} points to set ranges on and {len(x) - n} to be judged by; "
            "give a longer series."
        )
    random = np.random.default_rng(20240611)
    calibration = []
    for first in (0, n // 4, n // 2, 3 * n // 4):
        rows = np.concatenate([np.arange(first, n), random.integers(0, n, N_REAL)])
        calibration.append(Episode(x[rows], y[rows], n - first))
    return TaskStreams(
        calibration,
        {"held_out": iter([Episode(x, y, n, prequential=True)])},
        f"{len(calibration)} streams of the {n:,} training points of {name}",
        f"the last {len(x) - n:,} points of {name}, one row ahead",
    )


def _made_up(described: dict[str, Any], seed: int) -> Iterator[Episode]:
    """Yield endless streams of the training task over normal random inputs, in raw units.

    Only shift and scale of the real inputs are known, from the task's description.
    """
    generator = torch.Generator().manual_seed(seed)
    shift_x, scale_x = np.array(described["x_shift"]), np.array(described["x_scale"])
    normal = torch.randn(2048, len(shift_x), generator=generator, dtype=torch.float64)
    plain = normal.mean(1, keepdim=True).numpy() * np.array(described["y_scale"])
    source = SeriesTask(
        normal.numpy() * scale_x + shift_x, plain + np.array(described["y_shift"]), described
    )
    while True:
        yield episode_of(source.training_batch(1, generator), described)


def _scaled(raw: Numbers, shift: Sequence[float], scale: Sequence[float]) -> Tensor:
    return torch.from_numpy((raw - np.array(shift)) / np.array(scale)).float()
