"""Check the settings of a model, with rules for all models, and keep how papers trained theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

Start = Literal["ours", "published"]
"""Distribution from which weights start: "ours" learns sooner, "published" is that of the authors'
code. Models say at their settings what the two are."""

LEAST: Final = {"n_classes": 0, "block": 0, "axis": 0, "n_encoder_layers": 0}
"""Smallest value of each size that may be 0; 0 switches off what the size counts."""


def require_choices(config: Any) -> None:
    """Refuse a setting that is none of the values that its `Literal` or `bool` allows.

    Args:
        config: A dataclass.

    Raises:
        ValueError: A value is refused; the error names the setting, its value and its choices.
    """
    hints = get_type_hints(type(config))
    for field in fields(config):
        hint, value = hints[field.name], getattr(config, field.name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(
                f"{field.name} is {value!r}; take one of {', '.join(map(str, get_args(hint)))}"
            )
        if hint is bool and not isinstance(value, bool):
            raise ValueError(f"{field.name} is {value!r}; take true or false")


def require_sizes(config: Any) -> None:
    """Refuse a size that is not a whole number or too small, and heads that do not divide a width.

    Settings that have a list of choices must have one of these.

    Args:
        config: A dataclass; every field that is annotated `int` is a size.

    Raises:
        ValueError: A setting is refused; the error names it and its value.
    """
    require_choices(config)
    for field in fields(config):
        if field.type != "int":
            continue
        value, least = getattr(config, field.name), LEAST.get(field.name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{field.name} is {value!r}, must be a whole number from {least} on")
    n_heads = getattr(config, "n_heads", 0)
    if n_heads and config.width % n_heads:
        raise ValueError(f"width {config.width} is not a multiple of n_heads {n_heads}")


class SizedConfig:
    """Checks the sizes of the settings class that derives from it, as soon as one is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        require_sizes(self)


def require_share(name: str, value: float) -> None:
    """Raise ValueError for a share that is not from 0 to below 1.

    Args:
        name: Name of the setting, for the error.
        value: The share.
    """
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r}, must be from 0 to below 1")


PAPER_RECIPE: Final[Mapping[str, Any]] = {
    **{"learning_rate": 5e-4, "warmup": 0, "clip_norm": None, "optimizer": "adam"},
}
"""Training of the papers' neural processes in terms of `FitConfig`: Adam at a rate of 5e-4 that
falls as a cosine, without a warm-up and without clipping."""

PAPER_TRAINING: Final[Mapping[str, Mapping[str, Any]]] = {
    "paper": {"steps": 100_000, "learning_rate": 5e-4}
}
"""`training_defaults` of a model whose preset `paper` is trained as the papers train their neural
processes: Adam at a rate of 5e-4 that falls as a cosine, 100,000 steps of 16 tasks (Nguyen & Grover
2022, and Feng et al. 2023, 2024, whose code follows it)."""
