"""Refuse models that an exporter would silently get wrong, before anything is exported.

A graph holds only what one call of a step computes from its arguments. Other effects, such as
state in buffers or attributes, arguments that are written or random numbers, are dropped or frozen
by torch.export. One watched call in PyTorch finds them all, with the line of the model's file that
causes each; a second call finds results that differ between calls for any other reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from edgefold.export.lowering.refusals import line_of_call, refusal
from edgefold.runtime.errors import ExportError

Step = Callable[..., Mapping[str, Tensor]]


@dataclass(slots=True)
class Seen:
    """Holds the effects of a watched call; each has the line of the model that caused it.

    Attributes:
        arguments: Lines that write an argument in place, by the number of the argument.
        attributes: Lines that assign an attribute or write it in place, by name.
        random: Lines that draw random numbers, by operator.
        operators: Lines that first use an operator, by operator; "complex" is for complex numbers.
    """

    arguments: dict[int, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    random: dict[str, str] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)


class _CallWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each operator that draws random numbers, or writes to an argument or attribute."""

    supports_higher_order_operators = True

    def __init__(self, arguments: Sequence[Tensor], owned: Mapping[str, Tensor], seen: Seen):
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen, self.compiled = seen, False
        self.arguments = {_storage(tensor): index for index, tensor in enumerate(arguments)}
        self.owned = {_storage(tensor): name for name, tensor in owned.items()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):  # torch.cond and the like
            self.compiled = True
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.is_write and isinstance(value, Tensor):
                    self._written(value)
        may_draw = torch.Tag.nondeterministic_seeded in func.tags
        before = torch.get_rng_state() if may_draw else None
        result = func(*args, **kwargs)
        self._note(self.seen.operators, func.overloadpacket.__name__)
        if isinstance(result, Tensor) and result.is_complex():
            self._note(self.seen.operators, "complex")
        # Attention carries the tag, too, but draws nothing.
        if before is not None and (
            kwargs.get("generator") is not None or not torch.equal(before, torch.get_rng_state())
        ):
            self._note(self.seen.random, str(func))
        return result

    @staticmethod
    def _note(places: dict[str, str], name: str) -> None:
        if name not in places:
            places[name] = line_of_call()

    def _written(self, tensor: Tensor) -> None:
        place = _storage(tensor)
        if place in self.arguments:
            self.seen.arguments.setdefault(self.arguments[place], line_of_call())
        elif place in self.owned:
            self.seen.attributes.setdefault(self.owned[place], line_of_call())


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return every tensor that a model holds, by name: parameters, buffers, plain attributes."""
    tensors: dict[str, Tensor] = dict(model.named_buffers()) | dict(model.named_parameters())
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                tensors[f"{prefix}.{name}".lstrip(".")] = value
    return tensors


def _plain_of(model: nn.Module) -> dict[str, Any]:
    """Return a comparable copy of each attribute that is not a tensor or a module, by name."""
    return {
        f"{prefix}.{name}".lstrip("."): _print(value)
        for prefix, module in model.named_modules()
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training" and not isinstance(value, Tensor)
    }


def _print(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _print(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_print(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else id(value)


@contextmanager
def _watched_attributes(model: nn.Module, seen: Seen) -> Iterator[None]:
    """Record each assignment to a model's attribute in the block; restore all attributes after."""
    names = {id(module): name for name, module in model.named_modules()}
    earlier = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    original = nn.Module.__setattr__

    def assign(module: nn.Module, name: str, value: Any) -> None:
        if id(module) in names:
            whole = f"{names[id(module)]}.{name}".lstrip(".")
            seen.attributes.setdefault(whole, line_of_call())
        original(module, name, value)

    try:
        with mock.patch.object(nn.Module, "__setattr__", assign):
            yield
    finally:
        for module, attributes, buffers in earlier:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)


def watched(model: nn.Module, call: Step, arguments: Sequence[Tensor]) -> tuple[Any, Seen]:
    """Call a step and return its result and its effects; attributes are restored afterwards."""
    seen = Seen()
    before = _plain_of(model)
    owned = _tensors_of(model)
    with torch.no_grad(), _watched_attributes(model, seen):
        with _CallWatch(arguments, owned, seen) as watch:
            returned = call(*arguments)
        if watch.compiled:  # what was compiled under watch does not trace
            torch.compiler.reset()
        for name, value in _plain_of(model).items():
            if name not in before or before[name] != value:
                seen.attributes.setdefault(name, "")
    return returned, seen


def guard(
    model: nn.Module, what: str, call: Step, names: Sequence[str], examples: Sequence[Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Call a step and refuse it if it has effects that a graph of it would lose.

    Args:
        model: The model whose step it is.
        what: Name of the step in messages, as "update()".
        call: The step as a function of tensors.
        names: Names of the arguments; an argument that is written in place must be returned under
            the same name.
        examples: The arguments; the step gets copies of them.

    Returns:
        The tensors that the step returned, and the line of the model that first used each operator.

    Raises:
        ExportError: The step fails, or does something that a graph cannot.
    """
    arguments = [tensor.clone() for tensor in examples]
    try:
        returned, seen = watched(model, call, arguments)
        again, _ = watched(model, call, [tensor.clone() for tensor in examples])
    except ExportError:
        raise
    except Exception as error:
        raise refusal(error, what, failed=True) from error
    here = definition(model, what.removesuffix("()"))
    for name, line in seen.attributes.items():
        raise ExportError(
            f"{what} writes to the attribute {name} of the model{_at(line or here)}: a graph would "
            "forget it. Put it into the state that initial_state() gives, and return it."
        )
    for operator, line in seen.random.items():
        raise ExportError(
            f"{what} draws random numbers with {operator}{_at(line)}: a graph of it would give "
            "other predictions each time. Predict the distribution instead."
        )
    for index, line in seen.arguments.items():
        argument = arguments[index]
        result = returned.get(names[index])
        if (
            result is None
            or _storage(result) != _storage(argument)
            or result.shape != argument.shape
        ):
            raise ExportError(
                f"{what} writes to its argument {names[index]} in place{_at(line)} and does not "
                f"return it: a graph would lose that. Return it, or write to a copy "
                f"({names[index]}.clone())."
            )
    if returned.keys() != again.keys() or not all(_same(returned[k], again[k]) for k in returned):
        raise ExportError(
            f"{what} gives two results for the same arguments{_at(here)}: it "
            "depends on something that is no tensor of the state (random numbers of Python or "
            "numpy, a clock, a global variable). A graph would keep its value of today."
        )
    return dict(returned), seen.operators


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))


def _at(line: str) -> str:
    return f" ({line})" if line else ""


def definition(model: nn.Module, method: str) -> str:
    """Return where a method of a model is written, as "file:line"; "" if Python does not know."""
    function = getattr(type(model), method, None)
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""
