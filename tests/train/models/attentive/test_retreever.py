"""ReTreever: its trees, its searches, and that a device's tree is the same tree."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.export import ExportConfig, export_bundle
from edgefold.runtime import Raw, Stream
from edgefold.train.batch import Batch
from edgefold.train.contract import (
    FINITE,
    Cache,
    Prediction,
    State,
    StreamingModel,
    advance,
)
from edgefold.train.layers.tree_attention import leaf_order, level_sizes, search
from edgefold.train.models.attentive.retreever import Retreever, TreeOnDevice
from edgefold.train.models.attentive.retreever_config import PRESETS, RetreeverConfig
from edgefold.train.models.registry import create_model

TREE = {"n_encoder_layers": 0, "order": "arrival"}
ATOL = 2e-6  # float32, over other orders of the same sums


def made(**settings: Any) -> Retreever:
    torch.manual_seed(0)
    model = create_model("retreever", {"n_encoder_layers": 1, **settings})
    assert isinstance(model, Retreever)
    return model


def points(model: StreamingModel, n: int, n_streams: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n_streams, n, model.n_inputs, generator=generator)
    return x, torch.randn(n_streams, n, model.n_outputs, generator=generator)


@torch.no_grad()
def states(model: StreamingModel, n: int) -> list[State]:
    """The state before each of n points, and after the last."""
    x, y = points(model, n)
    found = [model.initial_state(1)]
    for row in range(n):
        found.append(advance(model, found[-1], model.update(found[-1], x[:, row], y[:, row])))
    return found


def worst(one: Prediction, other: Prediction) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in other)


def test_the_published_size_has_the_published_number_of_parameters() -> None:
    model = Retreever(PRESETS["paper"])
    assert sum(weights.numel() for weights in model.parameters()) == 366_786


def test_search_and_attention_to_all_leaves_share_their_weights() -> None:
    searching, full = made(), made(full=True)
    full.load_state_dict(searching.state_dict())
    assert {*dict(full.named_parameters())} == {*dict(searching.named_parameters())}
    attention = searching.tree.attention
    x, _ = points(searching, 5)
    found = searching.search(searching.refresh(states(searching, 5)[-1]), x)
    torch.autograd.backward(found.log_chance.sum())
    assert attention.q.weight.grad is not None and attention.q.weight.grad.any()


def test_trained_to_read_all_leaves_it_is_cross_attention_without_a_tree() -> None:
    model = made(full=True)
    x, y = points(model, 9)
    torch.autograd.backward(model.loss(Batch(x, y, x, y), torch.Generator().manual_seed(0)))
    assert model.tree.attention.q.weight.grad is not None
    assert all(weights.grad is None for weights in model.tree.aggregator.parameters())


@pytest.mark.parametrize("order", ["kd", "axis", "projection", "arrival"])
@pytest.mark.parametrize("branching", [2, 3])
def test_forward_equals_the_fold_in_every_order_with_points_masked(
    order: str, branching: int
) -> None:
    model = made(order=order, branching=branching, n_inputs=2, capacity=40)
    x, y = points(model, 30, 2)
    x[..., 0] = x[..., 0].round()  # many equal ones
    asked = points(model, 9, 2)[0] + 0.1
    mask = torch.rand(2, 30, generator=torch.Generator().manual_seed(2)) < 0.7
    x[~mask] = torch.nan
    with torch.no_grad():
        assert worst(model(x, y, asked, mask), StreamingModel.forward(model, x, y, asked, mask)) < (
            ATOL
        )


@pytest.mark.parametrize("when_full", ["refuse", "overwrite", "reservoir"])
@pytest.mark.parametrize(("branching", "capacity"), [(2, 16), (3, 10), (2, 1)])
def test_the_tree_in_a_devices_state_is_the_one_that_refresh_makes(
    when_full: str, branching: int, capacity: int
) -> None:
    model = made(**TREE, when_full=when_full, branching=branching, capacity=capacity)
    device = model.for_device(1)
    assert isinstance(device, TreeOnDevice)
    n = capacity if when_full == "refuse" else 3 * capacity
    asked = points(model, 9)[0]
    pairs = zip(states(model, n), states(device, n), strict=True)
    with torch.no_grad():
        found = [worst(device.query(b, asked), model.query(model.refresh(a), asked))
                 for a, b in pairs]  # fmt: skip
    assert max(found) < ATOL


@pytest.mark.parametrize("branching", [2, 4])
def test_an_update_changes_one_node_of_each_level_at_most(branching: int) -> None:
    capacity = 64
    device = made(**TREE, capacity=capacity, branching=branching, when_full="overwrite").for_device(
        1
    )
    height = len(level_sizes(capacity, branching))
    follow = states(device, 100)
    for before, after in pairwise(follow):
        touched = [
            int((before[name] != after[name]).any(-1).sum())
            for name in after
            if name.startswith("level_")
        ]
        assert len(touched) == height and max(touched) == 1
        assert sum(touched) <= height + 1


@pytest.mark.parametrize("settings", [TREE, {}])
def test_a_full_buffer_refuses_by_a_step_that_is_not_finite(settings: dict[str, Any]) -> None:
    device = made(**settings, capacity=4).for_device(1)
    state = states(device, 4)[-1]
    x, y = points(device, 1)
    assert not device.update(state, x[:, 0], y[:, 0])[FINITE].isfinite().any()


def test_a_context_without_points_is_trained_on_too() -> None:
    model = made()
    x, y = points(model, 10, 2)
    mask = torch.zeros(2, 10, dtype=torch.bool)
    loss = model.loss(Batch(x, y, x, y, mask), torch.Generator().manual_seed(0))
    torch.autograd.backward(loss)
    assert loss.isfinite()


def test_a_query_reads_the_leaf_it_ends_at_and_the_nodes_beside_its_way() -> None:
    for branching, n, n_read in ((2, 128, 8), (2, 256, 9), (16, 256, 31), (2, 47, None)):
        model = made(**TREE, branching=branching)
        x, y = points(model, n)
        batch = Batch(x, y, x[:, :20], y[:, :20])
        with torch.no_grad():
            read = model.tokens_read(batch)
        if n_read:  # the paper's counts: 6.3 % of 128, 3.5 % of 256, 12.1 % of 256
            assert (read == n_read).all()
        else:
            assert read.max() <= 7  # 14.9 % of 47
        with torch.no_grad():
            assert (made(**TREE, full=True).tokens_read(batch) == n).all()


def test_a_kd_tree_splits_every_block_by_one_of_its_axes() -> None:
    x = torch.rand(1, 64, 2, generator=torch.Generator().manual_seed(3))
    order = leaf_order(x, torch.ones(1, 64, dtype=torch.bool), "kd", 2, 0)[0]
    assert sorted(order.tolist()) == list(range(64))
    for level in range(1, 7):
        blocks = x[0, order].reshape(-1, 2, 2 ** (level - 1), 2)[..., (level - 1) % 2]
        assert (blocks[:, 0].amax(-1) <= blocks[:, 1].amin(-1)).all()


def test_the_path_is_drawn_with_the_policys_chances() -> None:
    model = made(**TREE, capacity=2)
    cache = model.refresh(states(model, 2)[-1])
    asked = torch.zeros(1, 4000, 1)
    with torch.no_grad():
        queries = model.tree.queries(model.embedding.queries(asked))
        uniform = torch.rand(1, 1, 4000, 2, generator=torch.Generator().manual_seed(0))
        levels = [cache["level_0"]]
        found = search(queries, levels, cache["count"], 2, uniform)
    first = found.log_chance[found.leaf == 0][0].exp().item()
    assert (found.leaf == 0).float().mean().item() == pytest.approx(
        first,
        abs=0.04,  # five standard errors of 4,000 draws
    )


def test_classes_are_predicted_and_a_hit_is_the_reward() -> None:
    model = made(**TREE, n_classes=3, reward="accuracy", dropout=0.1)
    x, _ = points(model, 10, 2)
    y = torch.randint(0, 3, (2, 10, 1), generator=torch.Generator().manual_seed(4)).float()
    batch = Batch(x, y, x, y)
    losses = [model.loss(batch, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    torch.autograd.backward(losses[0])
    assert all(w.grad is not None and w.grad.isfinite().all() for w in model.parameters())
    assert model(x, y, x)["scores"].shape == (2, 10, 3)


class Leaves(TreeOnDevice):
    """Predicts the number of the leaf at which a search ends."""

    prediction = Raw({"leaf": (1,)})

    def __init__(self, model: Retreever):
        super().__init__(model, 1)
        self.prediction = Raw({"leaf": (1,)})

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return {"leaf": self.search(cache, x).leaf[..., None].float()}


@pytest.mark.long
def test_the_exported_search_ends_at_the_leaves_of_pytorch(tmp_path: Path) -> None:
    model = made(**TREE, capacity=100)
    export_bundle(
        Leaves(model).eval(),
        {"name": "none"},
        tmp_path / "bundle",
        ExportConfig(targets=50, parity_steps=128),
    )
    x, y = (tensor[0].double().numpy() for tensor in points(model, 100))
    asked = np.random.default_rng(0).uniform(-2, 2, (1000, 1))
    with torch.no_grad():
        cache = model.refresh(states(model, 100)[-1])
        expected = model.search(cache, torch.tensor(asked[None]).float()).leaf[0]
    with Stream.open(tmp_path / "bundle") as stream:
        for row in range(100):
            stream.update(x[row : row + 1], y[row : row + 1])
        found = np.concatenate([stream.query(rows).leaf.copy() for rows in np.split(asked, 20)])
    assert len(set(expected.tolist())) > 3  # the weights are random, and yet it goes several ways
    assert found[:, 0].astype(int).tolist() == expected.tolist()


def test_settings_that_fit_nothing_are_refused() -> None:
    for settings in (
        {"branching": 1}, {"order": "ball"}, {"order": "axis", "axis": 1}, {"reward": "accuracy"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be|take one|needs"):
            RetreeverConfig(**settings)
