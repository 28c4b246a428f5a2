"""Small graphs on which the rules of the generator of C are tried, and how to write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

RANDOM = np.random.default_rng(7)
Array = Any


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(*shape: int, high: int = 5) -> Array:
    return RANDOM.integers(0, high, shape).astype(np.int64)


@dataclass(frozen=True)
class Case:
    """One node or a few on given inputs; constants are weights of the graph."""

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: dict[str, Array]
    constants: dict[str, Array] = field(default_factory=dict)
    opset: int = 17


def one(name: str, op: str, *arrays: Array, constants: int = 0, **attributes: Any) -> Case:
    """A case of one node; the last `constants` arrays are weights."""
    named = {f"in{k}": array for k, array in enumerate(arrays)}
    split = len(arrays) - constants
    node = helper.make_node(op, list(named), ["out"], **attributes)
    items = list(named.items())
    return Case(name, (node,), dict(items[:split]), dict(items[split:]))


def two(name: str, op: str, array: Array, then: str, *more: Array, **attributes: Any) -> Case:
    """A case of a node with an input, and a second node with its result and weights."""
    named = {f"in{k}": weight for k, weight in enumerate(more)}
    nodes = node(op, ["a"], ["b"]), node(then, ["b", *named], ["out"], **attributes)
    return Case(name, nodes, {"a": array}, named)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)
