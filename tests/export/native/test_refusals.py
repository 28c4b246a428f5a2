"""What native code does not cover is refused, and what C leaves undefined is not written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from edgefold.export.native.generator import write_function
from edgefold.export.native.program.constants import Constants
from edgefold.export.native.program.coverage import (
    INSTEAD,
    WAYS_OUT,
    UncoveredError,
    UncoveredNode,
)
from edgefold.export.native.program.limits import Limits, limits_of
from edgefold.export.native.program.lowering import Lowering, elementwise
from edgefold.export.native.rules import RULES
from edgefold.runtime.errors import ExportError
from tests.export.native.rule_cases import Array, Case, i64, integers, node, normal, one
from tests.export.native.test_rules import model_of, recurrent, tensors_of


def written(case: Case) -> str:
    model = model_of(case)
    return write_function(model, "run", tensors_of(model), Constants("case"))[0]


def lstm(**attributes: Any) -> Case:
    weights = normal(1, 16, 5), normal(1, 16, 4)
    return one("LSTM", "LSTM", normal(2, 3, 5), *weights, constants=2, hidden_size=4, **attributes)


def blocks(op: str, array: Array, **attributes: Any) -> Case:
    case = one(op, op, array, np.ones((2, 5), np.float32), constants=1, axis=0, **attributes)
    return replace(case, opset=21)


REFUSED = (
    (one("Det", "Det", normal(3, 3)), "Det"),
    (one("Slice-late", "Slice", normal(9), i64(1), i64(3)), "Slice"),
    (one("CumSum", "CumSum", normal(3, 9), i64(1), constants=1, reverse=1), "CumSum"),
    (one("MatMul-int", "MatMul", integers(3, 3), integers(3, 3)), "MatMul"),
    (lstm(clip=0.1), "LSTM"),
    (lstm(input_forget=1), "LSTM"),
    (lstm(activations=["Sigmoid", "Tanh", "Relu"]), "LSTM"),
    (recurrent("GRU", "GRU", 3, ["out"], activations=["HardSigmoid", "Tanh"]), "GRU"),
    (recurrent("RNN", "RNN", 1, ["out"], activations=["Sigmoid"]), "RNN"),
    (recurrent("RNN-both", "RNN", 1, ["out"], direction="bidirectional",
               activations=["Tanh", "Relu"]), "RNN"),
    (Case("Lengths", (node("LSTM", ["x", "w", "r", "", "n"], ["out"], hidden_size=4),),
          {"x": normal(2, 3, 5), "n": np.full(3, 2, np.int32)},
          {"w": normal(1, 16, 5), "r": normal(1, 16, 4)}), "LSTM"),
    (one("Pad-less", "Pad", normal(2, 6), i64(0, -1, 0, 0), constants=1), "Pad"),
    (one("Conv-same", "Conv", normal(1, 2, 6), normal(2, 2, 3), constants=1,
         auto_pad="SAME_UPPER"), "Conv"),
    (one("MatMul-row", "MatMul", normal(3), normal(3, 4)), "MatMul"),
    (one("Shape", "ConvTranspose", normal(1, 2, 3), normal(2, 3, 3), constants=1, strides=[2],
         output_shape=[6]), "ConvTranspose"),
    (one("Mod", "Mod", integers(3), integers(3), fmod=1), "Mod"),
    (one("Pow-int", "Pow", integers(3), i64(2), constants=1), "Pow"),
    (one("Mean-int", "ReduceMean", integers(3)), "ReduceMean"),
    (one("ArgMin-last", "ArgMin", normal(3), select_last_index=1), "ArgMin"),
    (Case("Gelu", (node("Gelu", ["a"], ["out"], approximate="other"),), {"a": normal(3)},
          opset=20), "Gelu"),
    *((one(f"{op}-same", op, normal(1, 2, 6), kernel_shape=[3], auto_pad="SAME_UPPER"), op)
      for op in ("MaxPool", "AveragePool")),
    (one("ArgMax-int", "ArgMax", integers(3)), "ArgMax"),
    (one("float64", "Add", np.ones(3), np.ones(3)), "Add"),
    (one("float64-chosen", "Where", integers(3) > 2, np.ones(3), np.ones(3)), "Where"),
    (one("float64-cast", "Cast", np.ones(3), to=TensorProto.INT64), "Cast"),
    (one("uint64", "Less", np.ones(3, np.uint64), np.ones(3, np.uint64)), "Less"),
    (one("CumSum-32", "CumSum", np.ones(3, np.int32), i64(0), constants=1), "CumSum"),
    (blocks("DequantizeLinear", np.ones((4, 5), np.int8), block_size=2), "DequantizeLinear"),
    (blocks("QuantizeLinear", normal(4, 5), block_size=2), "QuantizeLinear"),
    (blocks("QuantizeLinear", normal(2, 5), output_dtype=TensorProto.INT16), "QuantizeLinear"),
    (Case("Mean", (node("LayerNormalization", ["a", "w"], ["out", "mean"]),),
          {"a": normal(3, 5)}, {"w": normal(5)}), "LayerNormalization"),
    (one("IsInf", "IsInf", normal(3), detect_negative=0), "IsInf"),
    (one("Axes", "Transpose", normal(*[2] * 15), perm=[*range(14, -1, -1)]), "Transpose"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("case", "named"),
    REFUSED,
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_what_is_not_covered_is_refused_by_operator_and_node(case: Case, named: str) -> None:
    with pytest.raises(ExportError, match=f"{named} of node 'out'") as refused:
        written(case)
    assert f"without {named}" in str(refused.value) and "CONTRIBUTING.md" in str(refused.value)


def test_every_limit_but_constants_has_a_case() -> None:
    limits = {name: limits_of(rule) for name, rule in RULES.items()}
    limited = {n for n, of in limits.items() if replace(of, constants=()) != Limits()}
    assert limited - {named for _, named in REFUSED} == set()


def test_every_uncovered_node_is_named_also_behind_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(INSTEAD, "CumSum", "Instead of a sum from the end, turn it with torch.flip")
    monkeypatch.delitem(INSTEAD, "Det")
    nodes = (
        node("Det", ["a"], ["b"]),
        node("Det", ["a"], ["c"]),
        node("Add", ["b", "c"], ["d"]),
        node("CumSum", ["a", "axis"], ["e"], reverse=1),
        node("Add", ["d", "e"], ["out"]),
    )
    with pytest.raises(UncoveredError) as refused:
        written(Case("Several", nodes, {"a": normal(3, 3)}, {"axis": i64(1)}))
    assert [(n.operator, n.node) for n in refused.value.nodes] == [
        ("Det", "b"),
        ("Det", "c"),
        ("CumSum", "e"),
    ]
    assert refused.value.lines() == (
        "Det of nodes 'b', 'c': there is no rule for this operator",
        "CumSum of node 'e': its attribute reverse is 1",
        "  Instead of a sum from the end, turn it with torch.flip.",
        WAYS_OUT.format("Det and CumSum"),
    )


def test_a_text_names_few_of_many_nodes_and_each_graph_once() -> None:
    nodes = [
        UncoveredNode("Det", f"n{k}", "there is none", graph) for k in range(5) for graph in "ab"
    ]
    assert UncoveredError(nodes).lines()[0] == (
        "Det of nodes 'n0', 'n1', 'n2' and 2 more in a, b: there is none"
    )


def test_a_mistake_in_a_rule_is_an_error_that_names_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(lowering: Lowering) -> None:
        raise KeyError(lowering.dtype)

    monkeypatch.setitem(RULES, "Exp", mistaken)
    with pytest.raises(ExportError, match="Exp of node 'out'") as caught:
        written(one("Exp", "Exp", normal(3)))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "case",
    [
        one("ReduceSum", "ReduceSum", integers(3, 40), i64(0), constants=1),
        one("Abs", "Abs", integers(3)),
        one("Neg", "Neg", integers(3)),
    ],
    ids=lambda case: case.name,
)
def test_integers_that_leave_their_range_are_unsigned_in_between(case: Case) -> None:
    text = written(case)
    assert "uint64_t" in text or "edgefold_abs_int" in text  # signed ones are undefined in C


def test_the_smallest_integer_is_written_by_its_name() -> None:
    constants = Constants("case")
    constants.buffer(i64(-(2**63), 5))
    assert "INT64_MIN" in constants.definitions()  # C reads its digits as a number too large


def test_a_new_operator_is_one_rule_and_its_argument_is_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = "({0} * edgefold_min(edgefold_max({0} / 6.0f + 0.5f, 0.0f), 1.0f))"
    monkeypatch.setitem(RULES, "HardSwish", elementwise(template, 4))
    nodes = node("Exp", ["a"], ["b"]), node("HardSwish", ["b"], ["out"])
    text = written(Case("HardSwish", nodes, {"a": normal(8)}))
    assert text.count("edgefold_exp(") == 1 and text.count("edgefold_max(") == 1
