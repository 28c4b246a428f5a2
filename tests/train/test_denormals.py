from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgefold.train.batch import Batch
from edgefold.train.denormals import denormals_flushed
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.gp import GpTask
from edgefold.train.training_loop import FitConfig, fit

FLUSHES = torch.set_flush_denormal(False)
needs_flush = pytest.mark.skipif(not FLUSHES, reason="this processor cannot flush denormals")


def product() -> float:
    return (torch.full((1,), 1e-38) * 0.01).item()


@needs_flush
def test_denormals_are_0_inside_and_back_afterwards() -> None:
    assert product() > 0
    with denormals_flushed():
        assert product() == 0
        with denormals_flushed():
            assert product() == 0
        assert product() == 0
    assert product() > 0


@needs_flush
def test_training_flushes_denormals(tmp_path: Path) -> None:
    seen: list[float] = []

    class Watched(GpTask):
        def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
            seen.append(product())
            return super().training_batch(n_tasks, generator)

    fit(create_model("cnp"), Watched(4, 4), FitConfig(steps=2, batch=2, threads=1), tmp_path / "r")
    assert seen == [0, 0]
    assert product() > 0
