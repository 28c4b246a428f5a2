"""Check the contract's rules for tensors: names, shapes and types, each with its own error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgefold.runtime.bundle import manifest
from edgefold.runtime.errors import ExportError
from edgefold.train.contract import FINITE, WHEN_FULL, StreamingModel, can_merge, is_filter

CHECKED_ELEMENTS = 4096
"""Number of elements of the new state that the default check looks at. They cost 1 % of an update's
time, where all elements would cost 13 %."""

DTYPES = {getattr(torch, name): name for name in manifest.DTYPES}
"""Names of the element types that a device's buffers can have, by torch's type."""


def require_tensors(method: str, returned: Any) -> dict[str, Tensor]:
    """Check that a method returned tensors by name, and return them as a dictionary.

    Raises:
        ExportError: It returned something else, an empty tensor, or a type that no buffer has.
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
    """Check that a tensor has the shape and the type that the contract demands.

    Raises:
        ExportError: It has another one; the message names both.
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
    """Return the initial state of a model after checks, also of its rings (state tensors of rows).

    Raises:
        ExportError: initial_state() fails, or the state or a ring breaks the contract.
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
    if model.capacity < 0 or model.when_full not in WHEN_FULL:
        raise ExportError(
            f"the model has capacity = {model.capacity} and when_full = {model.when_full!r}; give "
            f"a number of points, or 0 where any number fits, and one of {', '.join(WHEN_FULL)}."
        )
    for name, ring in model.rings.items():
        if name not in state:
            raise ExportError(f"rings has {name}; {method} gives {', '.join(state)}.")
        if bool(ring.slot) == bool(ring.counter) or ring.slot in (FINITE, *state):
            raise ExportError(
                f"the ring {name} has the counter {ring.counter!r} and the slot {ring.slot!r}; "
                "give one of them, and a slot a name that no other tensor has."
            )
        if ring.counter:
            _require_counter(method, name, state.get(ring.counter), ring.counter)
        if not 0 < ring.axis < state[name].ndim:
            raise ExportError(
                f"the ring {name} of shape {tuple(state[name].shape)} has rows along "
                f"axis {ring.axis}; give an axis from 1 to {state[name].ndim - 1}."
            )
    return state


def _require_counter(method: str, name: str, counter: Tensor | None, called: str) -> None:
    if counter is None or counter.is_floating_point():
        raise ExportError(
            f"rings has {name} with the counter {called}; {method} must give it, as integers."
        )
    if counter.any():
        raise ExportError(f"{method} starts the counter {called} elsewhere than at 0.")


def require_row_places(
    model: StreamingModel, method: str, state: Mapping[str, Tensor], written: Mapping[str, Tensor]
) -> None:
    """Check that a step places rows in rings (state tensors of the last rows) as the device will.

    Args:
        model: The model, which declares its rings.
        method: Name of the step in messages, as "update()".
        state: The state before the step, by name.
        written: Tensors that the step returned, by name.

    Raises:
        ExportError: The step does not raise a counter by 1, or gives no or a wrong place for a row.
    """
    for name, ring in model.rings.items():
        place = written.get(ring.slot or ring.counter)
        if ring.slot and name in written:
            n_slots = state[name].shape[ring.axis]
            if place is None or not ((place >= 0) & (place < n_slots)).all():
                raise ExportError(
                    f"{method} returns a row of {name} and no {ring.slot} for it from 0 to "
                    f"{n_slots - 1}; return the slot that it goes to, (B,)."
                )
        elif ring.counter and (place is None or not torch.equal(place, state[ring.counter] + 1)):
            raise ExportError(
                f"{method} does not raise the counter {ring.counter} by 1; the device "
                "writes a ring's rows one after the other, and the model must agree."
            )


def require_mergeable(model: StreamingModel) -> None:
    """Raise ExportError for a model with merge() whose states have no meaning joined."""
    if not can_merge(model):
        return
    reasons = {
        "a filter answers each input after those before it, and two streams have no common order": (
            is_filter(model)
        ),
        "`ordered` says that the order of points matters, and a merge knows none; set ordered = "
        "False if it does not": model.ordered,
        "it has rings, of which a device writes one row a step and never the whole": bool(
            model.rings
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ExportError(
                f"the model has merge(), but {reason}. Leave merge() out, or say in `no_merge` why "
                "its states do not join."
            )


def default_finite(
    written: Mapping[str, Tensor], n_elements: int = CHECKED_ELEMENTS
) -> Tensor | None:
    """Return a number for each stream, (B,): 0 if the small float tensors of a step are finite.

    Otherwise it is infinite; without float tensors None is returned. The smallest tensors are
    looked at, up to n_elements of them together, and one tensor at least. Each number is compared
    with infinity. A product with 0 would say the same, but TensorRT may take `0 * x` for 0, unless
    it builds with STRICT_NANS, which version 10.3 does not have.
    """
    floats = sorted((t for t in written.values() if t.is_floating_point()), key=Tensor.numel)
    room, chosen = n_elements, list[Tensor]()
    for tensor in floats:
        room -= tensor.numel()
        if room >= 0 or not chosen:
            chosen.append(tensor.flatten(1))
    if not chosen:
        return None
    widest = max((tensor.dtype for tensor in chosen), key=lambda dtype: dtype.itemsize)
    numbers = torch.cat([tensor.to(widest) for tensor in chosen], 1)
    return torch.where(numbers.abs() < math.inf, 0.0, math.inf).sum(1)
