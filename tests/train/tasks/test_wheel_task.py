from __future__ import annotations

import math

import pytest
import torch

from edgefold.train.tasks.wheel import (
    MEANS,
    N_ARMS,
    N_TARGETS,
    STD,
    Y_SCALE,
    WheelTask,
    draw_points,
    draw_rewards,
    hide_other_rewards,
    outer_arm,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_points_are_uniform_in_the_disc() -> None:
    x = draw_points(4, 5000, seeded())
    radius = x.norm(dim=-1)
    assert radius.max() <= 1
    # The share inside r is r squared; 20,000 draws have a standard error below 0.004.
    for r in (0.3, 0.5, 0.9):
        assert (radius < r).float().mean() == pytest.approx(r * r, abs=0.015)
    assert x.mean((0, 1)).abs().max() < 0.02


def test_each_quadrant_has_its_arm() -> None:
    x = torch.tensor([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
    assert outer_arm(x).tolist() == [1, 2, 3, 4]


def test_rewards_follow_the_formula() -> None:
    x = torch.tensor([[[0.1, 0.1], [0.6, 0.6], [-0.6, 0.6], [-0.6, -0.6], [0.6, -0.6]]])
    x = x.repeat(1, 2000, 1)
    rewards = draw_rewards(x, torch.tensor([[0.7]]), seeded()).reshape(2000, 5, N_ARMS)
    expected = torch.tensor(MEANS).repeat(5, 1)
    for place, arm in enumerate((1, 2, 3, 4), 1):
        expected[place, arm] = 50.0
    # Standard errors of the means and stds of 2,000 draws: 0.0011 and 0.0008.
    assert torch.allclose(rewards.mean(0), expected, atol=0.006)
    std = torch.where(expected == 50, 0.01, STD)
    assert torch.allclose(rewards.std(0), std, atol=0.005)


def test_delta_alone_decides_where_large_rewards_begin() -> None:
    x = draw_points(3, 1000, seeded(1))
    delta = torch.tensor([[0.2], [0.5], [1.0]])
    large = draw_rewards(x, delta, seeded(2)) > 25
    assert torch.equal(large.any(-1), x.norm(dim=-1) >= delta)
    assert large.sum(-1).max() == 1
    assert not large[..., 0].any()


def test_a_device_learns_one_reward_and_noise() -> None:
    rewards = torch.full((2000, N_ARMS), 50.0)
    arm = torch.arange(2000) % N_ARMS
    learned = hide_other_rewards(rewards, arm, seeded())
    is_chosen = arm[:, None] == torch.arange(N_ARMS)
    assert (learned[is_chosen] == 50).all()
    noise = learned[~is_chosen]
    assert abs(noise.mean()) < 0.06 and abs(noise.std() - 1) < 0.05  # 8,000 draws


def test_batches_have_few_points_as_well_as_many() -> None:
    task, generator = WheelTask(), seeded()
    counts = []
    for _ in range(200):
        batch = task.training_batch(2, generator)
        n = batch.x_context.shape[1]
        assert batch.y_context.shape == (2, n, N_ARMS)
        assert batch.y_target.shape == (2, N_TARGETS, N_ARMS)
        counts.append(n)
    assert min(counts) == 0 and max(counts) > 256
    few = sum(n < math.sqrt(513) for n in counts) / len(counts)
    assert few == pytest.approx(0.5, abs=0.12)  # log-uniform; the standard error is 0.035


def test_half_of_the_problems_tell_one_arm_alone() -> None:
    task, n_alone, n_all = WheelTask(), 0, 0
    for seed in range(40):
        batch = task.training_batch(8, seeded(seed))
        if batch.x_context.shape[1] < 20:
            continue
        # Where all five are told, every reward is near 1 or 50; noise has a std of 1.
        rewards = batch.y_context * Y_SCALE
        small = rewards[(rewards < 25).all(-1)]
        if not len(small):
            continue
        for one in rewards:
            spread = one[one < 25].std()
            n_alone += int(spread > 0.5)
            n_all += int(spread < 0.2)
    assert n_alone + n_all > 100
    assert n_alone / (n_alone + n_all) == pytest.approx(0.5, abs=0.15)
