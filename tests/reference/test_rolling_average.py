"""The running attention of `states` is the published update, and the batch that it stands for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.layers.attention import Attention
from edgefold.train.layers.device_layers import normalise
from edgefold.train.states.running_attention import (
    RunningAttentionOnDevice,
    attend_at_once,
    attend_further,
    empty_attention,
    merged,
    scores_values,
)
from tests.reference.numpy_layers import Rows
from tests.reference.rolling_average import cross_attention, rolled, rolled_by_logs

B, H, L, D, N = 2, 3, 5, 4, 13
CHUNKS = {"one by one": [1] * N, "in chunks": [4, 1, 6, 2], "at once": [N]}


def points(size: float) -> tuple[Tensor, Tensor]:
    """Scores (B, H, L, N) of a standard deviation, and values (B, H, N, D)."""
    random = torch.Generator().manual_seed(1)
    scores = size * torch.randn(B, H, L, N, generator=random).double()
    return scores, torch.randn(B, H, N, D, generator=random).double()


def parts(chunks: list[int]) -> list[slice]:
    ends = np.cumsum(chunks).tolist()
    return [slice(end - size, end) for end, size in zip(ends, chunks, strict=True)]


def published(scores: Rows, values: Rows, chunks: list[int], by_logs: bool) -> tuple[Rows, Rows]:
    """CA of the first chunk, then an update for each other one; c or its logarithm at the end."""
    first, *others = parts(chunks)
    attended = cross_attention(scores[:, first], values[first])
    count = np.log(np.exp(scores[:, first]).sum(1)) if by_logs else np.exp(scores[:, first]).sum(1)
    update = rolled_by_logs if by_logs else rolled
    for part in others:
        attended, count = update(attended, count, scores[:, part], values[part])
    return attended, count


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=list(CHUNKS))
@pytest.mark.parametrize("size", [1.0, 20.0])
def test_the_published_update_gives_the_running_attention(size: float, chunks: list[int]) -> None:
    scores, values = points(size)
    state = empty_attention(values, B, H, L, D)
    for part in parts(chunks):
        state = attend_further(state, scores[..., part], values[..., part, :])
    at_once = attend_at_once(scores, values)
    for b in range(B):
        for h in range(H):
            own = scores[b, h].numpy(), values[b, h].numpy()
            batch = cross_attention(*own)
            plain, count = published(*own, chunks, by_logs=False)
            logs, log_count = published(*own, chunks, by_logs=True)
            for found in (state["attended"][b, h].numpy(), at_once[b, h].numpy(), plain, logs):
                np.testing.assert_allclose(found, batch, rtol=1e-12, atol=1e-12)
            kept = state["log_count"][b, h, :, 0].numpy()
            np.testing.assert_allclose(kept, log_count, rtol=1e-12)
            np.testing.assert_allclose(kept, np.log(count), rtol=1e-12)


def test_scores_that_overflow_a_plain_sum_do_not_overflow_the_logarithm() -> None:
    scores, values = points(1000.0)
    state = empty_attention(values, B, H, L, D)
    for part in parts([1] * N):
        state = attend_further(state, scores[..., part], values[..., part, :])
    expected = cross_attention(scores[0, 0].numpy(), values[0, 0].numpy())
    np.testing.assert_allclose(state["attended"][0, 0].numpy(), expected, atol=1e-12)
    with np.errstate(over="ignore"):
        assert not np.isfinite(np.exp(scores[0, 0].numpy()).sum(1)).all()


def test_masked_points_change_nothing_and_states_merge() -> None:
    scores, values = points(3.0)
    real = torch.arange(N) % 3 > 0
    hidden = scores.masked_fill(~real, -math.inf)
    halves = [
        attend_further(empty_attention(values, B, H, L, D), hidden[..., part], values[..., part, :])
        for part in parts([6, 7])
    ]
    state = merged(*halves)
    own = scores[1, 2][:, real].numpy(), values[1, 2][real].numpy()
    np.testing.assert_allclose(state["attended"][1, 2].numpy(), cross_attention(*own), atol=1e-12)
    log_count = published(*own, [1] * int(real.sum()), by_logs=True)[1]
    np.testing.assert_allclose(state["log_count"][1, 2, :, 0].numpy(), log_count, rtol=1e-12)


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=list(CHUNKS))
@torch.no_grad()
def test_the_device_form_is_the_published_update(chunks: list[int]) -> None:
    torch.manual_seed(0)
    n_blocks, width = 2, H * D
    layer = Attention(width, H, cross=True, stack=(n_blocks,))
    latents, rows = torch.randn(n_blocks, L, width), torch.randn(B, N, width)
    device = RunningAttentionOnDevice(layer, latents)
    state = device.initial_state(B)
    for part in parts(chunks):
        normal = normalise(rows[:, part].flatten(0, 1))
        one = part.stop - part.start == 1
        new = device.update(state, normal) if one else None
        state |= new or device.condition(state, normal, part.stop - part.start, None)
        state |= device.consolidate(state)
    found = device.attended(state).view(B, n_blocks, H, D, L).mT
    scores, values = scores_values(layer, latents, rows, None)
    assert scores.shape == (B, n_blocks, H, L, N)
    for at in np.ndindex(B, n_blocks, H):
        own = scores[at].double().numpy(), values[at].double().numpy()
        expected = published(*own, chunks, by_logs=True)[0]
        # float32 products over 12 columns and sums over 13 points
        np.testing.assert_allclose(found[at].numpy(), expected, rtol=0, atol=2e-6)
