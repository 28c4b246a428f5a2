"""Declare the options that name a model, shared by the commands that build a model."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefold.train.contract import StreamingModel

MODEL_HELP = (
    "the name of a model that comes with edgefold, or a class of your own as my_model.py:MyModel"
)

FULL_HELP = (
    "capacity: points that the state has room for. when_full, of the next one: refuse, overwrite\n"
    "(the oldest) or reservoir (a random sample of all is kept). Both may still be changed when\n"
    "the trained run is exported."
)


def add_model_options(parser: argparse._ActionsContainer) -> None:
    """Declare --weights, --preset and --set, from which a command builds a model."""
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="the model's weights, as .safetensors"
    )
    parser.add_argument("--preset", help="a preset of the model")
    add_model_settings(parser)


def add_model_settings(parser: argparse._ActionsContainer) -> None:
    """Declare --set, which gives settings of the model."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="a setting of the model, as width=128; may be repeated",
    )


def describe_models(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add all models to a command's help, or the settings of the --model among its `words`."""
    if not {"-h", "--help"} & set(words):
        return
    from edgefold.train.models.registry import MODELS, model_class

    spread = [part for word in words for part in word.split("=", 1)]
    name = next((w for b, w in zip(("", *spread), spread, strict=False) if b == "--model"), None)
    if name is None:
        parser.add_argument_group(
            "models",
            f"{', '.join(MODELS)}.\nWith --model NAME, this help tells its presets and settings.",
        )
        return
    cls = model_class(name)
    first, lines = next(iter(cls.presets.values()), None), []
    for preset, config in cls.presets.items():
        settings = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        changed = [
            f"{key}={value}"
            for key, value in settings.items()
            if config is first or value != getattr(first, key)
        ]
        lines.append(f"--preset {preset}: {', '.join(changed)}")
    documented = inspect.getdoc(type(first)) if first is not None else None
    if cls.presets and hasattr(first, "when_full"):
        documented = f"{documented}\n\n{FULL_HELP}"
    title = f"presets of {name}, the first by default, with the settings that --set changes"
    parser.add_argument_group(
        title, "\n\n".join(filter(None, ["\n".join(lines), documented])) or "none"
    )


def build_model(args: argparse.Namespace, name: str) -> StreamingModel:
    """Build the model that the options name, and return it in evaluation mode.

    Raises:
        ModelError, CheckpointError: The model does not load, or its weights do not fit.
    """
    import torch

    from edgefold.train.load import load_weights, parse_settings
    from edgefold.train.models.registry import create_model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = create_model(name, parse_settings(args.settings), args.preset)
    if args.weights is not None:
        load_weights(model, args.weights)
    return model.eval()
