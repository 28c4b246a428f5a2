"""Perceiver IO: its size, and that its constant state gives what the batched form gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgefold.export.checks.laws import Law
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.train.models.attentive.perceiver_io import PRESETS, PerceiverIo, PerceiverIoConfig
from tests.contract import Contract, Subject, hold


def tiny(n_classes: int = 0) -> PerceiverIo:
    torch.manual_seed(0)
    shape = {"n_blocks": 2, "width": 32, "n_heads": 2, "n_latents": 8, "feedforward": 48}
    config = PerceiverIoConfig(n_inputs=2, n_classes=n_classes, **shape)  # type: ignore[arg-type]
    return PerceiverIo(config).eval()


def draw(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(2, n, 2, generator=generator) * 4 - 2
    return x, torch.sin(2 * x.sum(-1, keepdim=True))


class TestPerceiverIo(Contract):
    @pytest.fixture
    def subject(self) -> Subject:
        return TorchSubject(tiny(), 2)

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.name)
    def test_the_model_keeps_the_contract(self, subject: Subject, check: Law) -> None:
        hold(check, subject)


def test_the_paper_preset_has_the_size_that_its_note_gives() -> None:
    assert sum(p.numel() for p in PerceiverIo(PRESETS["paper"]).parameters()) == 375_234


@pytest.mark.parametrize(("n_streams", "n_classes"), [(1, 0), (2, 0), (2, 5)])
def test_the_device_form_predicts_the_same_beyond_consolidations(
    n_streams: int, n_classes: int
) -> None:
    model = tiny(n_classes)
    device = model.for_device(n_streams)
    x, y = (t[:n_streams] for t in draw(60))
    if n_classes:
        y = (x.sum(-1, keepdim=True).abs() * 10).floor() % n_classes
    with torch.inference_mode():
        state = device.initial_state(n_streams)
        for row in range(60):
            state |= device.update(state, x[:, row], y[:, row])
            if row % 20 == 19:
                state |= device.consolidate(state)
        found = device.query(device.refresh(state), x[:, :5])
        expected = model(x, y, x[:, :5])
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=2e-6)  # float32 sums


def test_gradients_reach_every_parameter() -> None:
    model, (x, y) = tiny(), draw(9)
    model.prediction.log_likelihood(model(x, y, x[:, :4]), y[:, :4], torch).mean().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


@pytest.mark.parametrize("bad", [{"width": 30}, {"n_blocks": 0}, {"n_latents": 0}])
def test_impossible_sizes_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        PerceiverIoConfig(**bad)  # type: ignore[arg-type]
