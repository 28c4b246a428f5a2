from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxscript.rewriter import _DEFAULT_REWRITE_RULES as DEFAULT_RULES

from edgefold.export.graphs import folding
from edgefold.export.importing.onnx_import import import_onnx, record_reference
from edgefold.export.importing.onnx_interface import ImportConfig
from edgefold.runtime.errors import ExportError
from tests.export.importing.onnx_files import operators, require_same, run, written

# What the graph becomes ---------------------------------------------------------------------------


def test_shape_arithmetic_and_decided_branches_are_gone(tmp_path: Path) -> None:
    """A branch within a branch reads constants of the file, and both are inlined."""
    text = """g (float[n, t] x, float[n, 2] h, int64 rate) => (float[n, 2] y, float[n, 2] hn)
        <float[2] weight = {2, 3}> {
        axes = Shape (x)
        three = Constant <value_ints=[3]> ()
        one = Constant <value_ints=[1]> ()
        length = Gather (axes, one)
        four = Constant <value_ints=[4]> ()
        long = Equal (length, four)
        high = Constant <value_int=8000> ()
        fast = Greater (rate, high)
        part = If (long) <
            then_branch = a () => (float[n, 2] p) {
                p = If (fast) <
                    then_branch = b () => (float[n, 2] q) {
                        two = Constant <value_ints=[2]> ()
                        cut = Slice (x, one, three, one)
                        q = Mul (cut, weight)
                    },
                    else_branch = c () => (float[n, 2] r) { r = Identity (h) }
                >
            },
            else_branch = d () => (float[n, 2] s) { s = RandomNormalLike (h) }
        >
        zeros = ConstantOfShape (four)
        total = ReduceSum <keepdims=0> (zeros)
        sum = Add (part, total)
        hn = Add (sum, h)
        y = Relu (hn)
    }"""
    config = ImportConfig(inputs={"x": (1, 4)}, constants={"rate": 16000})
    graphs, _ = require_same(written(tmp_path, text), config)
    assert set(operators(graphs)) <= {"Slice", "Mul", "Add", "Relu", "Reshape", "ReduceSum"}


def test_float64_arithmetic_on_constants_is_gone(tmp_path: Path) -> None:
    text = """g (float[1, 2] x, float[1, 2] h) => (float[1, 2] y, float[1, 2] hn)
        <double[2] scale = {0.5, 0.25}> {
        root = Sqrt (scale)
        narrow = Cast <to=1> (root)
        hn = Mul (h, narrow)
        y = Add (hn, x)
    }"""
    graphs, _ = require_same(written(tmp_path, text), ImportConfig())
    kinds = {t.data_type for t in graphs.steps[0].model.graph.initializer}
    assert onnx.TensorProto.DOUBLE not in kinds


def test_views_become_one_reshape_and_needless_reductions_go(tmp_path: Path) -> None:
    text = """g (float[1, 6] x, float[1, 6] h) => (float[1, 6] y, float[1, 6] hn) <
            int64[1] one = {1}, int64[3] cube = {1, 2, 3}, int64[2] flat = {1, 6}> {
        a = Unsqueeze (x, one)
        b = ReduceMean <axes=[1], keepdims=0> (a)
        c = Reshape (b, cube)
        d = Transpose <perm=[1, 0, 2]> (c)
        e = Sigmoid (d)
        f = Transpose <perm=[1, 0, 2]> (e)
        g = Reshape (f, flat)
        hn = Add (g, h)
        y = Neg (hn)
    }"""
    graphs, _ = require_same(written(tmp_path, text), ImportConfig())
    assert not set(operators(graphs)) & {"Unsqueeze", "ReduceMean", "Transpose"}
    assert operators(graphs)["Reshape"] <= 2


def test_a_file_of_an_old_opset_is_converted(tmp_path: Path) -> None:
    text = """g (float[1, 2] x, float[1, 2] h) => (float[1, 2] y, float[1, 2] hn) {
        a = Unsqueeze <axes=[0]> (x)
        b = Squeeze <axes=[0]> (a)
        hn = Add (b, h)
        y = Neg (hn)
    }"""
    graphs, _ = require_same(written(tmp_path, text, opset=11), ImportConfig())
    assert graphs.steps[0].model.opset_import[0].version >= 13


def test_a_state_that_is_not_finite_is_reported(tmp_path: Path) -> None:
    text = """g (float[1, 2] x, float[1, 2] h, float[1, 1] k)
        => (float[1, 2] y, float[1, 2] hn, float[1, 1] kn) {
        hn = Div (x, h)
        kn = Neg (k)
        y = Clip (hn)
    }"""
    graphs = import_onnx(written(tmp_path, text), ImportConfig()).graphs
    _, _, finite = run(graphs, np.ones((1, 2, 2), np.float32))
    assert not np.isfinite(finite[0]) and np.isfinite(finite[1])


# What is refused ----------------------------------------------------------------------------------

LOOP = """g (float[1, 2] x, float[1, 2] h) => (float[1, 2] y, float[1, 2] hn)
    <int64 times = {3}> {
    go = Constant <value_int=1> ()
    yes = Cast <to=9> (go)
    hn = Loop (times, yes, h) <body = b (int64 i, bool more, float[1, 2] a)
        => (bool again, float[1, 2] c) { again = Identity (more) c = Add (a, x) }>
    y = Neg (hn)
}"""
BRANCH = """g (float[1, 1] x, float[1, 1] h) => (float[1, 1] y, float[1, 1] hn) {
    up = Greater (x, h)
    hn = If (up) <then_branch = a () => (float[1, 1] p) { p = Neg (x) },
                  else_branch = b () => (float[1, 1] q) { q = Neg (h) }>
    y = Neg (hn)
}"""


SOUND = """g (float[1, 4] x, float[1, 4] h) => (float[1, 4] y, float[1, 4] hn) {
    hn = Add (x, h)
    y = Tanh (hn)
}"""


def plain(node: str) -> str:
    return f"""g (float[1, 2] x, float[1, 2] h) => (float[a, b] y, float[1, 2] hn) {{
        hn = Add (x, h)
        {node}
    }}"""


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        (LOOP, "Loop"),
        (BRANCH, "If"),
        (plain("y = RandomNormalLike (x)"), "RandomNormalLike"),
        (plain("y = Bernoulli (x)"), "Bernoulli"),
        (plain("y = other.FastGelu (x)"), "FastGelu .*other"),
        (plain("z = NonZero (x) y = Cast <to=1> (z)"), "NonZero"),
    ],
)
def test_what_no_static_graph_can_say_is_refused_by_name(
    tmp_path: Path, text: str, operator: str
) -> None:
    with pytest.raises(ExportError, match=f"the node {operator}"):
        import_onnx(written(tmp_path, text), ImportConfig())


def test_state_that_changes_its_shape_is_refused(tmp_path: Path) -> None:
    text = """g (float[1, 2] x, float[1, 2] h) => (float[1, 2] y, float[1, k] hn) {
        hn = Concat <axis=1> (h, x)
        y = Neg (x)
    }"""
    with pytest.raises(ExportError, match=r"state h is .*\(1, 4\) after it"):
        import_onnx(written(tmp_path, text), ImportConfig())


def test_an_input_that_nothing_depends_on_is_refused(tmp_path: Path) -> None:
    text = """g (float[1, 2] x, float[1, 2] h) => (float[1, 2] y, float[1, 2] hn, float[1, 2] z) {
        hn = Neg (h)
        y = Abs (h)
        z = Abs (x)
    }"""
    path = written(tmp_path, text)
    with pytest.raises(ExportError, match="no output depends on what arrives"):
        import_onnx(path, ImportConfig(outputs=("y",)))
    require_same(path, ImportConfig(outputs=("z",)))


def test_a_file_that_is_no_onnx_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    for missing in (path, tmp_path / "none.onnx"):
        with pytest.raises(ExportError, match="cannot be read"):
            import_onnx(missing, ImportConfig())


def test_a_file_of_a_newer_opset_is_refused(tmp_path: Path) -> None:
    path = written(
        tmp_path, "g (float[1, 4] x, float[1, 4] h) => (float[1, 4] hn) { hn = Add (x, h) }"
    )
    model = onnx.load(path)
    model.opset_import[0].version = 99
    onnx.save(model, path)
    with pytest.raises(ExportError, match="uses version 99"):
        import_onnx(path, ImportConfig())


def test_a_name_that_two_nodes_give_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND)
    model = onnx.load(path)
    model.graph.node.append(onnx.helper.make_node("Relu", ["hn"], ["y"]))
    onnx.save(model, path)
    with pytest.raises(ExportError, match="not valid ONNX"):
        import_onnx(path, ImportConfig())


def test_an_element_type_that_onnx_does_not_know_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND)
    model = onnx.load(path)
    model.graph.input[1].type.tensor_type.elem_type = 65
    onnx.save(model, path)
    with pytest.raises(ExportError, match="h has elements of type 65"):
        import_onnx(path, ImportConfig())


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND)
    model = onnx.load(path)
    call = onnx.helper.make_node("f", ["a"], ["b"], domain="own")
    opsets = [model.opset_import[0], onnx.helper.make_opsetid("own", 1)]
    model.functions.append(onnx.helper.make_function("own", "f", ["a"], ["b"], [call], opsets))
    model.opset_import.append(opsets[1])
    model.graph.node[1].CopyFrom(onnx.helper.make_node("f", ["hn"], ["y"], domain="own"))
    onnx.save(model, path)
    with pytest.raises(ExportError, match="cannot be folded"):
        import_onnx(path, ImportConfig())


HUGE = {
    "state": """g (float[1, 4] x, float[1, 1073741824] h)
        => (float[1, 4] y, float[1, 1073741824] hn) {
        y = Tanh (x)
        hn = Tanh (h)
    }""",
    "ConstantOfShape": """g (float[1, 4] x, float[1, 4] h) => (float[1, 4] y, float[1, 4] hn)
        <int64[1] n = {8589934592}> {
        hn = Add (x, h)
        wide = ConstantOfShape (n)
        sum = ReduceSum <keepdims=0> (wide)
        y = Add (hn, sum)
    }""",
    "Expand": """g (float[1, 4] x, float[1, 4] h) => (float[1, 4] y, float[1, 4] hn)
        <int64[2] n = {2147483648, 4}> {
        hn = Add (x, h)
        wide = Expand (x, n)
        sum = ReduceMax <keepdims=0> (wide)
        y = Add (hn, sum)
    }""",
}


@pytest.mark.parametrize("kind", HUGE)
def test_values_that_no_memory_holds_are_refused_and_not_computed(
    tmp_path: Path, kind: str
) -> None:
    with pytest.raises(ExportError, match="MiB, more than 256"):
        import_onnx(written(tmp_path, HUGE[kind]), ImportConfig(state={"h": "hn"}))


def test_a_constant_that_doubles_again_and_again_is_not_folded_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "MOST_FOLDED_BYTES", 1 << 10)
    monkeypatch.setattr(folding, "MOST_BYTES", 1 << 12)
    doubled = "\n".join(f"k{n + 1} = Concat <axis=0> (k{n}, k{n})" for n in range(13))
    text = f"""g (float[1, 4] x, float[1, 4] h) => (float[1, 4] y, float[1, 4] hn)
        <float[1] k0 = {{1}}> {{
        {doubled}
        hn = Add (x, h)
        sum = ReduceSum <keepdims=0> (k13)
        y = Add (hn, sum)
    }}"""
    with pytest.raises(ExportError, match="MiB, more than"):
        import_onnx(written(tmp_path, text), ImportConfig())


def test_the_same_rules_run_in_small_graphs_as_in_onnxscripts_own_optimiser() -> None:
    """Without its rules for pairs of nodes, the time no longer grows with their square."""
    of_pairs = [r for r in DEFAULT_RULES if not r._matcher.pattern.has_single_output_node]
    last = [node.op_identifier() for r in of_pairs for node in r._matcher.pattern.output_nodes]
    assert {names[1] for names in last if names} == {
        "Slice"
    }  # `fold` leaves them out where a graph has fewer than two


def test_names_that_would_meet_in_the_bundle_are_refused(tmp_path: Path) -> None:
    text = """g (float[1, 2] in, float[1, 2] h) => (float[1, 2] finite, float[1, 2] hn) {
        hn = Add (in, h)
        finite = Neg (hn)
    }"""
    with pytest.raises(ExportError, match="a name of its own"):
        import_onnx(written(tmp_path, text), ImportConfig())


# A model of others --------------------------------------------------------------------------------


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless"])
@pytest.mark.parametrize("reorder_sums", [False, True])
def test_silero_vad_gives_the_same_probabilities(name: str, reorder_sums: bool) -> None:
    package = pytest.importorskip("silero_vad")
    path = Path(package.__file__).parent / "data" / f"{name}.onnx"
    config = ImportConfig(
        state={"state": "stateN"},
        inputs={"input": (1, 576), "state": (2, 1, 128)},
        constants={"sr": 16000},
        overlap={"input": 64},
        reorder_sums=reorder_sums,
    )
    noise = np.random.default_rng(0).normal(size=(1, 100, 512)).astype(np.float32)
    noise *= np.geomspace(1e-4, 1, 100, dtype=np.float32)[:, None]  # from silence to loud
    imported = import_onnx(path, config)
    reference = record_reference(path, config, 100, noise)
    predictions, _, _ = run(imported.graphs, noise)
    found, expected = predictions["output"], reference.predictions["output"]
    # In another order, the rounding of 400 sums passes through 100 steps of the LSTM.
    assert np.abs(found - expected).max() <= (2e-6 if reorder_sums else 2e-7)
    assert expected.std() > 1e-3
    assert not {"If", "Shape", "Unsqueeze"} & operators(imported.graphs).keys()
    assert (operators(imported.graphs)["Conv"] == 0) == reorder_sums
