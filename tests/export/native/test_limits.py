"""The table of operators in docs/native.md is that of the rules, and the rules keep to it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from onnx import helper

from edgefold.export.native.generator import write_function
from edgefold.export.native.program.constants import Constants
from edgefold.export.native.program.coverage import INSTEAD, UncoveredError
from edgefold.export.native.program.limits import limits_of
from edgefold.export.native.rules import RULES
from tests.export.native.rule_cases import Case
from tests.export.native.test_rules import CASES, model_of, tensors_of

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "operator_table.py"
MOVABLE = [
    (case, index)
    for case in CASES
    if len(case.nodes) == 1
    for index, name in enumerate(case.nodes[0].input)
    if name in case.constants
]
"""Cases of one node, with the number of an input that is a constant there."""


def test_the_table_in_the_docs_is_that_of_the_rules() -> None:
    """`make docs` writes it again."""
    page = (ROOT / "docs" / "native.md").read_text()
    assert page == runpy.run_path(str(SCRIPT))["with_table"](page)


def test_the_table_says_yes_or_no_of_every_operator() -> None:
    names = runpy.run_path(str(SCRIPT))
    schemas, table = names["schemas"](), names["table"]()
    assert len(schemas) > 170
    listed = table.replace(",", " ").replace(".", " ").split()
    assert [name for name in schemas if listed.count(name) == 0] == []
    assert set(RULES) - set(schemas) == {"Above", "Below"}  # no graph in a file has these
    assert set(INSTEAD) <= set(schemas)


@pytest.mark.parametrize(
    ("case", "index"), MOVABLE, ids=[f"{case.name}-{index}" for case, index in MOVABLE]
)
def test_an_input_must_be_constant_exactly_where_the_table_says_so(case: Case, index: int) -> None:
    name, model = case.nodes[0].input[index], model_of(case)
    (moved,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    model.graph.initializer.remove(moved)
    model.graph.input.append(helper.make_tensor_value_info(name, moved.data_type, moved.dims))
    required = index in limits_of(RULES[case.nodes[0].op_type]).constants
    try:
        write_function(model, "run", tensors_of(model), Constants("case"))
    except UncoveredError as error:
        assert required and "is not a constant" in str(error)
    else:
        assert not required
