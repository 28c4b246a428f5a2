"""A bundle of CMANP-AND scores a batch block by block as PyTorch does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream
from edgefold.train.batch import Batch
from edgefold.train.models.constant_memory.cmanp_and import CmanpAnd, CmanpAndConfig


@pytest.mark.long
def test_a_bundles_blocks_score_as_in_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = CmanpAndConfig(n_blocks=1, width=16, n_heads=2, n_latents=4, feedforward=8, block=3)
    model = CmanpAnd(config).eval()
    export_bundle(
        model, {"name": "none"}, tmp_path / "b", ExportConfig(targets=4, parity_steps=128)
    )
    x, y = torch.randn(1, 15, 1), torch.randn(1, 15, 1)
    batch = Batch(x[:, :8], y[:, :8], x[:, 8:], y[:, 8:])  # blocks of 3, 3 and 1
    with torch.no_grad():
        expected = 7 * model.log_likelihood(batch).item()
    with Stream.open(tmp_path / "b") as stream:
        assert stream.manifest.prediction == model.prediction
        stream.condition(*(t[0].numpy() for t in (batch.x_context, batch.y_context)))
        found = stream.joint_log_likelihood(x[0, 8:].numpy(), y[0, 8:].numpy())
        # An untrained model scores -520 here: float32 resolves 6e-5 of that, PyTorch sums in it.
        assert found == pytest.approx(expected, rel=1e-5)
        assert stream.sample(batch.x_target[0].numpy(), 2).shape == (2, 7, 1)
