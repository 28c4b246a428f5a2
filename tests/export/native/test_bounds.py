"""No C is written for a statement that would reach outside of a buffer."""

from __future__ import annotations

import pytest

from edgefold.export.native.generator import write_function
from edgefold.export.native.program.bounds import outside
from edgefold.export.native.program.constants import Constants
from edgefold.export.native.program.statements import Assignment, Loop
from edgefold.export.native.program.values import Buffer, Literal, Pick, View, apply
from edgefold.runtime.errors import ExportError
from tests.export.native.rule_cases import Case, normal, one
from tests.export.native.test_rules import CASES, model_of, tensors_of

MEMORY = Buffer("memory", "float32", 12, "arena")
RESULT = Buffer("result", "float32", 4, "argument")
INDEX = View(Buffer("index", "int64", 4, "argument"), 0, (1,))


@pytest.mark.parametrize(
    ("view", "inside"),
    [
        (View(MEMORY, 0, (1,)), True),
        (View(MEMORY, 8, (1,)), True),
        (View(MEMORY, 9, (1,)), False),
        (View(MEMORY, 3, (-1,)), True),
        (View(MEMORY, 2, (-1,)), False),
        (View(MEMORY, 2, (3,)), True),
        (View(MEMORY, 0, (4,)), False),
    ],
)
def test_views_are_followed_to_their_first_and_last_element(view: View, inside: bool) -> None:
    target = View(RESULT, 0, (1,))
    read = Loop((4,), [Assignment(target, apply("{0}", 1, view), "read")])
    written = Loop((4,), [Assignment(view, Literal("0"), "written")])
    for loop in (read, written):
        assert (outside([loop]) == "") == inside


@pytest.mark.parametrize(("length", "inside"), [(3, True), (4, False)])
def test_a_picked_element_may_be_any_of_its_axis(length: int, inside: bool) -> None:
    pick = Pick(View(MEMORY, 0, (1,)), ((INDEX, 4, length),))
    loop = Loop((4,), [Assignment(View(RESULT, 0, (1,)), pick, "pick")])
    assert (outside([loop]) == "") == inside


def test_a_convolution_that_states_a_smaller_kernel_than_its_weights_is_refused() -> None:
    case = one("Conv", "Conv", normal(1, 2, 9), normal(3, 2, 5), constants=1, kernel_shape=[1])
    model = model_of(case)
    with pytest.raises(ExportError, match="leave its memory"):
        write_function(model, "run", tensors_of(model), Constants("case"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_rule_leaves_its_buffers(case: Case) -> None:
    model = model_of(case)
    write_function(model, "run", tensors_of(model), Constants("case"))
