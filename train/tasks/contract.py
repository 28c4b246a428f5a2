"""Define the contract of tasks: a task draws training batches and scores a trained model.

A task is a class. Only `training_batch`, `n_inputs` and `n_outputs` are required; the rest has
defaults that suit any task. The options of a task are the fields of a frozen dataclass,
`option_class`: `edgefold train` makes flags of them, and `from_options` gets an instance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError, EdgefoldError
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.states.random_numbers import PRIME

N_CALIBRATED = 12
"""Number of streams, drawn from a task, that set the number ranges of a narrow precision."""


@dataclass(frozen=True, slots=True)
class Score:
    """Holds a model's mean log-likelihood of a target, in nats, and the mean's standard error.

    Attributes:
        log_likelihood: Mean over batches of the mean log-likelihood of a target, nats.
        standard_error: Standard error of that mean over batches, nats; NaN for one batch.
        n_batches: Number of batches that were scored.
    """

    log_likelihood: float
    standard_error: float
    n_batches: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """Holds how a paper trains on a task, for `edgefold train --recipe`.

    Attributes:
        training: Settings of `FitConfig`.
        options: Options of the task by name, which a user may still change.
    """

    training: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Episode:
    """Holds the points of one stream from its reset on, in the caller's units.

    Attributes:
        x, y: Inputs (n, X) and outputs (n, Y): points that are learned, then points that are
            predicted.
        n_context: Number of points that are learned before the first prediction.
        prequential: Whether each predicted point is learned before the next prediction.
    """

    x: FloatArray
    y: FloatArray
    n_context: int
    prequential: bool = False


@dataclass(frozen=True, slots=True)
class TaskStreams:
    """Holds streams of a task that calibrate a narrow precision and streams that measure its cost.

    Attributes:
        calibration: Streams that set the ranges of numbers in the narrow precision.
        scored: Episodes that show the cost, by name; empty where nothing can be scored.
        calibrated_on, measured_on: Descriptions in words of the streams in `calibration` and in
            `scored`.
    """

    calibration: list[Episode]
    scored: dict[str, Iterator[Episode]] = field(default_factory=dict)
    calibrated_on: str = ""
    measured_on: str = ""


class Task:
    """Gives the batches that a model is trained on, and scores the trained model; the base class.

    Attributes:
        name: Name of the task, stored with every run.
        n_inputs, n_outputs: X and Y, the numbers of inputs and outputs of a model for the task.
        training: Defaults of `FitConfig` that suit the task.
        recipe: The papers' training on the task; None where no paper trains on it.
        model_settings: Settings of the model that suit the task, where the model has them.
        default_model: Name of the model that is trained unless another is asked for; where it is
            empty, `DEFAULT` of `edgefold.train.models.registry`.
        n_features: Columns of x in a training batch, where a filter learns from features of its
            inputs; 0 where it learns from the inputs themselves.
        prediction: Name of the kind of prediction that a model must have; any where it is empty.
        filters: Whether the task takes only filters, models that read its tokens in order and never
            see a label.
        option_class: A frozen dataclass of the task's own options; its fields are made by
            `edgefold.runtime.options.option`.
        about: Text on what the task is and how long its training takes; `edgefold train TASK
            --help` begins with it.
        notes: Lines of text on what the task is made of; `edgefold train` prints them as it starts.
    """

    name: str = ""
    n_inputs: int = 1
    n_outputs: int = 1
    n_features: int = 0
    training: ClassVar[Mapping[str, Any]] = {}
    recipe: ClassVar[Recipe | None] = None
    model_settings: Mapping[str, Any] = {}
    default_model: ClassVar[str] = ""
    prediction: str = ""
    filters: ClassVar[bool] = False
    option_class: ClassVar[type | None] = None
    about: ClassVar[str] = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def add_options(cls, parser: Any) -> None:
        """Declare further options of `edgefold train` on an argparse parser; none by default."""

    @classmethod
    def from_options(cls, args: Any, kept: dict[str, Any] | None = None) -> Task:
        """Return the task that the options of a command ask for.

        Args:
            args: An instance of `option_class`; where there is no such class, all options of the
                command.
            kept: The result of `describe()` that the run stores which is resumed, if there is one.
        """
        return cls()

    def prepare(self, say: Callable[[str], None]) -> None:
        """Make the files that batches are read from, before a training starts or resumes.

        It does nothing unless a task overrides it.

        Args:
            say: Takes a line of text on the progress.
        """

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """Return a batch of n_tasks training tasks in scaled units, drawn only from the generator.

        For a filter x_context holds tokens whose answers are not scored, x_target the tokens after
        them, and y_target the right answers to x_target; y_context is not read.
        """
        raise NotImplementedError(f"{type(self).__name__} has no training_batch()")

    def describe(self) -> dict[str, Any]:
        """Return the entries that config.json stores of the task.

        They are `name`; x_shift, x_scale, y_shift and y_scale where raw values are scaled; and
        whatever else rebuilds the task.
        """
        return {"name": self.name or type(self).__name__}

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Score a model on drawn batches; return the scores as JSON, and a table of them as text.

        Args:
            model: The model, in evaluation mode.
            n_batches: Number of batches to score it on.
            seed: Seed of the batches; training draws with other seeds.
            names: Name of the run, and how long it was trained, in words, for the table.
        """
        draw = self.training_batch
        score = mean_score(model, lambda generator: draw(16, generator), n_batches, seed)
        text = f"{names[0]}, {names[1]}: mean log-likelihood of a target {score.log_likelihood:.3f}"
        scores = {"log_likelihood": score.log_likelihood, "standard_error": score.standard_error}
        return {"training_batches": {**scores, "n_batches": score.n_batches}}, (
            f"{text} ± {score.standard_error:.3f} nats over {score.n_batches:,} batches"
        )

    def draw(self, model: StreamingModel, format: str, seed: int, title: str) -> bytes:
        """Draw the predictions of a model; return the content of the picture file.

        Args:
            model: The model, in evaluation mode.
            format: File format: png, svg or pdf.
            seed: Seed that chooses what is drawn.
            title: Title of the picture.

        Raises:
            DataError: The task has no picture, or the model's predictions are of another kind.
        """
        raise DataError(f"the task {self.name} has no picture; leave --plot out.")

    @classmethod
    def streams(cls, described: dict[str, Any], args: Any) -> TaskStreams:
        """Return the streams that calibrate a narrow precision and measure its cost, in raw units.

        Args:
            described: The result of `describe` when the model was trained.
            args: The task's options that the export command has too, as `from_options` gets them.
        """
        task = cls.from_options(args, described)
        calibration, scored = task._episodes(20240611), task._episodes(20240612)
        return TaskStreams(
            [next(calibration) for _ in range(N_CALIBRATED)],
            {described["name"]: scored},
            f"{N_CALIBRATED} streams of the training task",
            "draws of the training task",
        )

    def _episodes(self, seed: int) -> Iterator[Episode]:
        generator = torch.Generator().manual_seed(seed)
        described = self.describe()
        while True:
            batch = self.training_batch(1, generator)
            yield episode_of(batch, described)


def options_of(
    args: Any,
    names: Sequence[str],
    kept: Mapping[str, Any] | None,
    error: type[EdgefoldError] = DataError,
) -> dict[str, Any]:
    """Return named options by name: those that a command gives, or all that a resumed run keeps.

    Paths become text.

    Args:
        args: Options of the command; an option that the user left out is None.
        names: Names of the options to return.
        kept: Description of the task of the run that is resumed, if there is one.
        error: Class of the error for a command that gives another value than the run keeps.
    """
    named = {name: value for name in names if (value := getattr(args, name)) is not None}
    named = {name: str(v) if isinstance(v, Path) else v for name, v in named.items()}
    if kept is None:
        return named
    changed = [name.replace("_", "-") for name, value in named.items() if value != kept[name]]
    if changed:
        raise error(
            f"the run was started with another --{' and --'.join(changed)}; leave the option out, "
            "or start another run with another --out."
        )
    return {name: kept[name] for name in names}


@torch.inference_mode()
def hits(model: StreamingModel, batch: Batch) -> Tensor:
    """Return 1 for each target whose class with the largest score is right, else 0, (B, M)."""
    prediction = model(batch.x_context, batch.y_context, batch.x_target, batch.mask)
    return (prediction["scores"].argmax(-1) == batch.y_target[..., 0]).float()


def episode_of(batch: Batch, described: Mapping[str, Any]) -> Episode:
    """Return the first task of a batch as a stream in raw units.

    Args:
        batch: Tasks in scaled units; context points whose mask is False are left out.
        described: The task's description with shift and scale of x and y, where it has them.
    """
    seen = slice(None) if batch.mask is None else batch.mask[0]
    parts = []
    for name, context, target in (
        ("x", batch.x_context, batch.x_target),
        ("y", batch.y_context, batch.y_target),
    ):
        rows = torch.cat([context[0][seen], target[0]]).double().numpy()
        scale, shift = described.get(f"{name}_scale", 1.0), described.get(f"{name}_shift", 0.0)
        parts.append(rows * np.array(scale) + np.array(shift))
    return Episode(parts[0], parts[1], len(parts[0]) - batch.x_target.shape[1])


def _seeds(seed: int, index: int, n_tasks: int) -> Tensor:
    """Return the seeds (n_tasks,) of the samples of each task of batch number `index`."""
    first = torch.Generator().manual_seed(20240613 + seed)
    start = int(torch.randint(PRIME, (), generator=first))
    return (start + index * n_tasks + torch.arange(n_tasks)) % PRIME


@torch.inference_mode()
def mean_score(
    model: StreamingModel, draw: Any, n_batches: int, seed: int, label: str = ""
) -> Score:
    """Return a model's log-likelihood, averaged over the targets of a batch and then over batches.

    A model that draws samples draws others for each task, from seeds that `seed` decides: so the
    standard error contains their noise.

    Args:
        model: The model, in evaluation mode.
        draw: Returns a batch when it is called with a generator.
        n_batches: Number of batches.
        seed: Seed of the batches.
        label: Word that the progress bar shows.
    """
    from tqdm import tqdm

    generator = torch.Generator().manual_seed(20240606 + seed)  # only its lower 32 bits count
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    scores = torch.empty(n_batches, dtype=torch.float64)
    for index in tqdm(range(n_batches), desc=f"evaluate {label}", leave=False, disable=None):
        batch: Batch = draw(generator)
        batch = replace(batch, seeds=_seeds(seed, index, len(batch.x_target))).to(device)
        scores[index] = model.log_likelihood(batch).mean()
    error = scores.std().item() / math.sqrt(n_batches) if n_batches > 1 else math.nan
    return Score(scores.mean().item(), error, n_batches)
