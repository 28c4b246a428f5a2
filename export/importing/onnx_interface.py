"""Decide which inputs and outputs of an ONNX file are state, and which are data of one step.

An ambiguous file is refused with a list of all its inputs and outputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ValueInfoProto, helper

from edgefold.export.graphs.folding import MOST_BYTES
from edgefold.export.graphs.static_graph import Shape
from edgefold.runtime.errors import ExportError

Array = NDArray[Any]
FILLERS = {
    *("in", "out", "input", "output", "init", "initial", "new", "next", "old", "prev", "previous"),
    *("past", "present", "current", "last", "updated"),
}
"""Words in names that only say whether a tensor is the state before a step or after it."""


@dataclass(frozen=True, slots=True)
class ImportConfig:
    """Holds the user's decisions about an ONNX file; they use the names of the file.

    Attributes:
        state: For each input that is state, the output that is its next value. If empty, inputs and
            outputs of one shape and similar names are paired, if there is no doubt.
        inputs: Shapes of inputs that get new data at each step, and of state without a fixed shape.
        constants: Values of inputs that never change.
        outputs: Outputs that are predictions; if empty, every output that is not state.
        overlap: Number of elements of an input's last axis that repeat the last ones of the step
            before, by input. These become state, and a step takes only the new elements.
        initial: First value of a state tensor, by its name in the bundle; 0 for others.
        n_streams: Number of streams (B) that are served at the same time; it is the length of the
            first axis of inputs and predictions.
        reorder_sums: Whether convolutions may become products that add in another order, which is
            faster; predictions then differ from the file's in the last digits of float32.
    """

    state: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Shape] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    overlap: Mapping[str, int] = field(default_factory=dict)
    initial: Mapping[str, Array] = field(default_factory=dict)
    n_streams: int = 1
    reorder_sums: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Describes an input of the file that is filled from x, the new data of a step.

    The first `overlap` elements of its last axis come from the step before instead.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    overlap: int

    @property
    def new_shape(self) -> Shape:
        """Return the shape of the new elements of one step."""
        return (*self.shape[:-1], self.shape[-1] - self.overlap) if self.overlap else self.shape

    @property
    def context_shape(self) -> Shape:
        return (*self.shape[:-1], self.overlap)

    @property
    def context(self) -> str:
        """Return the name of the state tensor that keeps the overlap."""
        return f"{identifier(self.name)}_context"


@dataclass(frozen=True, slots=True)
class Pair:
    """Describes a state tensor of the file: its input, and the output that is its next value."""

    input: str
    output: str
    shape: Shape
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Interface:
    """Holds the meaning of every input of a file, and of the outputs that are used.

    Attributes:
        sources: Inputs that are filled from x, in the order of their columns.
        state: Inputs and outputs that are state.
        constants: Values of inputs that never change, by input.
        initial: First value of each state tensor, by its name in the bundle.
        predictions: Names of the outputs that are predictions.
        n_streams: Number of streams (B).
    """

    sources: tuple[Source, ...]
    state: tuple[Pair, ...]
    constants: Mapping[str, Array]
    initial: Mapping[str, Array]
    predictions: tuple[str, ...]
    n_streams: int

    @property
    def columns(self) -> tuple[int, ...]:
        """Return the number of columns of x that each source takes, for one stream."""
        return tuple(
            int(np.prod(source.new_shape, dtype=np.int64)) // self.n_streams
            for source in self.sources
        )


def identifier(name: str) -> str:
    """Return a name of the file as a Python identifier."""
    return re.sub(r"\W", "_", name).lstrip("_0123456789") or "value"


def read_interface(model: onnx.ModelProto, config: ImportConfig) -> Interface:
    """Decide the meaning of each input and output of a file.

    Raises:
        ExportError: A name is unknown, a shape is not fixed, or the meaning is ambiguous.
    """
    return _Reader(model, config).interface()


class _Reader:
    def __init__(self, model: onnx.ModelProto, config: ImportConfig):
        constants = {tensor.name for tensor in model.graph.initializer}
        self._inputs = {i.name: i for i in model.graph.input if i.name not in constants}
        self._outputs = {info.name: info for info in model.graph.output}
        self._config = config
        self._symbols: dict[str, int] = {}

    def interface(self) -> Interface:
        config = self._config
        mentions = (*config.state, *config.inputs, *config.constants, *config.overlap)
        for name in mentions:
            if name not in self._inputs:
                self._refuse(f"there is no input {name!r}")
        for name in (*config.state.values(), *config.outputs):
            if name not in self._outputs:
                self._refuse(f"there is no output {name!r}")
        for name, shape in config.inputs.items():
            self._bind(name, shape)
        state = config.state or self._guessed_state()
        sources = self._sources(state)
        pairs = tuple(
            Pair(name, output, self._shape(name), _dtype(self._inputs[name]))
            for name, output in state.items()
        )
        predictions = config.outputs or tuple(
            name for name in self._outputs if name not in state.values()
        )
        if not predictions:
            self._refuse("every output is state, so that nothing is left to predict")
        initial = self._initial(pairs, sources)
        names = ["x", "finite", *initial, *map(identifier, predictions)]
        if len(names) > len(set(names)):
            self._refuse(f"a bundle needs a name of its own for each of {', '.join(names)}")
        return Interface(sources, pairs, self._constants(), initial, predictions, config.n_streams)

    def _sources(self, state: Mapping[str, str]) -> tuple[Source, ...]:
        config = self._config
        free = [name for name in self._inputs if name not in {*state, *config.constants}]
        listed = [name for name in free if name in config.inputs]
        if listed != free and (listed or len(free) > 1):
            self._refuse(
                f"it is not said what {' and '.join(n for n in free if n not in listed)} shall be; "
                "give --state IN=OUT, --set IN=NUMBER or --input IN:SHAPE for each"
            )
        if not free:
            self._refuse("every input is state or constant, so that nothing arrives at a step")
        sources = []
        for name in free:
            shape, overlap = self._shape(name), config.overlap.get(name, 0)
            if config.n_streams > 1 and shape[:1] != (config.n_streams,):
                self._refuse(f"{name} has shape {shape}; its first axis must be the streams")
            if not 0 <= overlap < max(shape[-1:], default=1):
                self._refuse(f"{name} has shape {shape}, which cannot overlap by {overlap}")
            sources.append(Source(name, shape, _dtype(self._inputs[name]), overlap))
        return tuple(sources)

    def _constants(self) -> dict[str, Array]:
        return {
            name: np.full(self._shape(name), value, _dtype(self._inputs[name]))
            for name, value in self._config.constants.items()
        }

    def _initial(self, pairs: tuple[Pair, ...], sources: tuple[Source, ...]) -> dict[str, Array]:
        initial = {identifier(pair.input): np.zeros(pair.shape, pair.dtype) for pair in pairs}
        for source in sources:
            if source.overlap:
                initial[source.context] = np.zeros(source.context_shape, source.dtype)
        for name, array in self._config.initial.items():
            if name not in initial:
                self._refuse(f"no state tensor {name!r} has a first value; known: {list(initial)}")
            if initial[name].shape != array.shape:
                self._refuse(f"the first {name} is {array.shape}, expected {initial[name].shape}")
            initial[name] = array.astype(initial[name].dtype)
        return initial

    def _bind(self, name: str, shape: Shape) -> None:
        """Record the lengths of an input's named axes; refuse a `shape` unlike the file's."""
        declared = _dimensions(self._inputs[name])
        fits = declared is None or len(declared) == len(shape)
        for symbol, length in zip(declared or (), shape, strict=False):
            fixed = self._symbols.setdefault(symbol, length) if isinstance(symbol, str) else symbol
            fits = fits and fixed in (None, length)
        if not fits or min(shape, default=1) < 1:
            self._refuse(f"{name} cannot have shape {shape}")

    def _shape(self, name: str) -> Shape:
        """Return the fixed shape of an input; refuse the file if the shape is open."""
        shape = self._known_shape(name)
        n_bytes = math.prod(shape) * _dtype(self._inputs[name]).itemsize
        if n_bytes > MOST_BYTES:
            self._refuse(
                f"{name} of shape {list(shape)} has {n_bytes >> 20} MiB, "
                f"more than {MOST_BYTES >> 20}"
            )
        return shape

    def _known_shape(self, name: str) -> Shape:
        if name in self._config.inputs:
            return tuple(self._config.inputs[name])
        declared = _dimensions(self._inputs[name])
        open_or_fixed = [None] if declared is None else declared
        lengths = [self._symbols.get(d) if isinstance(d, str) else d for d in open_or_fixed]
        if None in lengths:
            self._refuse(f"{name} has no fixed shape; give --input {name}:SHAPE, as {name}:1x8")
        return tuple(length for length in lengths if length is not None)

    def _guessed_state(self) -> dict[str, str]:
        """Return for each input that looks like state the output that is its next value, by names.

        The two have equal type, shape and name, apart from words like "next".
        """
        state: dict[str, str] = {}
        for name, info in self._inputs.items():
            if name in self._config.constants or name in self._config.inputs:
                continue
            fitting = [o for o, out in self._outputs.items() if _alike(info, out)]
            if len(fitting) > 1 or (fitting and fitting[0] in state.values()):
                self._refuse(f"the state is ambiguous: {name} could be {' or '.join(fitting)}")
            if fitting:
                state[name] = fitting[0]
        if not state:
            self._refuse("no output is clearly the next value of an input; give --state IN=OUT")
        return state

    def _refuse(self, reason: str) -> NoReturn:
        def listed(infos: Mapping[str, ValueInfoProto]) -> str:
            return ", ".join(f"{name} {_text(info)}" for name, info in infos.items())

        raise ExportError(
            f"{reason}. Inputs: {listed(self._inputs)}. Outputs: {listed(self._outputs)}."
        )


def _alike(before: ValueInfoProto, after: ValueInfoProto) -> bool:
    """Return whether an output may be the next value of an input, by type, shape and name.

    Names are equal without words such as "next" and "in"; the output's may have an "n" at its end.
    """
    one, other = _dimensions(before), _dimensions(after)
    same = _dtype(before) == _dtype(after) and len(one or ()) == len(other or ())
    for a, b in zip(one or (), other or (), strict=False):
        same = same and (a == b or not (isinstance(a, int) and isinstance(b, int)))
    name, following = (_without_fillers(info.name) for info in (before, after))
    return same and name != "" and following in (name, f"{name}n", f"{name.rstrip('0')}n")


def _without_fillers(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "_".join(word for word in words if word not in FILLERS)


def _dtype(info: ValueInfoProto) -> np.dtype[Any]:
    number = info.type.tensor_type.elem_type
    try:
        return helper.tensor_dtype_to_np_dtype(number)
    except KeyError:
        raise ExportError(
            f"{info.name} has elements of type {number}, which the installed onnx does not know."
        ) from None


def _dimensions(info: ValueInfoProto) -> list[int | str | None] | None:
    """Return the length of each axis: a number, a name if it is open, or None if unknown."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim
    ]


def _text(info: ValueInfoProto) -> str:
    lengths = _dimensions(info)
    shape = "?" if lengths is None else "x".join("?" if d is None else str(d) for d in lengths)
    return f"{_dtype(info)} {shape or 'scalar'}"
