"""What the contract says of tensors: names, shapes and types, with an error for each breach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgefold.runtime import manifest
from edgefold.runtime.errors import ExportError
from edgefold.train.models.contract import StreamingModel

CHECKED_ELEMENTS = 4096
"""Elements of the new state that the default check looks at: 1 % of an update, where all of them
take 13 %."""

DTYPES = {getattr(torch, name): name for name in manifest.DTYPES}
"""Types that a device's buffers have."""


def require_tensors(method: str, returned: Any) -> dict[str, Tensor]:
    """A returned mapping of names to tensors.

    Raises:
        ExportError: It is something else, or holds a type that no buffer has.
    """
    if not isinstance(returned, Mapping):
        raise ExportError(f"{method} returns {type(returned).__name__}; return a dict of tensors.")
    for name, tensor in returned.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ExportError(
                f"{method} returns {type(tensor).__name__} as {name!r}; return tensors by name."
            )
        if tensor.dtype not in DTYPES:
            advice = (
                "keep its real and imaginary parts as two tensors"
                if tensor.is_complex()
                else (f"use one of {', '.join(DTYPES.values())}")
            )
            raise ExportError(f"{method} returns {name} of type {tensor.dtype}; {advice}.")
        if not tensor.numel():
            raise ExportError(
                f"{method} returns {name} of shape {tuple(tensor.shape)}; leave it out."
            )
    return dict(returned)


def require_equal(
    method: str, name: str, tensor: Tensor, shape: Sequence[int], dtype: torch.dtype
) -> None:
    """Refuse a tensor of another shape or type than the contract demands.

    Raises:
        ExportError: With both.
    """
    if tuple(tensor.shape) != tuple(shape):
        raise ExportError(
            f"{method} returns {name} of shape {tuple(tensor.shape)}; it must be {tuple(shape)}."
        )
    if tensor.dtype != dtype:
        raise ExportError(
            f"{method} returns {name} of type {tensor.dtype}; it must stay {dtype}: end with "
            f".to({dtype})."
        )


def require_state(model: StreamingModel, n_streams: int) -> dict[str, Tensor]:
    """The initial state of a model.

    Raises:
        ExportError: It fails or breaks the contract, or its rings do.
    """
    method = "initial_state()"
    try:
        with torch.no_grad():
            returned = model.initial_state(n_streams)
    except Exception as error:
        raise ExportError(f"{method} fails: {type(error).__name__}: {error}") from error
    state = {name: tensor.detach() for name, tensor in require_tensors(method, returned).items()}
    if not state:
        raise ExportError(f"{method} gives nothing; a stream needs one tensor at least.")
    for name, tensor in state.items():
        if tensor.ndim == 0 or tensor.shape[0] != n_streams:
            raise ExportError(
                f"{method} gives {name} of shape {tuple(tensor.shape)} for {n_streams} streams; "
                "the first axis of every state tensor is the streams."
            )
    for name, ring in model.rings.items():
        counter = state.get(ring.counter)
        if name not in state or counter is None or counter.is_floating_point():
            raise ExportError(
                f"rings has {name} with the counter {ring.counter}; {method} must give both, the "
                f"counter as integers. It gives {', '.join(state)}."
            )
        if counter.any():
            raise ExportError(f"{method} starts the counter {ring.counter} elsewhere than at 0.")
        if not 0 < ring.axis < state[name].ndim:
            raise ExportError(
                f"the ring {name} of shape {tuple(state[name].shape)} has rows along "
                f"axis {ring.axis}; give an axis from 1 to {state[name].ndim - 1}."
            )
    return state


def default_finite(written: Mapping[str, Tensor]) -> Tensor | None:
    """A number for each stream, (B,), that is 0 if the small float tensors of a state are finite.

    Each value is multiplied by 0 first, so that large ones cannot add up to infinity.
    """
    floats = sorted((t for t in written.values() if t.is_floating_point()), key=Tensor.numel)
    room, chosen = CHECKED_ELEMENTS, list[Tensor]()
    for tensor in floats:
        room -= tensor.numel()
        if room >= 0 or not chosen:
            chosen.append((tensor.flatten(1) * 0).float())
    return torch.cat(chosen, 1).sum(1) if chosen else None
