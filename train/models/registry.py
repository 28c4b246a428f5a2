"""Find and build the models that come with Edgefold, by name, or a user's own `file.py:Class`.

A new model is a file in this folder and a line in `MODELS`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefold.runtime.errors import ModelError
from edgefold.train.contract import StreamingModel, is_filter
from edgefold.train.load import failure_of, load_registered

MODELS = {
    "anp": "edgefold.train.models.neural_processes.grid:Anp",
    "banp": "edgefold.train.models.neural_processes.grid:Banp",
    "bnp": "edgefold.train.models.neural_processes.grid:Bnp",
    "canp": "edgefold.train.models.neural_processes.grid:Canp",
    "cmanp": "edgefold.train.models.constant_memory.cmanp:Cmanp",
    "cmanp-and": "edgefold.train.models.constant_memory.cmanp_and:CmanpAnd",
    "cmhp": "edgefold.train.models.events.cmhp:Cmhp",
    "cnp": "edgefold.train.models.neural_processes.grid:Cnp",
    "continual-nystrom": "edgefold.train.models.ordered.continual_nystrom:ContinualNystrom",
    "continual-transformer": (
        "edgefold.train.models.ordered.continual_transformer:ContinualTransformer"
    ),
    "convcnp": "edgefold.train.models.neural_processes.convcnp:ConvCnp",
    "eqtnp": "edgefold.train.models.attentive.context_encoder:Eqtnp",
    "hawkes": "edgefold.train.models.events.hawkes:Hawkes",
    "hopping-nystrom": "edgefold.train.models.ordered.hopping_nystrom:HoppingNystrom",
    "lbanp": "edgefold.train.models.attentive.lbanp:Lbanp",
    "lbanp-end": "edgefold.train.models.attentive.lbanp_nd:LbanpEnd",
    "lbanp-nd": "edgefold.train.models.attentive.lbanp_nd:LbanpNd",
    "np": "edgefold.train.models.neural_processes.grid:Np",
    "perceiver-io": "edgefold.train.models.attentive.perceiver_io:PerceiverIo",
    "poisson": "edgefold.train.models.events.poisson:Poisson",
    "retreever": "edgefold.train.models.attentive.retreever:Retreever",
    "sensors": "edgefold.train.models.sensors.model:Sensors",
    "thp": "edgefold.train.models.events.thp:Thp",
    "tnp-a": "edgefold.train.models.attentive.tnp_a:TnpA",
    "tnp-d": "edgefold.train.models.attentive.tnp:TnpD",
    "tnp-nd": "edgefold.train.models.attentive.tnp:TnpNd",
    "transformer-ca": "edgefold.train.models.attentive.context_encoder:TransformerCa",
    "window-nystrom": "edgefold.train.models.ordered.window_nystrom:WindowNystrom",
    "window-transformer": "edgefold.train.models.ordered.window_encoder:WindowEncoder",
}
DEFAULT = "cmanp"


def model_class(name: str) -> type[StreamingModel]:
    """Return the class of a model by its name in `MODELS`, or a user's own "file.py:Class"."""
    return load_registered("model", name, MODELS, StreamingModel)


def learners() -> list[str]:
    """Return the names of `MODELS` that learn on the device, that is, are not filters."""
    return [name for name in MODELS if not is_filter(model_class(name))]


def create_model(
    name: str, settings: Mapping[str, Any] | None = None, preset: str | None = None
) -> StreamingModel:
    """Build a model with new, untrained weights, in evaluation mode.

    Args:
        name: A name of `MODELS`, or "file.py:Class".
        settings: Fields of the model's config, or arguments of its constructor.
        preset: Name of one of the class's presets, which the settings then change; by default the
            first.

    Raises:
        ModelError: The class, the preset or a setting does not exist, or the model does not build.
    """
    cls, settings = model_class(name), dict(settings or {})
    if preset is not None and preset not in cls.presets:
        presets = ", ".join(cls.presets) or "none"
        raise ModelError(f"{name} has no preset {preset!r}; it has: {presets}.")
    base = cls.presets.get(preset or next(iter(cls.presets), ""))
    known = _settings_of(cls, base)
    unknown = [key for key in settings if known is not None and key not in known]
    if unknown:
        raise ModelError(f"{name} has no setting {unknown[0]!r}; it has: {', '.join(known or ())}.")
    try:
        if base is None:
            model = cls(**settings)
            model.config = settings
            return model.eval()
        return cls(dataclasses.replace(base, **settings)).eval()
    except (Exception, SystemExit) as error:
        if name in MODELS and isinstance(error, ValueError):  # the model's own check of a setting
            raise ModelError(f"{name}: {error}.") from error
        place = Path(inspect.getsourcefile(cls) or "")
        raise failure_of(f"building {name} with {settings}", error, place) from error


def accepts(name: str, setting: str) -> bool:
    """Return whether the model with this name has a setting, such as "n_inputs"."""
    cls = model_class(name)
    known = _settings_of(cls, next(iter(cls.presets.values()), None))
    return known is None or setting in known


def accepted(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the settings that the model with this name has."""
    return {key: value for key, value in settings.items() if accepts(name, key)}


def _settings_of(cls: type[StreamingModel], base: Any) -> list[str] | None:
    """Return the names of a model's settings; None where its constructor takes any.

    `base` is one of the model's presets; None if it has none.
    """
    if base is not None:
        return [field.name for field in dataclasses.fields(base)]
    if cls.__init__ is StreamingModel.__init__:  # torch's own, which refuses all that it accepts
        return []
    parameters = inspect.signature(cls.__init__).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters][1:]
