from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from edgefold.runtime.errors import ModelError
from edgefold.train.models.registry import MODELS, create_model, model_class
from edgefold.train.settings import LEAST


def sizes(name: str) -> list[str]:
    config: Any = next(iter(model_class(name).presets.values()))
    return [field.name for field in fields(config) if field.type == "int"]


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name in MODELS for size in sizes(name)]
)
@pytest.mark.parametrize("wrong", [-1, 2.5, True])
def test_a_size_that_is_none_is_refused_by_its_name(name: str, size: str, wrong: object) -> None:
    with pytest.raises(ModelError, match=f"{size} is {wrong}, must be a whole number from"):
        create_model(name, {size: wrong})


@pytest.mark.parametrize("name", MODELS)
def test_no_size_is_0_but_those_that_switch_something_off(name: str) -> None:
    for size in sizes(name):
        if size not in LEAST:
            with pytest.raises(ModelError, match=f"{size} is 0, must be"):
                create_model(name, {size: 0})


def test_heads_and_shares_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="width 65 is not a multiple of n_heads 4"):
        create_model("lbanp", {"width": 65})
    with pytest.raises(ModelError, match="dropout is -1, must be from 0 to below 1"):
        create_model("retreever", {"dropout": -1})
