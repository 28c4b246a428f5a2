from __future__ import annotations

import platform
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from edgefold.export.graphs.static_graph import shapes_of
from edgefold.export.lowering import convolutions
from edgefold.export.lowering.convolutions import MOST, as_products
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from tests.export.parsed_graphs import parsed

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _small_weights_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "LEAST", 1)


def model_of(text: str, **constants: np.ndarray[Any, Any]) -> onnx.ModelProto:
    return parsed(text, constants, opset=15)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(np.float32)


def answers(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[np.ndarray[Any, Any]] = session.run(None, {"x": x})
    return found


def require_same(one: onnx.ModelProto, other: onnx.ModelProto) -> None:
    x = normal(*shapes_of(one)["x"])
    for a, b in zip(answers(one, x), answers(other, x), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)  # float32 sums of up to 60 products


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize(
    "settings",
    [
        "kernel_shape=[3]",
        "kernel_shape=[3], pads=[1, 1]",
        "kernel_shape=[3], pads=[2, 0], dilations=[2]",
        "kernel_shape=[3], strides=[2], pads=[1, 1]",
        "kernel_shape=[3], strides=[3]",  # windows that touch, so that rows are only reshaped
        "kernel_shape=[3], strides=[6], pads=[1, 8]",  # with taps that only ever read padding
    ],
)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("channels", [1, 5])
def test_a_short_convolution_is_the_same_as_a_product(
    settings: str, batch: int, channels: int
) -> None:
    model = model_of(
        f"g (float[{batch}, {channels}, 9] x) => (float[n, c, t] y)"
        f"{{ y = Conv <{settings}> (x, w, b) }}",
        w=normal(4, channels, 3),
        b=normal(4),
    )
    made = as_products(model)
    assert not operators(made)["Conv"]
    require_same(model, made)


def test_neighbours_that_are_always_read_together_are_copied_as_one_row() -> None:
    model = model_of(
        "g (float[1, 1, 640] x) => (float[n, c, t] y)"
        "{ y = Conv <kernel_shape=[256], strides=[128]> (x, w) }",
        w=normal(10, 1, 256),
    )
    made = as_products(model)
    require_same(model, made)
    (gather,) = (node for node in made.graph.node if node.op_type == "Gather")
    assert shapes_of(made)[gather.input[0]] == (5, 128)


def test_a_convolution_that_reads_all_positions_once_moves_nothing() -> None:
    model = model_of(
        "g (float[2, 6, 5] x) => (float[n, c, t] y) { y = Conv <kernel_shape=[5]> (x, w) }",
        w=normal(3, 6, 5),
    )
    made = as_products(model)
    require_same(model, made)
    assert operators(made).keys() == {"Reshape", "Gemm", "Transpose"}
    assert operators(made)["Transpose"] == 1  # of one position, which a later pass removes


def test_what_lies_between_two_convolutions_stays_in_rows() -> None:
    text = """g (float[2, 4, 8] x) => (float[n, c, t] y) {
        a = Conv <kernel_shape=[3], pads=[1, 1]> (x, v)
        one, other = Split <axis=1> (a)
        gate = Sigmoid (other)
        b = Mul (one, gate)
        c = Mul (b, scale)
        d = Add (c, two)
        e = Slice (d, first, last, axis)
        f = Concat <axis=1> (e, d)
        y = Conv <kernel_shape=[3], strides=[2]> (f, w)
    }"""
    constants = {"v": normal(6, 4, 3), "w": normal(3, 5, 3), "scale": normal(3, 1)}
    model = model_of(
        text,
        **constants,
        two=np.array(2, np.float32),
        first=np.array([0]),
        last=np.array([2]),
        axis=np.array([1]),
    )
    made = as_products(model)
    require_same(model, made)
    assert operators(made)["Transpose"] == 2  # at both ends
    assert operators(made)["Gemm"] == 2


def test_a_value_that_is_read_in_both_forms_has_both() -> None:
    text = """g (float[1, 4, 6] x) => (float[n, c, t] y, float[n, c] total) {
        a = Conv <kernel_shape=[3]> (x, v)
        y = Conv <kernel_shape=[2]> (a, w)
        total = ReduceSum <keepdims=0> (a, axis)
    }"""
    model = model_of(text, v=normal(5, 4, 3), w=normal(3, 5, 2), axis=np.array([2]))
    made = as_products(model)
    require_same(model, made)
    assert not operators(made)["Conv"]


@pytest.mark.parametrize(
    ("channels", "length", "settings"),
    [
        (4, MOST + 3, "kernel_shape=[3]"),  # as fast as it is
        (1, 8, "kernel_shape=[3], group=4"),
        (4, 8, 'kernel_shape=[3], auto_pad="SAME_UPPER"'),
    ],
)
def test_other_convolutions_stay(channels: int, length: int, settings: str) -> None:
    model = model_of(
        f"g (float[1, 4, {length}] x) => (float[n, c, t] y) {{ y = Conv <{settings}> (x, w) }}",
        w=normal(4, channels, 3),
    )
    assert operators(as_products(model)) == {"Conv": 1}


def test_a_convolution_with_computed_weights_stays() -> None:
    model = model_of(
        "g (float[1, 2, 5] x) => (float[n, c, t] y)"
        "{ w = Relu (v) y = Conv <kernel_shape=[3]> (x, w) }",
        v=normal(4, 2, 3),
    )
    assert operators(as_products(model))["Conv"] == 1


def test_two_convolutions_of_one_value_do_not_meet() -> None:
    model = model_of(
        """g (float[1, 4, 6] x) => (float[n, c, t] y, float[n, c, t] z) {
            y = Conv <kernel_shape=[3], pads=[1, 1]> (x, v)
            z = Conv <kernel_shape=[3], pads=[1, 1]> (x, w)
        }""",
        v=normal(5, 4, 3),
        w=normal(2, 4, 3),
    )
    require_same(model, as_products(model))


def test_small_weights_are_not_worth_the_way_into_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "g (float[1, 4, {n}] x) => (float[n, c, t] y) {{ y = Conv <kernel_shape=[3]> (x, w) }}"
    one, several = (model_of(text.format(n=n), w=normal(5, 4, 3)) for n in (3, 6))
    monkeypatch.setattr(convolutions, "LEAST", 61)
    assert operators(as_products(several))["Conv"] == 1
    assert operators(as_products(one))["Conv"] == 0  # which only is reshaped


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other kernels add in other orders")
@pytest.mark.parametrize(
    ("channels", "taps", "n_out"), [(1, 256, 4), (1, 257, 4), (2, 8, 4), (1, 8, 1)]
)
def test_sums_keep_their_order_unless_told_otherwise(channels: int, taps: int, n_out: int) -> None:
    model = model_of(
        f"g (float[1, {channels}, {taps + n_out - 1}] x) => (float[n, c, t] y)"
        f"{{ y = Conv <kernel_shape=[{taps}]> (x, w) }}",
        w=normal(40, channels, taps),
    )
    made = as_products(model, reorder_sums=False)
    assert (operators(made)["Conv"] == 0) == ((channels, taps, n_out) == (1, 256, 4))
    x = normal(1, channels, taps + n_out - 1)
    np.testing.assert_array_equal(answers(made, x), answers(model, x))
    assert not operators(as_products(model))["Conv"]
