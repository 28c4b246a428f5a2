from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefold.export.checks.laws import Law
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.train.contract import advance
from edgefold.train.models.constant_memory.cmanp import (
    PRESETS,
    Cmanp,
    CmanpConfig,
)
from tests.conftest import tiny_config, tiny_model
from tests.contract import Contract, Subject, hold


class TorchContract(Contract):
    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.name)
    def test_the_model_keeps_the_contract(self, subject: Subject, check: Law) -> None:
        hold(check, subject)


@pytest.mark.product  # TestPaperPlain holds the same laws every day
class TestFourier(TorchContract):
    @pytest.fixture
    def subject(self) -> Subject:
        return TorchSubject(tiny_model(), 2)


class TestPaperPlain(TorchContract):
    @pytest.fixture
    def subject(self) -> Subject:
        torch.manual_seed(3)
        plain = CmanpConfig(2, 1, 2, 32, 2, 16, 48, "mlp", "normal", query_gain=1.0)
        # Untrained, this variant hardly hears its points; louder values let the suite see them.
        model = Cmanp(plain).eval()
        with torch.no_grad():
            model.context_attention.v.weight.mul_(30)
            model.context_attention.out.weight.mul_(30)
        return TorchSubject(model, 1)


@pytest.fixture
def model() -> Cmanp:
    return tiny_model()


def draw(n: int, n_streams: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(n_streams, n, 2, generator=generator) * 4 - 2
    return x, torch.sin(2 * x.sum(-1, keepdim=True))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 16))
def test_masked_rows_are_invisible_nan_included(seed: int) -> None:
    model = tiny_model()
    generator = torch.Generator().manual_seed(seed)
    x, y = draw(12)
    mask = torch.rand(2, 12, generator=generator) < 0.6
    poisoned_x, poisoned_y = x.clone(), y.clone()
    poisoned_x[~mask] = torch.nan
    poisoned_y[~mask] = torch.inf
    with torch.inference_mode():
        state = model.condition(model.initial_state(2), poisoned_x, poisoned_y, mask)
        forward = model(poisoned_x, poisoned_y, x[:, :3], mask)
        for stream in range(2):
            kept = mask[stream]
            only = model.condition(
                model.initial_state(1), x[stream : stream + 1, kept], y[stream : stream + 1, kept]
            )
            for name, tensor in only.items():
                torch.testing.assert_close(
                    state[name][stream : stream + 1], tensor, rtol=1e-5, atol=1e-6
                )
            alone = model(
                x[stream : stream + 1, kept],
                y[stream : stream + 1, kept],
                x[stream : stream + 1, :3],
            )
            found = {name: tensor[stream : stream + 1] for name, tensor in forward.items()}
            torch.testing.assert_close(found, alone, rtol=0, atol=2e-6)


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(0, 30))
def test_merging_two_states_equals_folding_all_points(cut: int) -> None:
    model = tiny_model().double()
    x, y = (t.double() for t in draw(30))
    with torch.inference_mode():
        empty = model.initial_state(2)
        whole = model.condition(empty, x, y)
        left = model.condition(empty, x[:, :cut], y[:, :cut])
        right = model.condition(empty, x[:, cut:], y[:, cut:])
        merged = model.merge(left, right)
        other = model.merge(right, left)
    for name, tensor in whole.items():
        torch.testing.assert_close(merged[name], tensor, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(other[name], tensor, rtol=1e-10, atol=1e-12)


def test_the_update_is_the_papers_rolling_softmax(model: Cmanp) -> None:
    """Section 3.1: the running attention equals softmax(Q K^T) V over all points."""
    x, y = draw(25)
    with torch.inference_mode():
        state = model.initial_state(2)
        for row in range(25):
            state = model.update(state, x[:, row], y[:, row])
        scores, values = model.scores_values(x, y, None)
        expected = torch.softmax(scores, -1) @ values
    torch.testing.assert_close(state["attended"], expected, rtol=1e-4, atol=1e-5)


def test_inducing_latents_attend_near_themselves_from_the_first_step() -> None:
    """The reason of the initialisation: attention is local in x before any training."""
    torch.manual_seed(0)
    model = Cmanp(CmanpConfig(n_blocks=1, n_latents=32))
    x = torch.linspace(-2, 2, 41)[None, :, None]
    with torch.inference_mode():
        scores, _ = model.scores_values(x, torch.zeros_like(x), None)
        centre = (torch.softmax(scores, -1) @ x[:, None, None])[0, 0].mean(0)[:, 0]
    spread = torch.corrcoef(torch.stack([centre, torch.linspace(-2, 2, 32)]))[0, 1]
    assert spread > 0.8


def test_presets_have_the_papers_size() -> None:
    paper = PRESETS["paper"]
    assert (paper.n_blocks, paper.width, paper.n_heads, paper.n_latents) == (6, 64, 4, 128)
    n_parameters = sum(p.numel() for p in Cmanp(paper).parameters())
    assert n_parameters == pytest.approx(
        1_341_634, rel=0.02
    )  # the published count; ours shares an embedder


@pytest.mark.parametrize("bad", [{"width": 30}, {"n_blocks": 0}, {"n_latents": 0}, {"n_inputs": 0}])
def test_impossible_sizes_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        CmanpConfig(**bad)  # type: ignore[arg-type]


def test_gradients_reach_every_parameter() -> None:
    model = Cmanp(tiny_config())
    x, y = draw(9)
    model.prediction.log_likelihood(model(x, y, x[:, :4]), y[:, :4], torch).mean().backward()
    silent = [
        n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0
    ]
    assert not silent


# float32 in another order, values around 1; float16 keeps 11 bits, and layers add up their errors
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float16", 4e-3)])
@pytest.mark.parametrize("embedding", ["fourier", "mlp"])
def test_the_form_for_devices_predicts_what_the_trained_form_predicts(
    embedding: Literal["fourier", "mlp"], dtype: str, tolerance: float
) -> None:
    torch.manual_seed(0)
    model = Cmanp(CmanpConfig(2, 1, 2, 32, 2, 16, 48, embedding)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # so that folding them is not trivial
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    device = model.for_device(2, dtype)
    state, rewritten = model.initial_state(2), device.initial_state(2)
    with torch.inference_mode():
        for step in range(6):
            x, y = draw(8 + step)
            mask = torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(step)) < 0.7
            chunk = (x[:, 1:], y[:, 1:], mask[:, 1:])
            state = model.condition(model.update(state, x[:, 0], y[:, 0]), *chunk)
            for method, points in (("update", (x[:, 0], y[:, 0])), ("condition", chunk)):
                written = getattr(device, method)(rewritten, *points)
                assert torch.isfinite(written["finite"]).all()
                rewritten = advance(device, rewritten, written)
            if step % 2:
                rewritten = advance(device, rewritten, device.consolidate(rewritten))
        expected = model.query(model.refresh(state), x)
        found = device.query(device.refresh(rewritten), x)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=tolerance)


def test_the_form_for_devices_names_a_step_that_is_not_finite(model: Cmanp) -> None:
    device = model.for_device(2)
    x, y = draw(3)
    y[1, 2] = torch.inf
    with torch.inference_mode():
        finite = device.condition(device.initial_state(2), x, y)["finite"]
    assert torch.isfinite(finite).tolist() == [True, False]
