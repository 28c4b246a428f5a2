"""Define the task of completing images: some pixels of an image are known, others are predicted.

x is a pixel's row and column, scaled to [-1, 1]; y its channels, scaled to [-0.5, 0.5] (LBANP,
section 4.1). N is drawn from [3, P - 3) and M from [3, P - N), both once a batch, where P is 200
pixels of an image 28 or 32 a side, 800 of 64 and 1,600 of 128; there training has at most 400
targets, as in the papers' code. An 8x8 image has 64. The likelihood sums the channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.settings import PAPER_RECIPE
from edgefold.train.tasks.contract import (
    N_CALIBRATED,
    Episode,
    Recipe,
    Task,
    TaskStreams,
    episode_of,
    mean_score,
    options_of,
)
from edgefold.train.tasks.images.image_sources import (
    DOWNLOADS,
    SIZES,
    Images,
    ImageSet,
    load_images,
)

N_POINTS = {8: 64, 28: 200, 32: 200, 64: 800, 128: 1600}
"""Largest number of context points and targets together, by pixels a side."""
BOUNDED = ("digits", "emnist")
"""Sources whose images have a background of one constant value: see `Outputs.bounded`."""
MOST_TARGETS = 400
"""Largest number of targets of each image of a training batch."""

ABOUT = """\
Learn to complete images: some pixels are known, the others are predicted.

digits (8x8) and photographs (32x32 crops) come with edgefold. emnist and celeba are read from a
folder of yours; without it the command says what to download.

5,000 steps on digits take some 10 minutes on one core of a two-core x86-64 machine."""


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """Holds the options of `edgefold train images`; no other command has these options."""

    title: ClassVar[str] = "images"
    source: str | None = option(
        "of images (default digits)", choices=tuple(SIZES), stored="image_source"
    )
    size: int | None = option(
        "pixels a side of celeba's images (default 32)",
        choices=SIZES["celeba"],
        stored="image_size",
    )
    folder: Path | None = option(
        "where the files of emnist or celeba lie, as they are downloaded",
        "PATH",
        stored="image_folder",
    )


class ImageTask(Task):
    """Draws batches of images to complete, from one source.

    Args:
        source: "digits", "photographs", "emnist" or "celeba".
        images: Images of the source, from `load_images`.
        folder: Folder in which the files lie, as the user typed it; empty where there is none.
    """

    option_class = ImageOptions
    name = "images"
    about = ABOUT
    n_inputs = 2
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 5_000,
        "batch": 16,
        "warmup": 200,
        "learning_rate": 2e-3,
        "optimizer": "muon",
    }
    # 200 epochs of EMNIST, and of CelebA at 32 pixels a side 365,400 steps.
    recipe = Recipe({**PAPER_RECIPE, "steps": 48_000, "batch": 100})
    model_settings: Mapping[str, Any] = {"input_low": -1.0, "input_high": 1.0}

    def __init__(self, source: str, images: ImageSet, folder: str = ""):
        self.source, self.images, self.folder = source, images, folder
        self.model_settings = {**self.model_settings, "bounded": source in BOUNDED}
        n, self.size, _, self.n_outputs = images.training.shape
        held_out = ", ".join(f"{len(some):,} {name}" for name, some in images.held_out.items())
        self.notes = (
            f"{source}: {n:,} training images of {self.size} x {self.size} pixels, {held_out}",
        )

    def describe(self) -> dict[str, Any]:
        """Return the source and the scaling of a bundle.

        A bundle takes a pixel's row and column as numbers from 0 on, and raw values of channels.
        """
        half, brightest = (self.size - 1) / 2, float(self.images.brightest)
        return {
            "name": self.name,
            "source": self.source,
            "size": self.size,
            "folder": self.folder,
            "x_shift": [half] * 2,
            "x_scale": [half] * 2,
            "y_shift": [brightest / 2] * self.n_outputs,
            "y_scale": [brightest] * self.n_outputs,
        }

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        return self.batch(self.images.training, n_tasks, generator, MOST_TARGETS)

    def batch(
        self,
        images: Images,
        n_tasks: int,
        generator: torch.Generator,
        most_targets: int | None = None,
    ) -> Batch:
        """Draw images with replacement, and N pixels as context and M as targets of each image.

        N is drawn from [3, P - 3) and M from [3, P - N), once for the batch, where P is
        `N_POINTS` for the images' size (LBANP, section 4.1).

        Args:
            images: Images to draw from.
            n_tasks: Number of images of the batch.
            generator: Source of random numbers.
            most_targets: Largest M, to which a larger one is cut; None for no cut.
        """
        n_points = N_POINTS[self.size]
        n = int(torch.randint(3, n_points - 3, (), generator=generator))
        m = int(torch.randint(3, n_points - n, (), generator=generator))
        m = min(m, most_targets or m)
        rows = torch.randint(len(images), (n_tasks,), generator=generator)
        x, y = self.points(images[rows.numpy()])
        order = torch.rand(y.shape[:2], generator=generator).argsort(-1)[:, : n + m]
        x, y = x[order], y.gather(1, order[..., None].expand(-1, -1, y.shape[-1]))
        return Batch(x[:, :n], y[:, :n], x[:, n:], y[:, n:])

    def points(self, images: Images) -> tuple[Tensor, Tensor]:
        """Return scaled places x (P, 2) of all pixels, row by row, and their values y (B, P, C)."""
        line = torch.linspace(-1, 1, self.size)
        x = torch.cartesian_prod(line, line)
        y = torch.from_numpy(images.reshape(len(images), -1, images.shape[-1])).float()
        return x, y / self.images.brightest - 0.5

    @classmethod
    def from_options(cls, args: ImageOptions, kept: dict[str, Any] | None = None) -> ImageTask:
        """Load the images that the options name and return their task; see `Task.from_options`.

        Raises:
            DataError: The source has no images of this size, its files are not there, or a run
                that is resumed has another source, size or folder.
        """
        named = options_of(args, ("source", "size", "folder"), kept)
        source, folder = named.get("source", "digits"), named.get("folder", "")
        size = named.get("size", SIZES[source][0])
        if size not in SIZES[source]:
            raise DataError(f"{source} has no images of {size} pixels a side; leave --size out.")
        if folder and source not in DOWNLOADS:
            raise DataError(f"{source} comes with edgefold; leave --folder out.")
        return cls(source, load_images(source, size, Path(folder) if folder else None), folder)

    def evaluate(
        self, model: StreamingModel, n_batches: int, seed: int, names: tuple[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Score a model by the mean log-likelihood of a pixel, on each held-out part of the images.

        A batch is drawn by `batch`, of 16 images; arguments and results are those of
        `Task.evaluate`.
        """
        by_part = {
            name: mean_score(
                model, lambda generator, some=some: self.batch(some, 16, generator), n_batches, seed
            )
            for name, some in self.images.held_out.items()
        }
        key = self.source if len(SIZES[self.source]) == 1 else f"{self.source}-{self.size}"
        run, published = ", ".join(names), model.published.get(key, {})
        width = max(map(len, (run, *published))) + 2
        cells = "".join(
            f"{s.log_likelihood:>12.3f} ± {s.standard_error:.3f}" for s in by_part.values()
        )
        lines = [
            f"mean log-likelihood of a pixel of {self.source}, nats, its channels summed",
            f"{'':{width}}" + "".join(f"{name:>20}" for name in by_part),
            f"{run:{width}}{cells}",
            *(
                f"{row:{width}}" + "".join(f"{score:>12.2f}{'':8}" for score in scores)
                for row, scores in published.items()
            ),
        ]
        return {name: asdict(score) for name, score in by_part.items()}, "\n".join(lines)

    def draw(self, model: StreamingModel, format: str, seed: int, title: str) -> bytes:
        from edgefold.train.tasks.images.image_pictures import draw_completions

        return draw_completions(self, model, format, seed, title)

    @classmethod
    def streams(cls, described: dict[str, Any], args: ImageOptions) -> TaskStreams:
        """Return training images to set a narrow precision's ranges, held-out ones to score it."""
        task = cls.from_options(args, described)
        return TaskStreams(
            list(islice(task._streams(task.images.training, 20240611), N_CALIBRATED)),
            {name: task._streams(some, 20240612) for name, some in task.images.held_out.items()},
            f"{N_CALIBRATED} training images of {task.source}",
            f"held-out images of {task.source}",
        )

    def _streams(self, images: Images, seed: int) -> Iterator[Episode]:
        generator, described = torch.Generator().manual_seed(seed), self.describe()
        while True:
            yield episode_of(self.batch(images, 1, generator), described)
