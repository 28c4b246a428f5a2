"""Perceiver IO in both forms: its size, and that its state gives what the batched form gives."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from edgefold.export.checks.laws import Law
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.train.contract import advance
from edgefold.train.models.attentive.perceiver_io import (
    PRESETS,
    PerceiverIo,
    PerceiverIoConfig,
    PerceiverIoIterative,
    PerceiverIoOnce,
)
from tests.contract import Contract, Subject, hold

FORMS = pytest.mark.parametrize("reads", ["once", "each-block"])


def tiny(n_classes: int = 0, reads: str = "once") -> PerceiverIo:
    torch.manual_seed(0)
    shape = {"n_blocks": 2, "width": 32, "n_heads": 2, "n_latents": 8, "feedforward": 48}
    more = {"n_inputs": 2, "n_classes": n_classes, "reads_context": reads, "capacity": 64}
    return PerceiverIo(PerceiverIoConfig(**shape, **more)).eval()  # type: ignore[arg-type]


def draw(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(2, n, 2, generator=generator) * 4 - 2
    return x, torch.sin(2 * x.sum(-1, keepdim=True))


class TestPerceiverIo(Contract):
    @pytest.fixture(params=["once", "each-block"])
    def subject(self, request: pytest.FixtureRequest) -> Subject:
        return TorchSubject(tiny(reads=request.param), 2)

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.name)
    def test_the_model_keeps_the_contract(self, subject: Subject, check: Law) -> None:
        hold(check, subject)


def test_the_paper_preset_has_the_size_that_its_note_gives() -> None:
    iterative = PerceiverIo(PRESETS["paper"])
    once = PerceiverIo(replace(PRESETS["paper"], reads_context="once"))
    sizes = [sum(p.numel() for p in model.parameters()) for model in (iterative, once)]
    assert sizes == [583_874, 375_234]


def test_the_setting_chooses_the_class_and_the_state() -> None:
    once, iterative = tiny(), tiny(reads="each-block")
    assert type(once) is PerceiverIoOnce and type(iterative) is PerceiverIoIterative
    assert once.capacity == 0 and "attended" in once.initial_state()
    assert iterative.capacity == 64 and iterative.initial_state()["keys"].shape[1] == 64
    for model in (once, iterative):
        assert type(deepcopy(model)) is type(model)


def test_settings_from_before_there_were_two_forms_give_the_single_reading() -> None:
    assert PerceiverIoConfig().reads_context == "once"
    assert PRESETS["small"].reads_context == "once"


@FORMS
@pytest.mark.parametrize(("n_streams", "n_classes"), [(1, 0), (2, 0), (2, 5)])
def test_the_device_form_predicts_the_same_beyond_consolidations(
    n_streams: int, n_classes: int, reads: str
) -> None:
    model = tiny(n_classes, reads)
    device = model.for_device(n_streams)
    x, y = (t[:n_streams] for t in draw(60))
    if n_classes:
        y = (x.sum(-1, keepdim=True).abs() * 10).floor() % n_classes
    with torch.inference_mode():
        state = device.initial_state(n_streams)
        for row in range(60):
            state = advance(device, state, device.update(state, x[:, row], y[:, row]))
            if row % 20 == 19:
                state |= device.consolidate(state)
        found = device.query(device.refresh(state), x[:, :5])
        expected = model(x, y, x[:, :5])
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=2e-6)  # float32 sums


@FORMS
def test_gradients_reach_every_parameter(reads: str) -> None:
    model, (x, y) = tiny(reads=reads), draw(9)
    model.prediction.log_likelihood(model(x, y, x[:, :4]), y[:, :4], torch).mean().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


@pytest.mark.parametrize(
    "bad",
    [
        {"width": 30},
        {"n_blocks": 0},
        {"n_latents": 0},
        {"reads_context": "twice"},
        {"keep": "nothing"},
    ],
)
def test_impossible_settings_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        PerceiverIoConfig(**bad)  # type: ignore[arg-type]
