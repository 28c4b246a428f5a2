"""LBANP: its size, and that streaming gives what the batched form gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgefold.train.contract import State, StreamingModel, advance
from edgefold.train.models.attentive.lbanp import PRESETS, Lbanp, LbanpConfig

SETTINGS: dict[str, Any] = {
    "n_inputs": 2,
    "n_blocks": 2,
    "width": 32,
    "n_heads": 2,
    "n_latents": 8,
    "feedforward": 48,
    "capacity": 24,
}


def tiny(**settings: Any) -> Lbanp:
    torch.manual_seed(0)
    return Lbanp(LbanpConfig(**SETTINGS | settings)).eval()


def draw(n: int, n_streams: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Points and five targets: x (B, n, 2), y (B, n, 1), targets (B, 5, 2)."""
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(n_streams, n + 5, 2, generator=generator) * 4 - 2
    return x[:, :n], torch.sin(2 * x[:, :n].sum(-1, keepdim=True)), x[:, n:]


def fold(model: StreamingModel, x: Tensor, y: Tensor) -> State:
    state = model.initial_state(len(x))
    for row in range(x.shape[1]):
        state = advance(model, state, model.update(state, x[:, row], y[:, row]))
    return state


def predicted(model: StreamingModel, x: Tensor, y: Tensor, targets: Tensor) -> dict[str, Tensor]:
    with torch.inference_mode():
        return model.query(model.refresh(fold(model, x, y)), targets)


def differences(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def test_the_paper_preset_has_the_published_number_of_parameters() -> None:
    assert sum(p.numel() for p in Lbanp(PRESETS["paper"]).parameters()) == 792_514


@pytest.mark.parametrize("keep", ["keys", "points"])
@pytest.mark.parametrize("n_points", [0, 1, 24])
def test_streaming_predicts_what_the_batched_form_predicts(keep: str, n_points: int) -> None:
    model, (x, y, targets) = tiny(keep=keep), draw(n_points)
    with torch.inference_mode():
        whole = model(x, y, targets)
    # float32 sums in another order
    assert differences(predicted(model, x, y, targets), whole) < 2e-6


@pytest.mark.parametrize("when_full", ["overwrite", "reservoir"])
def test_a_full_buffer_predicts_from_the_points_that_it_holds(when_full: str) -> None:
    found = []
    for keep in ("keys", "points"):
        model, (x, y, targets) = tiny(keep=keep, when_full=when_full, capacity=8), draw(30)
        found.append(predicted(model, x, y, targets))
    assert differences(*found) < 2e-6  # both keep the same points
    if when_full == "overwrite":
        with torch.inference_mode():
            last = model(x[:, -8:], y[:, -8:], targets)
        assert differences(found[0], last) < 2e-6


def test_a_full_buffer_that_refuses_is_not_finite() -> None:
    model, (x, y, _) = tiny(capacity=4), draw(5)
    state = fold(model, x[:, :4], y[:, :4])
    assert not model.update(state, x[:, 4], y[:, 4])["finite"].isfinite().any()


def test_masked_rows_are_invisible_nan_included() -> None:
    model, (x, y, targets) = tiny(), draw(12)
    mask = torch.arange(12)[None] % torch.tensor([[2], [3]]) == 0
    poisoned_x, poisoned_y = x.clone(), y.clone()
    poisoned_x[~mask], poisoned_y[~mask] = torch.nan, torch.inf
    with torch.inference_mode():
        found = model(poisoned_x, poisoned_y, targets, mask)
        none = model(poisoned_x, poisoned_y, targets, torch.zeros_like(mask))
        assert differences(none, model(x[:, :0], y[:, :0], targets)) == 0
        for stream in range(2):
            at = slice(stream, stream + 1)
            kept = mask[stream]
            alone = model(x[at, kept], y[at, kept], targets[at])
            ours = {name: tensor[at] for name, tensor in found.items()}
            assert differences(ours, alone) < 2e-6


def test_gradients_reach_every_parameter() -> None:
    model, (x, y, targets) = tiny(), draw(9)
    model.prediction.log_likelihood(model(x, y, targets), targets[..., :1], torch).mean().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


@pytest.mark.parametrize(
    "bad", [{"width": 31}, {"n_blocks": 0}, {"keep": "all"}, {"capacity": 0}, {"when_full": "stop"}]
)
def test_impossible_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        tiny(**bad)


@pytest.mark.parametrize("when_full", ["refuse", "overwrite", "reservoir"])
@pytest.mark.parametrize("keep", ["keys", "points"])
@pytest.mark.parametrize("most_scores", [0, 1 << 18])
def test_the_device_form_predicts_the_same(
    keep: str, when_full: str, most_scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Head by head and all at once, empty, half full and, where points are forgotten, overfull."""
    monkeypatch.setattr("edgefold.train.models.attentive.lbanp.MOST_SCORES", most_scores)
    model = tiny(keep=keep, when_full=when_full, capacity=8)
    device = model.for_device(2)
    for n_points in (0, 5, 8 if when_full == "refuse" else 30):
        x, y, targets = draw(n_points)
        expected = predicted(model, x, y, targets)
        assert differences(predicted(device, x, y, targets), expected) < 2e-6
