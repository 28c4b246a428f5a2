"""Arrays of constants in C have the names of the graph's constants, as far as it has names."""

from __future__ import annotations

import re

import numpy as np
import pytest

from edgefold.export.graphs.rewriting import constant_name
from edgefold.export.native.generator import write_function
from edgefold.export.native.program.constants import Constants
from tests.export.native.rule_cases import Case, node, normal
from tests.export.native.test_rules import model_of, recurrent, tensors_of


def names_of(case: Case) -> list[str]:
    model, constants = model_of(case), Constants("edgefold_m")
    write_function(model, "run", tensors_of(model), constants)
    return re.findall(r"const float (\w+)\[", constants.definitions())


def test_arrays_are_named_after_the_parameters_that_a_graph_names() -> None:
    weights = {
        "encoder.0.weight": normal(5, 6),
        "encoder.0.bias": normal(6),
        "norm.weight": normal(6),
        "norm.bias": normal(6),
        "gain": normal(6),
    }
    nodes = (
        node("Gemm", ["x", "encoder.0.weight", "encoder.0.bias"], ["a"]),
        node("LayerNormalization", ["a", "norm.weight", "norm.bias"], ["b"]),
        node("Mul", ["b", "gain"], ["out"]),
    )
    named = names_of(Case("Named", nodes, {"x": normal(2, 5)}, weights))
    prefix = "edgefold_m_constant_"
    assert sorted(named) == sorted(prefix + name.replace(".", "_") for name in weights)


def test_names_that_become_one_in_c_stay_apart() -> None:
    weights = {"a.b": normal(6), "a_b": normal(6), "a/b": normal(6)}
    nodes = (
        node("Add", ["x", "a.b"], ["c"]),
        node("Mul", ["c", "a_b"], ["d"]),
        node("Sub", ["d", "a/b"], ["out"]),
    )
    named = names_of(Case("Apart", nodes, {"x": normal(2, 6)}, weights))
    first = "edgefold_m_constant_a_b"
    assert sorted(named) == [first, f"{first}_2", f"{first}_3"]
    assert "edgefold_m_constant_0" in names_of(
        Case("Number", (node("Add", ["x", "0"], ["out"]),), {"x": normal(6)}, {"0": normal(6)})
    )


def test_parts_of_one_parameter_are_numbered() -> None:
    case = recurrent("Both", "GRU", 3, ["out"], direction="bidirectional", linear_before_reset=1)
    named = names_of(case)
    assert {"edgefold_m_constant_r", "edgefold_m_constant_r_2"} <= set(named)
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("name", [constant_name(np.ones(3)), "edgefold.constant_3", "rows/c"])
def test_names_that_the_export_made_itself_are_numbers(name: str) -> None:
    case = Case("Own", (node("Add", ["x", name], ["out"]),), {"x": normal(6)}, {name: normal(6)})
    assert names_of(case) == ["edgefold_m_constant_0"]
