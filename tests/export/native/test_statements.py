"""What the generator saves before statements become text: passes over memory, and memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from edgefold.export.native.c_pieces import needed
from edgefold.export.native.generator import write_function
from edgefold.export.native.program.arena import n_bytes, planned
from edgefold.export.native.program.constants import Constants, packed
from edgefold.export.native.program.lowering import c_name
from edgefold.export.native.program.statements import (
    SHORT,
    Assignment,
    Loop,
    Program,
    joined,
    with_locals,
)
from edgefold.export.native.program.values import Buffer, Value, View, apply, row_major
from tests.export.native.rule_cases import Case, i64, node, normal
from tests.export.native.test_rules import ATTENTION, model_of, tensors_of

SIDES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def written(case: Case) -> tuple[str, int]:
    model = model_of(case)
    text, plan = write_function(model, "run", tensors_of(model), Constants("case"))
    return text, plan.n_bytes


def test_a_chain_of_elementwise_operations_is_one_loop_with_local_variables() -> None:
    nodes = (
        node("Sub", ["a", "b"], ["c"]),
        node("Exp", ["c"], ["d"]),
        node("Mul", ["d", "c"], ["e"]),
        node("Add", ["e", "d"], ["out"]),
    )
    text, arena = written(Case("chain", nodes, {"a": normal(6, 11), "b": normal(6, 11)}))
    assert text.count("for (") == 1
    assert text.count("edgefold_exp") == 1
    assert arena == 0


def test_the_heads_of_an_attention_run_one_after_the_other_in_memory_of_one() -> None:
    text, arena = written(ATTENTION)
    heads, n, _ = ATTENTION.inputs["q"].shape
    assert f"for (int h = 0; h < {heads}; h++)" in text
    assert arena < 2 * heads * n * n * 4  # scores and their softmax, of all heads


def test_what_only_moves_elements_is_not_copied() -> None:
    nodes = (
        node("Transpose", ["a"], ["t"], perm=[1, 0]),
        node("Reshape", ["t", "s"], ["r"]),
        node("Slice", ["r", "one", "three", "axis"], ["l"]),
        node("Exp", ["l"], ["out"]),
    )
    constants = {"s": i64(3, 2, 2), "one": i64(1), "three": i64(3), "axis": i64(0)}
    text, arena = written(Case("moves", nodes, {"a": normal(4, 3)}, constants))
    assert arena == 0
    assert text.count("edgefold_exp") == 1
    assert "out[" in text.split("edgefold_exp")[0].splitlines()[-1]


def test_softmax_overwrites_a_product_that_nothing_else_reads() -> None:
    nodes = [
        node("MatMul", ["a", "b"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "a"], ["out"]),
    ]
    inputs = {"a": normal(40, 40), "b": normal(40, 40)}
    assert written(Case("once", tuple(nodes), inputs))[1] == 40 * 40 * 4
    nodes[2] = node("MatMul", ["p", "s"], ["out"])
    assert written(Case("twice", tuple(nodes), inputs))[1] == 2 * 40 * 40 * 4


@pytest.mark.parametrize(("n", "n_loops"), [(SHORT // 2, 1), (SHORT, 2)])
def test_loops_without_a_common_element_are_joined_only_if_they_are_short(
    n: int, n_loops: int
) -> None:
    program = Program()
    for name in ("a", "b"):
        view = View(Buffer(name, "float32", n, "argument"), 0, (1,))
        program.keep(Value((n,), "float32", view), f"copy_of_{name}")
    assert len(joined(program.statements)) == n_loops


def test_a_turned_copy_is_a_call_of_the_kernel_where_both_axes_are_long() -> None:
    def text(*shape: int) -> str:
        nodes = (node("Transpose", ["a"], ["out"], perm=[0, 2, 1]),)
        return written(Case("turned", nodes, {"a": normal(*shape)}))[0]

    assert "edgefold_transpose(5, 7, a + i * 35, 7, out + i * 35, 5);" in text(2, 5, 7)
    assert "edgefold_transpose" not in text(2, 3, 7)


def test_a_factor_that_one_column_reads_is_summed_without_memory() -> None:
    nodes = [
        node("Sub", ["a", "b"], ["c"]),
        node("Erf", ["c"], ["d"]),
        node("MatMul", ["d", "w"], ["out"]),
    ]
    inputs = {"a": normal(2, 33, 1), "b": normal(2, 1, 24), "w": normal(2, 24, 1)}
    text, arena = written(Case("once", tuple(nodes), inputs))
    assert "edgefold_product" not in text
    assert text.count("edgefold_erf") == 1
    assert arena == 0
    nodes[2] = node("MatMul", ["d", "d"], ["out"])
    square = {"a": normal(2, 9, 1), "b": normal(2, 1, 9)}
    text, arena = written(Case("square", tuple(nodes), square))
    assert "edgefold_product" in text
    assert arena >= 2 * 9 * 9 * 4
    nodes[2] = node("MatMul", ["w", "d"], ["out"])
    shared = {"a": normal(1, 14, 1), "b": normal(1, 1, 9), "w": normal(3, 1, 14)}
    assert "edgefold_product" in written(Case("shared", tuple(nodes), shared))[0]


def test_loops_over_the_same_elements_are_not_joined_where_one_needs_another_element() -> None:
    program = Program()
    given_value = Value((8,), "float32", View(Buffer("a", "float32", 8, "argument"), 0, (1,)))
    first = program.keep(given_value, "first")
    program.keep(first.sliced(0, 7, -1, 8), "turned")
    assert len(joined(program.statements)) == 2
    again = Program()
    first = again.keep(given_value, "first")
    doubled = apply("({0} + {1})", 1, first.expression, first.expression)
    again.keep(Value((8,), "float32", doubled), "second")
    (loop,) = with_locals(joined(again.statements))
    assert isinstance(loop, Loop)
    assert [a.local for a in loop.assignments] == [True, True]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 999)), max_size=20))
def test_buffers_that_live_at_once_never_share_memory(lives: list[tuple[int, int, int]]) -> None:
    arena = [Buffer(f"b{k}", "float32", size, "arena") for k, (_, _, size) in enumerate(lives)]
    source = View(Buffer("a", "float32", 1, "argument"), 0, ())
    statements = []
    for at in range(10):
        alive = [
            b
            for b, (one, two, _) in zip(arena, lives, strict=True)
            if at in (min(one, two), max(one, two))
        ]
        statements.append(Loop((), [Assignment(View(b, 0, ()), source, b.name) for b in alive]))
    plan = planned(statements, arena)
    named = {place.name: place.start for place in plan.buffers}
    starts, total = {buffer: named[buffer.name] for buffer in arena}, plan.n_bytes
    assert max(plan.used_bytes, default=0) <= total
    for k, (one, two, _) in enumerate(lives):
        assert 0 <= starts[arena[k]] <= total - n_bytes(arena[k])
        assert starts[arena[k]] % 64 == 0
        for j, (three, four, _) in enumerate(lives[:k]):
            if max(one, two) < min(three, four) or max(three, four) < min(one, two):
                continue
            a, b = arena[k], arena[j]
            assert starts[a] + n_bytes(a) <= starts[b] or starts[b] + n_bytes(b) <= starts[a]


@given(SIDES, st.randoms(use_true_random=False), SIDES)
def test_a_reshape_without_a_copy_reads_the_same_elements_in_the_same_order(
    shape: list[int], random: object, wanted: list[int]
) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    buffer = Buffer("a", "float32", int(np.prod(shape)), "argument")
    value = Value(tuple(shape), "float32", View(buffer, 0, row_major(tuple(shape))))
    array = np.arange(buffer.size).reshape(shape)
    turned, array = value.transposed(order), array.transpose(order)
    size = int(np.prod(wanted))
    target = tuple(wanted) if size == buffer.size else (1, buffer.size)
    made = turned.reshaped(target)
    if made is not None:
        assert made.view is not None
        strides = np.array(made.view.strides, int) * 8
        read = np.lib.stride_tricks.as_strided(np.arange(buffer.size), target, tuple(strides))
        np.testing.assert_array_equal(read, array.reshape(target))
    elif turned.view is not None:
        assert turned.view.strides != row_major(turned.shape)


@pytest.mark.parametrize("n", [1, 3, 4, 7, 15, 16, 29, 33, 65])
def test_packed_weights_hold_each_panel_row_by_row(n: int) -> None:
    weights = np.arange(5 * n).reshape(5, n)
    flat, start = packed(weights), 0
    for width in (16, 8, 4, 1):
        while n - start >= width:
            panel = flat[start * 5 : (start + width) * 5].reshape(5, width)
            np.testing.assert_array_equal(panel, weights[:, start : start + width])
            start += width
    assert start == n


def test_names_that_c_or_the_text_itself_uses_are_changed() -> None:
    assert c_name("double") == "double_"
    assert c_name("i") == "i_"
    assert c_name("0.weight") == "v0_weight"
    nodes = (node("Add", ["h", "float"], ["out"]),)
    text, _ = written(Case("names", nodes, {"h": normal(3), "float": normal(3)}))
    assert "const float *h_, const float *float_" in text
    assert "h_[i] + float_[i]" in text


def test_only_functions_that_are_called_are_written_and_comments_call_nothing() -> None:
    fixed = """#define EDGEFOLD_X 1

/* See edgefold_third. */
static float edgefold_first(float x) { return x; }

static float edgefold_second(float x)
{
    return edgefold_first(x);
}

static const float edgefold_third[2] = {1, 2};

#if 1
static float edgefold_fourth(void) { return edgefold_third[0]; }
#endif
"""
    assert needed([fixed], "int main(void)").strip() == "#define EDGEFOLD_X 1"
    second = needed([fixed], "edgefold_second(1)")
    assert "edgefold_first(float" in second
    assert "edgefold_third[2]" not in second
    assert "edgefold_third[2]" in needed([fixed], "edgefold_fourth()")


def test_an_output_that_is_an_input_is_copied() -> None:
    nodes = (node("Identity", ["a"], ["out"]),)
    text, _ = written(Case("same", nodes, {"a": normal(4)}))
    assert "out[i] = a[i]" in text


def test_half_precision_arguments_are_16_bits_wide() -> None:
    cast = helper.make_node("Cast", ["a"], ["out"], to=1)
    text, _ = written(Case("half", (cast,), {"a": normal(4).astype(np.float16)}))
    assert "const uint16_t *a" in text
    assert "edgefold_of_half(a[i])" in text


def test_what_nobody_reads_is_not_computed() -> None:
    nodes = (
        node("Exp", ["a"], ["b"]),
        node("Add", ["b", "b"], ["c"]),  # b is read twice, so that it is kept in memory
        node("MatMul", ["c", "w"], ["d"]),
        node("Neg", ["a"], ["out"]),
    )
    text, arena = written(Case("unread", nodes, {"a": normal(4, 4)}, {"w": normal(4, 4)}))
    assert text.count("for (") == 1 and "edgefold_exp" not in text
    assert arena == 0
