"""The table of departures: what is listed differs, and each is described and can be trained."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.papers.departures import MODELS, Variant, variants
from benchmarks.papers.departures_table import (
    ALL,
    MEANINGS,
    PUBLISHED,
    UNSCORED,
    departures_of,
    departures_table,
    effects,
    word,
)
from benchmarks.record import ROOT
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.load import parse_settings
from edgefold.train.models.registry import learners, model_class
from tests.reference.subjects import SMALL, drawn

LISTED = [(name, setting) for name in learners() for setting in departures_of(name)]


def built(name: str, **settings: Any) -> StreamingModel:
    """A small model of the preset `paper`, from seed 0."""
    torch.manual_seed(0)
    of: Any = model_class(name)
    known = {field.name for field in fields(of.presets["paper"])}
    sizes = {key: size for key, size in SMALL.items() if key in known}
    model: StreamingModel = of(replace(of.presets["paper"], **{**sizes, **settings})).eval()
    return model


def loss_of(model: StreamingModel) -> tuple[float, float]:
    """Loss of a batch, and the sum of its gradients' sizes."""
    x, y, targets, mask = (t.float() if t.is_floating_point() else t for t in drawn(9))
    batch = Batch(x, y, targets, torch.randn(*targets.shape, generator=seeded()), mask)
    model.zero_grad()
    loss = model.loss(batch, seeded())
    loss.backward()  # type: ignore[no-untyped-call]
    grads = [p.grad.abs().sum() for p in model.parameters() if p.grad is not None]
    return float(loss.detach()), float(torch.stack(grads).sum())


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


ACTS_WITH: dict[str, dict[str, Any]] = {"given_noise": {"bounded": True}}
"""Settings without which a departure has no effect."""


@pytest.mark.parametrize(("name", "setting"), LISTED)
def test_what_is_listed_differs(name: str, setting: str) -> None:
    """It changes the first weights, the kind of prediction, or with the same weights the loss."""
    more = ACTS_WITH.get(setting, {})
    ours = {setting: departures_of(name)[setting][1]}
    paper, changed = built(name, **more), built(name, **more, **ours)
    if setting == "permute":
        assert paper.prediction != changed.prediction
        return
    weights, others = paper.state_dict(), changed.state_dict()
    shapes = [{key: t.shape for key, t in some.items()} for some in (weights, others)]
    if shapes[0] != shapes[1] or any(not torch.equal(weights[k], others[k]) for k in weights):
        return
    with torch.no_grad():
        for model in (paper, changed):
            random = seeded()
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    assert loss_of(paper) == loss_of(paper)
    assert loss_of(paper) != loss_of(changed)


def test_each_is_described_and_each_has_a_measured_model() -> None:
    listed = {setting for _, setting in LISTED}
    assert listed == set(MEANINGS)
    measured = {run.variant.split("=")[0] for name in MODELS for run in variants(name, 1, 1, 1)}
    assert measured == listed - set(UNSCORED) | {PUBLISHED, ALL}
    assert len(departures_table().rows) >= len(listed)


def test_a_variant_has_its_departure_alone() -> None:
    found = variants("cmanp", 2, 10, 3)
    assert [run.seed for run in found[:2]] == [0, 1] and found[0].variant == "published"
    assert {run.variant for run in found} >= {"published", "residual=input", "all"}
    words = Variant("cmanp", "residual=input", 0).training(Path("run"))
    set_values = parse_settings([words[i + 1] for i, w in enumerate(words) if w == "--set"])
    published = {name: pair[0] for name, pair in departures_of("cmanp").items()}
    assert set_values == {name: v for name, v in published.items() if name != "residual"}
    everything = Variant("cmanp", "all", 0).training(Path("run"))
    assert "--set" not in everything


def test_the_effects_are_differences_of_the_same_seed() -> None:
    def run(variant: str, seed: int, rbf: float) -> dict[str, Any]:
        scores = {k: {"log_likelihood": rbf} for k in ("rbf", "matern52")}
        return {"model": "cmanp", "variant": variant, "seed": seed, "scores": scores}

    runs = [run("published", 0, 0.1), run("published", 1, 0.2)]
    runs += [run("residual=input", 0, 0.15), run("residual=input", 1, 0.5)]
    (table,) = effects({"runs": runs, "steps": 3000, "n_batches": 500})
    assert [row[3] for row in table.rows] == ["", "+0.050, +0.300"]
    assert [row[2] for row in table.rows] == ["0.150", "0.325"]


def test_values_are_words_of_the_command_line() -> None:
    assert (word(True), word(False), word(1.0), word("mlp")) == ("true", "false", "1.0", "mlp")


def test_the_page_has_the_table_of_the_presets() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    assert departures_table().markdown() in page, "python -m benchmarks tables writes it"
