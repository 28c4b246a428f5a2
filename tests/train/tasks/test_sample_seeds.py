"""A model that draws samples is scored with samples of their own for each task, from a seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from edgefold.train.batch import Batch
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.contract import mean_score

TINY = {"width": 16, "n_samples": 3}
MODELS: dict[str, dict[str, Any]] = {
    **{"np": {}, "anp": {"n_heads": 2}, "bnp": {}, "banp": {"n_heads": 2}},
    "two stages": {"stages": 2},
}


def tiny(name: str) -> Any:
    torch.manual_seed(0)
    model = create_model({"two stages": "bnp"}.get(name, name), TINY | MODELS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def tasks(n: int) -> Batch:
    """The same task n times."""
    x, y = torch.linspace(-1, 1, 6)[:, None], torch.linspace(0, 2, 6).sin()[:, None]
    same = [t.expand(n, -1, -1) for t in (x[:4], y[:4], x[4:], y[4:])]
    return Batch(*same)


@pytest.mark.parametrize("name", MODELS)
def test_tasks_are_scored_with_samples_of_their_own(name: str) -> None:
    model, seen = tiny(name), list[Batch]()
    keep = model.log_likelihood

    def scored(batch: Batch) -> torch.Tensor:
        seen.append(batch)
        return keep(batch)  # type: ignore[no-any-return]

    model.log_likelihood = scored
    found = [mean_score(model, lambda _: tasks(5), 3, seed).log_likelihood for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    seeds = torch.cat([batch.seeds for batch in seen[:3] if batch.seeds is not None])
    assert len(set(seeds.tolist())) == 15
    with torch.no_grad():
        each = keep(seen[0]).mean(1)
    assert len(set(each.tolist())) > 1


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_of_a_batch_is_the_seed_of_a_stream(name: str) -> None:
    # In float64, where sums in another order differ by far less than one seed does from another.
    model, batch = tiny(name).double(), tasks(2)
    points = batch.x_context.double(), batch.y_context.double()
    target = batch.x_target.double()
    state = model.initial_state(2)
    state = {k: t.double() if t.is_floating_point() else t for k, t in state.items()}
    state |= {"seed": torch.tensor([0, 9])}
    with torch.no_grad():
        state |= model.condition(state, *points)
        stream = model.query(model.refresh(state), target)["mean"]
        found = model(*points, target, None, torch.tensor([0, 9]))["mean"]
        plain = model(*points, target)["mean"]
    torch.testing.assert_close(found, stream, rtol=0, atol=1e-9)
    torch.testing.assert_close(plain[0], found[0], rtol=0, atol=0)
    assert (plain[1] - found[1]).abs().max() > 1e-5
