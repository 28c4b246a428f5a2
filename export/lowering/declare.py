"""Find the steps of a model and what each reads and writes, and check the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.lowering.checks import (
    DTYPES,
    default_finite,
    require_equal,
    require_mergeable,
    require_row_places,
    require_state,
    require_tensors,
)
from edgefold.export.lowering.guards import guard
from edgefold.export.lowering.trace import StepFunction
from edgefold.runtime.bundle import manifest
from edgefold.runtime.errors import ExportError
from edgefold.train.contract import FINITE, StreamingModel, can_merge, is_filter, overrides

Arguments = dict[str, dict[str, Tensor]]
"""The arguments of a step: its tensors by role, then by name."""


@dataclass(frozen=True, slots=True)
class Given:
    """Describes one argument of a step by its role, its name and an example tensor."""

    role: str
    name: str
    example: Tensor


class StepDeclarer:
    """Finds the steps of a model that was rewritten for its device.

    Attributes:
        state: The tensors of the state before the first point, by name.
        cache: The tensors that `refresh` computes from this state; empty without `refresh`.
    """

    def __init__(self, model: StreamingModel, sizes: Sizes):
        self.model, self.sizes = model, sizes
        self.state = require_state(model, sizes.streams)
        self.cache: dict[str, Tensor] = {}
        self._passed: dict[str, set[str]] = {}
        self._random = torch.Generator().manual_seed(0)

    def steps(self) -> list[StepFunction]:
        """Return all steps of the model, after each was called with example tensors and checked.

        Raises:
            ExportError: The model breaks the contract, or does something that a graph cannot do.
        """
        model, targets = self.model, self.sizes.targets if self.model.n_inputs else 1
        require_mergeable(model)
        functions = [self._step() if is_filter(model) else self._update()]
        if not is_filter(model) and overrides(model, "condition") and self.sizes.chunk > 1:
            functions.append(self._condition())
        if bool(model.consolidate_every) != overrides(model, "consolidate"):
            raise ExportError(
                f"the model has consolidate_every = {model.consolidate_every} and "
                f"{'a' if overrides(model, 'consolidate') else 'no'} consolidate() of its own; it "
                "needs both or neither."
            )
        if model.consolidate_every:
            functions.append(self._consolidate())
        if is_filter(model):
            return functions
        if overrides(model, "refresh"):
            functions.append(self._refresh())
        functions.append(self._query("query", targets))
        if targets > 1:  # most loops ask for one target at a time
            functions.append(self._query("query_one", 1))
        if can_merge(model):
            functions.append(self._merge())
        return functions

    # Steps --------------------------------------------------------------------------------------

    def _update(self) -> StepFunction:
        n = self.sizes.streams

        def call(arguments: Arguments) -> dict[str, Tensor]:
            x, y = self._columns(arguments, "points.x", n), self._columns(arguments, "points.y", n)
            return self._written("update", arguments, self.model.update(arguments["state"], x, y))

        return self._make("update", "update", 1, call, [*self._points(n), *self._held("state")])

    def _condition(self) -> StepFunction:
        lead = (self.sizes.streams, self.sizes.chunk)

        def call(given: Arguments) -> dict[str, Tensor]:
            x, y = (self._columns(given, f"points.{name}", *lead) for name in "xy")
            mask = given["points.mask"]["mask"]
            returned = self.model.condition(given["state"], x, y, mask)
            return self._written("condition", given, returned)

        mask = Given("points.mask", "mask", torch.ones(lead, dtype=torch.bool))
        given = [*self._points(*lead), mask, *self._held("state")]
        return self._make("condition", "condition", lead[1], call, given)

    def _consolidate(self) -> StepFunction:
        def call(arguments: Arguments) -> dict[str, Tensor]:
            return self._written(
                "consolidate", arguments, self.model.consolidate(arguments["state"])
            )

        return self._make("consolidate", "consolidate", 0, call, self._held("state"))

    def _merge(self) -> StepFunction:
        def call(arguments: Arguments) -> dict[str, Tensor]:
            returned = self.model.merge(arguments["state"], arguments["other"])
            return self._written("merge", arguments, returned)

        others = [Given("other", name, tensor.clone()) for name, tensor in self.state.items()]
        return self._make("merge", "merge", 0, call, [*self._held("state"), *others])

    def _refresh(self) -> StepFunction:
        def call(arguments: Arguments) -> dict[str, Tensor]:
            cache = require_tensors("refresh()", self.model.refresh(arguments["state"]))
            return {f"{'finite' if n == FINITE else 'cache'}/{n}": t for n, t in cache.items()}

        return self._make("refresh", "refresh", 0, call, self._held("state"))

    def _query(self, name: str, width: int) -> StepFunction:
        lead = (self.sizes.streams, width)
        role = "cache" if self.cache else "state"
        query: Callable[..., Mapping[str, Tensor]] = self.model.query  # joint ones take a mask

        def call(arguments: Arguments) -> dict[str, Tensor]:
            x = self._columns(arguments, "targets.x", *lead)
            masks = arguments.get("targets.mask", {}).values()
            return self._predicted("query()", lead, query(arguments[role], x, *masks))

        inputs = [Given("targets.x", "x", self._draw(*lead, self.model.n_inputs))]
        if self.model.prediction.joint and width > 1:
            inputs.append(Given("targets.mask", "mask", torch.ones(lead, dtype=torch.bool)))
        return self._make(name, "query", width, call, [*inputs, *self._held(role)])

    def _step(self) -> StepFunction:
        n = self.sizes.streams

        def call(arguments: Arguments) -> dict[str, Tensor]:
            x = self._columns(arguments, "points.x", n)
            returned = self.model.step(arguments["state"], x)
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise ExportError("step() returns no pair (state, prediction).")
            written = self._written("step", arguments, returned[0])
            return written | self._predicted("step()", (n,), returned[1])

        return self._make("step", "step", 1, call, [*self._points(n)[:1], *self._held("state")])

    # Arguments and results ----------------------------------------------------------------------

    def _points(self, *lead: int) -> list[Given]:
        return [
            Given("points.x", "x", self._draw(*lead, self.model.n_inputs)),
            Given("points.y", "y", self._draw(*lead, self.model.n_outputs)),
        ]

    def _draw(self, *shape: int) -> Tensor:
        low, high = self.model.input_range
        return low + (high - low) * torch.rand(shape, generator=self._random)

    def _held(self, role: str) -> list[Given]:
        tensors = self.cache if role == "cache" else self.state
        return [Given(role, name, tensor) for name, tensor in tensors.items()]

    @staticmethod
    def _columns(arguments: Arguments, role: str, *lead: int) -> Tensor:
        """Return the tensor of a role such as "points.x", (*lead, columns); (*lead, 0) if none."""
        return next(iter(arguments[role].values())) if role in arguments else torch.zeros(*lead, 0)

    def _written(
        self, step: str, arguments: Arguments, returned: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Check the tensors that a step returned, and return the changed ones by "role/name".

        Roles are "state", "row", "slot" and "finite"; "finite" is added but for consolidate().
        """
        method, outputs, state = f"{step}()", {}, arguments["state"]
        tensors = require_tensors(method, returned)
        slots = {ring.slot for name, ring in self.model.rings.items() if name in tensors} - {""}
        # Decided by the first call, which is not traced and so knows what was written in place.
        if step in ("update", "step") and step not in self._passed:
            require_row_places(self.model, method, state, tensors)
        passed = self._passed.setdefault(
            step, {n for n, t in tensors.items() if t is state.get(n) and not t._version}
        )
        for name, tensor in tensors.items():
            if name in passed:
                continue
            if name in slots:
                require_equal(method, name, tensor, (self.sizes.streams,), torch.int64)
                outputs[f"slot/{name}"] = tensor
                continue
            if name == FINITE:
                require_equal(method, name, tensor, (self.sizes.streams,), tensor.dtype)
                outputs["finite/finite"] = tensor.float()
                continue
            if name not in self.state:
                raise ExportError(
                    f"{method} returns {name!r}, which initial_state() does not give; it gives "
                    f"{', '.join(self.state)}."
                )
            shape, own = list(self.state[name].shape), self.model.rings.get(name)
            if own is not None:
                shape[own.axis] = 1
                if step not in ("update", "step"):
                    raise ExportError(f"{method} returns the ring {name}; only update() may.")
            require_equal(method, name, tensor, shape, self.state[name].dtype)
            outputs[f"{'row' if own else 'state'}/{name}"] = tensor
        if not outputs and step != "step":
            raise ExportError(
                f"{method} changes no tensor of the state; return the new ones, under the names "
                f"that initial_state() gives: {', '.join(self.state)}."
            )
        if step != "consolidate" and "finite/finite" not in outputs:
            # A merge is rare and meets numbers of a file: all of its results are looked at.
            finite = default_finite(outputs, *[sys.maxsize] * (step == "merge"))
            outputs |= {} if finite is None else {"finite/finite": finite}
        return outputs

    def _predicted(
        self, method: str, lead: tuple[int, ...], returned: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Check a prediction's tensors, each (*lead, *shape); return them by "prediction/name".

        `lead` is (B, M) for query() and (B,) for step(); `shape` is that of one target.
        """
        kind = self.model.prediction
        declared = {tensor.name: tensor for tensor in kind.tensors(self.model.n_outputs)}
        tensors = require_tensors(method, returned)
        if tensors.keys() != declared.keys():
            raise ExportError(
                f"{method} returns the tensors {', '.join(tensors)}; a {kind.name} prediction has "
                f"{', '.join(declared)}."
            )
        for name, tensor in declared.items():
            dtype = getattr(torch, tensor.dtype)
            require_equal(method, name, tensors[name], (*lead, *tensor.shape), dtype)
        return {f"prediction/{name}": tensors[name] for name in declared}

    def _make(
        self,
        name: str,
        step: str,
        width: int,
        call: Callable[[Arguments], dict[str, Tensor]],
        given: list[Given],
    ) -> StepFunction:
        given = [one for one in given if one.example.numel()]

        def of_tensors(*tensors: Tensor) -> dict[str, Tensor]:
            arguments: Arguments = {}
            for one, tensor in zip(given, tensors, strict=True):
                arguments.setdefault(one.role, {})[one.name] = tensor
            return call(arguments)

        method, examples = f"{step}()", tuple(one.example for one in given)
        keys = [f"{one.role}/{one.name}" for one in given]
        returned, lines = guard(self.model, method, of_tensors, keys, examples)
        if step == "refresh":
            self.cache = {k[6:]: t for k, t in returned.items() if k.startswith("cache/")}
        names: set[str] = set()
        inputs = []
        for one in given:
            wanted = {"other": f"other_{one.name}"}.get(one.role, one.name)
            inputs.append(_declared(one.role, one.name, wanted, one.example, names))
        outputs = []
        for key, tensor in returned.items():
            role, of = key.split("/", 1)
            wanted = {"state": f"next_{of}", "row": f"{of}_row"}.get(role, of)
            outputs.append(_declared(role, of, wanted, tensor, names))

        def in_order(*tensors: Tensor) -> list[Tensor]:
            found = of_tensors(*tensors)
            return [found[key] for key in returned]

        declared = tuple(inputs), tuple(outputs)
        return StepFunction(name, step, width, method, in_order, *declared, examples, lines)


def _declared(role: str, of: str, name: str, tensor: Tensor, names: set[str]) -> manifest.Tensor:
    """Describe a tensor of a graph under a name that is not in `names`, and add the name to them.

    `role` and `of` are those of `manifest.Tensor`. A name that is taken gets "_" at its end: a
    state may have a tensor `x` or `mean`, too.
    """
    while name in names:
        name += "_"
    names.add(name)
    return manifest.Tensor(name, role, of, tuple(tensor.shape), DTYPES[tensor.dtype])
