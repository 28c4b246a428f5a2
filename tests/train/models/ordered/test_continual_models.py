"""Continual encoders on a device answer what their window, computed anew, answers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from edgefold.export.checks.laws import PASSED
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.runtime.errors import ModelError
from edgefold.train.batch import Batch
from edgefold.train.contract import advance
from edgefold.train.layers.nystrom_attention import (
    clustered,
    exact_inverse,
    pseudo_inverse,
    segment_lengths,
)
from edgefold.train.models.ordered.window_encoder import WindowEncoder
from edgefold.train.models.registry import create_model

SMALL: dict[str, Any] = {
    **{"n_inputs": 3, "n_classes": 4, "width": 24, "n_heads": 2, "feedforward": 16},
    "window": 20,
}
MODELS: dict[str, dict[str, Any]] = {
    "continual-transformer": {},
    "continual-transformer of 30": {"window": 30},
    "continual-nystrom": {},
    "continual-nystrom, unequal segments": {"n_landmarks": 3},
    "continual-nystrom, at once": {"landmark_serves": "last"},
    "continual-nystrom, at once, unequal segments": {"landmark_serves": "last", "n_landmarks": 3},
    "continual-nystrom, fixed": {"landmarks": "fixed"},
    "hopping-nystrom": {"n_blocks": 4},
    "hopping-nystrom, a block": {"n_blocks": 1},
}


def small(case: str, **settings: Any) -> WindowEncoder:
    torch.manual_seed(0)
    name = case.split(",")[0].split(" of")[0]
    model = create_model(name, {**SMALL, **MODELS[case], **settings})
    assert isinstance(model, WindowEncoder)
    return model


FLOAT32_ROUNDING = 2.0**-24
ROUNDINGS = 14
"""Operations that round a value on its way through a layer: keys, scores, less their peak, exp,
sum, quotient, mean, output, residual, norm, two products of the feed-forward, residual, norm."""


def sharpened(model: WindowEncoder, std: float) -> WindowEncoder:
    """The model with queries and keys of about this standard deviation."""
    with torch.no_grad():
        for k in range(len(model.layers)):
            layer = model.layer(k)
            rows = model.embed(torch.randn(500, model.n_inputs)) + model.encoding(torch.arange(500))
            for part in (layer.q, layer.k):
                part.weight.mul_(std / part(rows).std())
                assert part.bias is not None
                part.bias.mul_(0)
    return model


def window_answers(model: WindowEncoder, tokens: torch.Tensor) -> torch.Tensor:
    """What the window alone answers after each token of a stream (n, X)."""
    answers = []
    with torch.no_grad():
        for n in range(len(tokens)):
            first = max(0, n + 1 - model.reach)
            positions = torch.arange(first, n + 1)[None]
            answers.append(model.answer(tokens[None, first : n + 1], positions))
    return torch.cat(answers)


def told_on_device(model: WindowEncoder, tokens: torch.Tensor) -> list[torch.Tensor]:
    """The device's scores (1, classes) after each token of a stream (n, X)."""
    subject = TorchSubject(model.for_device(1), 1)
    subject.reset()
    return [torch.from_numpy(subject.step(token.numpy())["scores"]) for token in tokens[:, None]]


@pytest.fixture
def float64() -> Iterator[None]:
    """Tensors that a model makes are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def rounded_at_random(model: WindowEncoder, seed: int) -> WindowEncoder:
    """A copy whose parameters and constants each move by half a unit in float32's last place."""
    generator, copied = torch.Generator().manual_seed(seed), copy.deepcopy(model)
    with torch.no_grad():
        for tensor in (*copied.parameters(), *copied.buffers()):
            if tensor.is_floating_point():
                sign = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
                tensor.mul_(1 + sign * FLOAT32_ROUNDING)
    return copied


@pytest.mark.one_case
@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("std", [0.5, 1.0, 3.0, 4.0])
def test_a_device_answers_what_its_window_answers(
    case: str, n_layers: int, std: float, float64: None
) -> None:
    """In float32 each rounded operation errs as much as rounded weights do in float64."""
    torch.set_default_dtype(torch.float32)
    model = sharpened(small(case, n_layers=n_layers), std)
    tokens = torch.randn(75, 3, generator=torch.Generator().manual_seed(1))
    single = torch.cat(told_on_device(model, tokens))
    torch.set_default_dtype(torch.float64)
    exact, tokens = copy.deepcopy(model).double(), tokens.double()
    answers = window_answers(exact, tokens)
    moved = [window_answers(rounded_at_random(exact, seed), tokens) for seed in range(3)]
    sensitivity = max((other - answers).abs().max().item() for other in moved)
    assert (single - answers).abs().max() < (1 + ROUNDINGS * n_layers) * sensitivity


@pytest.mark.parametrize("case", MODELS)
def test_an_outlier_leaves_no_trace_once_it_is_gone(case: str) -> None:
    model = sharpened(small(case), 4.0)
    tokens = torch.randn(90, 3, generator=torch.Generator().manual_seed(1))
    tokens[20] *= 100.0
    clean = tokens.clone()
    clean[20] = 0.0
    answers = [told_on_device(model, stream)[-1] for stream in (tokens, clean)]
    assert (answers[0] - answers[1]).abs().max() < 1e-5  # rounding of scores up to 60


@pytest.mark.parametrize("case", MODELS)
def test_forward_is_the_fold_of_steps_with_hidden_context(case: str) -> None:
    model = small(case, n_layers=2)
    generator = torch.Generator().manual_seed(2)
    context, targets = torch.randn(2, 25, 3, generator=generator), torch.randn(2, 4, 3)
    mask = torch.rand(2, 25, generator=generator) < 0.7
    context[~mask] = torch.nan
    with torch.no_grad():
        found = model(context, context[..., :0], targets, mask)["scores"]
        for stream in range(2):
            state = model.initial_state(1)
            tokens = torch.cat([context[stream][mask[stream]], targets[stream]])
            answers = []
            for token in tokens[:, None]:
                written, told = model.step(state, token)
                state = advance(model, state, written)
                answers.append(told["scores"])
            expected = torch.cat(answers[-4:])
            assert torch.allclose(found[stream], expected, atol=2e-6)  # sums in another order


@pytest.mark.one_case
@pytest.mark.parametrize("case", ["continual-nystrom", "hopping-nystrom"])
def test_three_streams_and_the_contract(case: str) -> None:
    subject = TorchSubject(small(case, n_layers=2), 3)
    for check in MODEL_CHECKS:
        found = check.verdict(subject, 40)
        assert found.verdict == PASSED or found.verdict == "skipped", found.detail


def test_nystrom_attention_of_as_many_landmarks_as_tokens_is_softmax_attention() -> None:
    settings = {**SMALL, "window": 6}
    torch.manual_seed(0)
    exact = create_model("window-transformer", settings)
    torch.manual_seed(0)
    landmarks = create_model("window-nystrom", {**settings, "n_landmarks": 6})
    tokens, positions = torch.randn(1, 6, 3), torch.arange(6)[None]
    assert isinstance(exact, WindowEncoder) and isinstance(landmarks, WindowEncoder)
    with torch.no_grad():
        difference = exact.answer(tokens, positions) - landmarks.answer(tokens, positions)
    assert difference.abs().max() < 5e-2  # six iterations of the inverse, of a matrix near singular


def test_segments_share_out_what_does_not_divide() -> None:
    assert segment_lengths(11, 4) == [3, 3, 3, 2]


def test_the_iterated_inverse_is_the_exact_one_where_landmarks_differ() -> None:
    queries = 3 * torch.eye(4)[None]
    center = torch.softmax(queries @ queries.mT, -1)
    assert torch.allclose(pseudo_inverse(center), exact_inverse(queries, queries), atol=1e-4)


def test_clusters_are_found() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[[0.0, 0.0], [5.0, 5.0], [-5.0, 5.0]]])
    tokens = (centres[:, :, None] + 0.1 * torch.randn(1, 3, 50, 2)).flatten(1, 2)
    found = clustered(tokens, 3, generator)[0]
    assert torch.cdist(centres[0], found).amin(1).max() < 0.1


def test_landmarks_are_clustered_before_the_first_step() -> None:
    model = small("continual-nystrom, fixed", n_layers=2)
    before = model.state_dict()["landmark_keys"].clone()
    x = torch.randn(64, 20, 3)
    y = torch.zeros(64, 1, 1)

    def draw(n: int) -> Batch:
        return Batch(x[:n, :-1], y[:n, :0], x[:n, -1:], y[:n])

    model.prepare(draw, torch.Generator().manual_seed(0))
    after = model.state_dict()
    assert not torch.equal(before, after["landmark_keys"])
    expected = exact_inverse(after["landmark_queries"], after["landmark_keys"])
    assert torch.equal(after["inverses"], expected)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_landmarks": 21}, "n_landmarks is 21, must be at most the window"),
        ({"landmarks": "none"}, "landmarks is 'none'; take one of"),
        ({"n_classes": 1}, "n_classes is 1, must be at least 2"),
        ({"window": 1}, "window is 1, must be at least 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        create_model("continual-nystrom", {**SMALL, **settings})


def test_blocks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="window 20 is not a multiple of n_blocks 3"):
        create_model("hopping-nystrom", {**SMALL, "n_blocks": 3})
    with pytest.raises(ModelError, match="landmarks must be fixed"):
        create_model("hopping-nystrom", {**SMALL, "landmarks": "means"})
