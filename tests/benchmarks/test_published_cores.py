"""The papers' continual attention, as written here, is the batch form on the window."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.attention.attention_cores import Shape
from benchmarks.attention.published_batch import PublishedCore, nystrom
from benchmarks.attention.published_cores import PUBLISHED, CoNySiCont
from edgefold.train.contract import advance
from edgefold.train.layers.nystrom_attention import pseudo_inverse, segment_lengths

SHAPE = Shape(window=12, width=12, n_heads=2, n_landmarks=3)
UNEQUAL = Shape(window=13, width=12, n_heads=2, n_landmarks=5)
N = 45
"""Some windows and a part of one."""


def answers(model: PublishedCore, tokens: Tensor) -> Tensor:
    """A core's answers in float64 along tokens (N, 3, H, d)."""
    model, found = model.double(), []
    state = model.initial_state(1)
    for token in tokens:
        written, told = model.step(state, token.reshape(1, -1))
        state = advance(model, state, written)
        found.append(told["found"][0])
    return torch.stack(found)


def stream(shape: Shape) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    size = N, 3, shape.n_heads, shape.head_width
    tokens = torch.randn(size, generator=generator, dtype=torch.float64)
    tokens[:, 0] /= shape.head_width**0.5
    return tokens


@pytest.mark.parametrize(
    ("name", "batch"),
    [("CoRe", "Att"), ("CoSi", "Att"), ("CoNyReFix", "NyFix"), ("CoNySiFix", "NyFix")],
)
def test_a_published_form_is_its_batch_form_from_the_first_token_on(name: str, batch: str) -> None:
    tokens = stream(SHAPE)
    model, reference = PUBLISHED[name](SHAPE), PUBLISHED[batch](SHAPE)
    expected = answers(reference, tokens)
    expected = expected[:, :, -1] if model.is_single else expected
    found = answers(model, tokens)
    assert torch.allclose(found, expected, atol=1e-11)  # float64, sums of 45 terms and differences


def by_the_grid(shape: Shape, tokens: Tensor, n: int) -> Tensor:
    """All rows' attention in the window that ends with token n, (H, window, d)."""
    lengths = segment_lengths(shape.window, shape.n_landmarks)
    ends = torch.tensor(lengths).cumsum(0) - 1
    landmarks = []
    for length, end in zip(lengths, ends.tolist(), strict=True):
        last = n - (n - end) % shape.window  # where this segment was complete last
        landmarks.append(padded(tokens, last, length).mean(2))  # (3, H, d)
    queries, keys, _ = torch.stack(landmarks, 2)
    q, k, v = padded(tokens, n, shape.window)
    return nystrom(q, k, v, queries, keys, pseudo_inverse(torch.softmax(queries @ keys.mT, -1)))


def padded(tokens: Tensor, last: int, length: int) -> Tensor:
    """The `length` tokens up to `last`, (3, H, length, d); zeros before the stream."""
    found = [tokens[p] if p >= 0 else 0 * tokens[0] for p in range(last - length + 1, last + 1)]
    return torch.stack(found, 2)


@pytest.mark.parametrize("shape", [SHAPE, UNEQUAL])
@pytest.mark.parametrize("name", ["CoNyReCont", "CoNySiCont"])
def test_continual_landmarks_are_means_over_the_grid(name: str, shape: Shape) -> None:
    tokens = stream(shape)
    model = PUBLISHED[name](shape)
    expected = torch.stack([by_the_grid(shape, tokens, n) for n in range(N)])
    expected = expected[:, :, -1] if model.is_single else expected
    assert torch.allclose(answers(model, tokens), expected, atol=1e-9)  # the inverse amplifies


@pytest.mark.parametrize("name", ["CoNyReCont", "CoNySiCont"])
def test_a_whole_window_has_the_batch_forms_landmarks(name: str) -> None:
    tokens = stream(SHAPE)
    found = answers(PUBLISHED[name](SHAPE), tokens)
    expected = answers(PUBLISHED["Ny"](SHAPE), tokens)
    whole = torch.arange(SHAPE.window - 1, N, SHAPE.window)
    expected = expected[whole] if found.ndim == 4 else expected[whole][:, :, -1]
    assert torch.allclose(found[whole], expected, atol=1e-9)  # the inverse amplifies


@pytest.mark.parametrize("name", ["CoNyReCont", "CoNySiCont"])
def test_computing_one_case_is_computing_both_and_choosing(name: str) -> None:
    tokens = stream(UNEQUAL)
    model = PUBLISHED[name](UNEQUAL).double()
    assert isinstance(model, CoNySiCont)
    state = model.initial_state(1)
    for token in tokens:
        q, k, v = token[:, None, :, None]
        written, found = model.attend(state, q, k, v)
        again, alone = model.attend_one(state, q, k, v)
        assert torch.equal(found, alone)
        assert all(torch.equal(written[name], again[name]) for name in again)
        state = {**state, **written, "n_tokens": state["n_tokens"] + 1}
