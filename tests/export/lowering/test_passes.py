from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from edgefold.export.lowering.simplify import simplify
from edgefold.export.lowering.trace import StepFunction
from edgefold.runtime.bundle.manifest import Tensor
from tests.export.lowering.small_models import normal, run

ROUNDING = 2e-6  # float32 in another order of additions


def a_step(text: str, **roles: str) -> tuple[onnx.ModelProto, StepFunction]:
    """A graph in ONNX's text form as a step; a tensor's role is its own name unless given."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    sides: list[tuple[Tensor, ...]] = []
    for values in (model.graph.input, model.graph.output):
        side = []
        for value in values:
            form = value.type.tensor_type
            shape = tuple(axis.dim_value for axis in form.shape.dim)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(form.elem_type).name
            side.append(
                Tensor(value.name, roles.get(value.name, "state"), value.name, shape, dtype)
            )
        sides.append(tuple(side))
    renamed = {t.name: f"step.{t.name}" for side in sides for t in side}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    for index, value in enumerate(model.graph.output):  # as `translate` leaves outputs
        inner = f"inner.{index}"
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [inner if n == renamed[value.name] else n for n in names]
        model.graph.node.append(onnx.helper.make_node("Identity", [inner], [renamed[value.name]]))
    for value in (*model.graph.input, *model.graph.output):
        value.name = renamed[value.name]
    inputs, outputs = sides
    step = StepFunction("step", "step", 1, "step()", lambda *t: t, inputs, outputs, (), {})
    return model, step


def simplified(text: str, **roles: str) -> tuple[onnx.ModelProto, Counter[str]]:
    """A graph after the passes, once it gives the same numbers, and how many nodes of each kind."""
    original, step = a_step(text, **roles)
    made = simplify(original, step)
    values = {tensor.name: normal(*tensor.shape) for tensor in step.inputs}
    expected = run(original, {f"step.{name}": array for name, array in values.items()})
    for name, array in run(made, values).items():
        wanted = expected[f"step.{name}"]
        assert np.allclose(array.reshape(wanted.shape), wanted, rtol=0, atol=ROUNDING)
    return made, Counter(node.op_type for node in made.graph.node)


def shapes(made: onnx.ModelProto) -> dict[str, list[int]]:
    ends = (*made.graph.input, *made.graph.output)
    return {v.name: [axis.dim_value for axis in v.type.tensor_type.shape.dim] for v in ends}


def test_moves_that_keep_the_bytes_become_one_reshape() -> None:
    _, kinds = simplified("""g (float[2,1,3] a) => (float[3,2] out) {
        axis = Constant <value_ints = [1]> ()
        flat = Squeeze (a, axis)
        zero = Constant <value_ints = [0]> ()
        more = Unsqueeze (flat, zero)
        turned = Transpose <perm = [1, 0, 2]> (more)
        shape = Constant <value_ints = [3, 2]> ()
        b = Reshape (turned, shape)
        out = Neg (b)
    }""")
    assert kinds == {"Reshape": 1, "Neg": 1}


def test_integers_of_each_stream_are_not_taken_for_a_shape() -> None:
    text = """agraph (int64[2] n) => (int64[2,5] made)
        <int64[5] five = {0, 1, 2, 3, 4}, int64[1] axis = {1}> {
            column = Unsqueeze (n, axis)
            made = Sub (column, five)
        }"""
    original, step = a_step(text)
    made = run(simplify(original, step), {"n": np.array([7, 3])})["made"]
    assert np.array_equal(made, np.array([[7], [3]]) - np.arange(5))


def test_moves_that_change_the_order_stay() -> None:
    _, kinds = simplified("""g (float[2,3] a, float[3] b) => (float[3,2] out, float[3] back) {
        c = Transpose <perm = [1, 0]> (a)
        out = Neg (c)
        start = Constant <value_ints = [-1]> ()
        end = Constant <value_ints = [-9]> ()
        axis = Constant <value_ints = [0]> ()
        d = Slice (b, start, end, axis, start)
        back = Neg (d)
    }""")
    assert kinds == {"Transpose": 1, "Slice": 1, "Neg": 2}


def test_reshapes_at_the_interface_move_into_it() -> None:
    made, kinds = simplified(
        """g (float[2,3,1] x, float[2,3] h) => (float[2,3,1] mean, float[6] next) {
        rows = Constant <value_ints = [6, 1]> ()
        a = Reshape (x, rows)
        b = Sin (a)
        lead = Constant <value_ints = [2, 3, 1]> ()
        mean = Reshape (b, lead)
        six = Constant <value_ints = [6]> ()
        c = Neg (h)
        next = Reshape (c, six)
    }""",
        x="points.x",
        mean="prediction",
    )
    assert shapes(made) == {"x": [6, 1], "mean": [6, 1], "h": [2, 3], "next": [6]}
    assert kinds == {"Sin": 1, "Neg": 1, "Reshape": 1}  # the state keeps its shape


def test_a_layer_over_three_axes_becomes_products_of_rows() -> None:
    made, kinds = simplified(
        """g (float[2,3,4] x) => (float[2,3,2] mean) <
            float[4,4] w = {1,2,0,1, 0,1,1,0, 2,0,1,1, 1,0,0,1}, float[4] b = {1,2,3,4},
            float[4] s = {1,1,1,1}, float[4,2] v = {1,0,0,1,1,1,2,0}, float[2] c = {5,6}
        > {
            p = MatMul (x, w)
            q = Add (b, p)
            n = LayerNormalization <axis = -1> (q, s)
            r = Relu (n)
            t = Add (r, x)
            u = MatMul (t, v)
            mean = Add (u, c)
        }""",
        x="targets.x",
        mean="prediction",
    )
    assert kinds == {"Gemm": 2, "LayerNormalization": 1, "Relu": 1, "Add": 1}
    assert shapes(made) == {"x": [6, 4], "mean": [6, 2]}


def test_halves_of_the_last_axis_are_taken_from_rows() -> None:
    made, kinds = simplified(
        """g (float[2,3,2] x) => (float[2,3,2] mean, float[2,3,2] std) <
            float[2,4] w = {1,2,0,1,0,1,1,0}, float[4] b = {1,2,3,4}, int64[2] halves = {2,2}
        > {
            p = MatMul (x, w)
            q = Add (p, b)
            mean, low = Split <axis = 2> (q, halves)
            std = Exp (low)
        }""",
        x="targets.x",
        mean="prediction",
        std="prediction",
    )
    assert kinds == {"Gemm": 1, "Split": 1, "Exp": 1}
    assert shapes(made) == {"x": [6, 2], "mean": [6, 2], "std": [6, 2]}


@pytest.mark.parametrize("bounds", ["low", '"", high', "low, high"])
def test_a_bound_stays_the_bound_it_was_where_its_node_works_on_rows(bounds: str) -> None:
    _, kinds = simplified(
        f"""g (float[2,3,2] x) => (float[2,3,2] mean) <
            float[2,2] w = {{1,0,0,1}}, float[2] b = {{0.1,0.2}}, float low = {{-0.5}},
            float high = {{0.5}}
        > {{
            p = MatMul (x, w)
            q = Add (p, b)
            mean = Clip (q, {bounds})
        }}""",
        x="targets.x",
        mean="prediction",
    )
    assert kinds == {"Gemm": 1, "Clip": 1}


@pytest.mark.parametrize("order", ["Mul (half, x)", "Mul (x, half)"])
def test_gelu_takes_the_order_that_onnxruntime_fuses(order: str) -> None:
    made, kinds = simplified(f"""g (float[3,4] a) => (float[3,4] out) <
        float root = {{1.4142135}}, float one = {{1}}, float number = {{0.5}}
    > {{
        x = Neg (a)
        scaled = Div (x, root)
        erf = Erf (scaled)
        more = Add (erf, one)
        half = Mul (number, more)
        out = {order}
    }}""")
    assert kinds == {"Neg": 1, "Div": 1, "Erf": 1, "Add": 1, "Mul": 2}
    assert [node.op_type for node in made.graph.node][-3:] == ["Add", "Mul", "Mul"]
    last = made.graph.node[-1]
    constants = {tensor.name for tensor in made.graph.initializer}
    assert constants & set(last.input)  # the half comes last


def test_equal_nodes_and_what_nobody_reads_go() -> None:
    made, kinds = simplified("""g (float[3] a, float[3] unread) => (float[3] out) <
        float one = {1}, float[1] also = {1}, float[3] zeros = {0,0,0}
    > {
        b = Sin (a)
        c = Sin (a)
        d = Mul (c, one)
        e = Add (zeros, b)
        lost = Exp (unread)
        out = Add (d, e)
    }""")
    assert kinds == {"Sin": 1, "Add": 1}
    assert set(shapes(made)) == {"a", "out"}
    assert not made.graph.initializer


def test_outputs_that_no_node_makes_get_one() -> None:
    made, kinds = simplified("""g (float[3] a) => (float[3] same, float[3] twin, float[9] zeros,
                                                   float[2] mixed) <
        float[9] nought = {0,0,0,0,0,0,0,0,0}, float[2] pair = {1,2}
    > {
        b = Neg (a)
        same = Identity (b)
        twin = Identity (b)
        zeros = Identity (nought)
        mixed = Identity (pair)
    }""")
    assert kinds == {"Neg": 1, "Identity": 2, "Expand": 1}
    assert sum(t.raw_data.__len__() for t in made.graph.initializer) < 9 * 4


def test_a_step_that_hands_on_an_input_copies_it() -> None:
    _, kinds = simplified("g (float[3] a) => (float[3] out) { out = Identity (a) }")
    assert kinds == {"Identity": 1}


def test_weights_are_stored_as_products_read_them_and_only_once() -> None:
    made, kinds = simplified("""g (float[1,2] a) => (float[1,2] b, float[1,2] c) <
        float[2,2] w = {1,2,3,4}, float[2,2] t = {1,3,2,4}, float[2] z = {1,2}
    > {
        b = Gemm <transB = 1, alpha = 1.0> (a, w, z)
        minus = Neg (a)
        c = Gemm (minus, t, z)
    }""")
    assert kinds == {"Gemm": 2, "Neg": 1}
    assert not [node for node in made.graph.node if node.attribute]
    assert len(made.graph.initializer) == 2


REDUCTION = """g (float[2,3] a) => (float[2] out, float[2,2] left, float[2,1] right) {
    axes = Constant <value_ints = [1]> ()
    out = ReduceMax <keepdims = 0> (a, axes)
    left, right = Split <axis = 1, num_outputs = 2> (a)
}"""


def test_graphs_are_of_an_old_version_where_it_has_their_operators() -> None:
    even = REDUCTION.replace("[2,1] right", "[2,2] right").replace("[2,3] a", "[2,4] a")
    made, _ = simplified(even)
    assert made.opset_import[0].version == 17
    uneven, _ = simplified(REDUCTION)
    assert uneven.opset_import[0].version == 18


def test_simplifying_depends_on_no_name_inside() -> None:
    text = """g (float[2,3] a) => (float[2,3] out) <float one = {2}> {
        b = Sin (a)
        c = Mul (b, one)
        out = Exp (c)
    }"""

    def made(text: str) -> bytes:
        found: Any = simplify(*a_step(text))
        whole: bytes = found.SerializeToString(deterministic=True)
        return whole

    assert made(text) == made(text.replace("b", "sin_7").replace("one", "two"))


def test_subgraphs_keep_what_they_read_from_outside() -> None:
    _, kinds = simplified("""g (float[2] a, float[1] flag) => (float[2] out) <
        float[1] zero = {0}, float[2] two = {2,2}
    > {
        larger = Greater (flag, zero)
        b = Sin (a)
        out = If (larger) <
            then_branch = then_graph () => (float[2] yes) { yes = Mul (b, two) },
            else_branch = else_graph () => (float[2] no) { no = Neg (b) }
        >
    }""")
    assert kinds == {"Greater": 1, "Sin": 1, "If": 1}
