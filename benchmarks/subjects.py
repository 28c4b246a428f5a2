"""Subjects of the benchmarks: a model as a bundle and as a PyTorch run, with the same weights.

    FOLDER/run       config.json, model.safetensors: what PyTorch loads
    FOLDER/bundle    what Edgefold opens

Untrained weights do where time and memory are asked; nothing here measures. Run as a module
(`python -m benchmarks.subjects`) it writes both, so that a process that measures memory never
imports torch.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.record import ROOT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[Any]

SEED = 0
EXAMPLES = {
    "gru": "Gru",
    "lstm": "Lstm",
    "ssm": "Ssm",
    "tcn": "Tcn",
    "transformer": "Transformer",
    "kalman": "Kalman",
    "rls": "Rls",
    "keyword_spotter": "KeywordSpotter",
}
"""The models of examples/, by file."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One model in both forms."""

    run: Path
    bundle: Path


@contextmanager
def untrained(preset: str) -> Iterator[Subject]:
    """A preset's model with random weights, in a temporary folder; written by another process."""
    with prepared(["--preset", preset]) as subject:
        yield subject


@contextmanager
def trained(run: Path) -> Iterator[Subject]:
    """A copy of a training run as it stands, and its bundle, in a temporary folder."""
    with prepared(["--run", str(run)]) as subject:
        yield subject


@contextmanager
def prepared(options: list[str]) -> Iterator[Subject]:
    """Let another process write a subject; the folder goes when the block ends."""
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        command = [sys.executable, "-m", "benchmarks.subjects", *options, folder]
        subprocess.run(command, cwd=ROOT, check=True)
        yield Subject(Path(folder) / "run", Path(folder) / "bundle")


def points(n: int, n_inputs: int = 1, seed: int = SEED) -> tuple[FloatArray, FloatArray]:
    """Return x (n, X) over [-2, 2] and y (n, 1), a smooth function; float32 holds them exactly."""
    import numpy as np

    from edgefold.devices.profile.calls import spread_evenly

    x = spread_evenly((n, n_inputs), seed * 0.37) * 4 - 2
    y = np.sin(2 * x.sum(axis=1, keepdims=True) + seed) * 0.7
    return x.astype(np.float32).astype(np.float64), y.astype(np.float32).astype(np.float64)


def write(folder: Path, preset: str | None, run: Path | None) -> None:
    """Write run and bundle: of a preset with random weights, or of a training run."""
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.checkpoints import load_model, save_tensors, write_config
    from edgefold.train.models.registry import DEFAULT, create_model

    torch.set_num_threads(1)
    if run is None:
        torch.manual_seed(SEED)
        model = create_model(DEFAULT, preset=preset or "paper")
        (folder / "run").mkdir()
        save_tensors(folder / "run" / "model.safetensors", dict(model.state_dict()), {})
        write_config(folder / "run", model, {"name": "untrained"}, {})
    else:
        (folder / "run").mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(run / name, folder / "run" / name)
    model, config = load_model(folder / "run")
    export_bundle(model, config["task"], folder / "bundle", ExportConfig(parity_steps=256))


def main() -> None:
    """Write a subject into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=["small", "paper"])
    parser.add_argument("--run", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    write(args.folder, args.preset, args.run)


if __name__ == "__main__":
    main()
