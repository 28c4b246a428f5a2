from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from edgefold.export.lowering.graphs import StepGraphs
from edgefold.export.onnx_import import Reference, import_onnx, record_reference
from edgefold.export.onnx_interface import ImportConfig
from edgefold.export.static_graph import shapes_of
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.errors import ExportError
from edgefold.runtime.predictions import Raw

Array = np.ndarray[Any, Any]
LEAKY = """g (float[batch, 3] x, float[batch, 3] h) => (float[batch, 1] y, float[batch, 3] hn) {
    keep = Constant <value_float=0.9> ()
    kept = Mul (h, keep)
    hn = Add (kept, x)
    y = ReduceMax <axes=[1], keepdims=1> (hn)
}"""


def written(folder: Path, text: str, opset: int = 15, ir_version: int = 8) -> Path:
    """A file with a model in the ONNX checker's own notation."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "other" : 1]>'
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(f"{header} {text}"), path)
    return path


def run(graphs: StepGraphs, x: Array) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Predictions (B, N, -1), the last state, and `finite` of all steps, along x (B, N, X)."""
    (step,) = graphs.steps
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        step.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    state, answers, finite = dict(graphs.state), [], []
    for row in np.moveaxis(x, 1, 0):
        feeds = {
            tensor.name: row.reshape(tensor.shape)
            if tensor.role == "points.x"
            else state[tensor.of]
            for tensor in step.inputs
        }
        found = session.run([tensor.name for tensor in step.outputs], feeds)
        for tensor, array in zip(step.outputs, found, strict=True):
            assert array.shape == tensor.shape and str(array.dtype) == tensor.dtype
            if tensor.role == "state":
                state[tensor.of] = array
        by_role = {t.of: a for t, a in zip(step.outputs, found, strict=True) if t.role != "state"}
        finite.append(by_role.pop("finite", None))
        answers.append(by_role)
    n_streams, n_steps = x.shape[:2]
    predictions = {
        name: np.stack([answer[name] for answer in answers])
        .reshape(n_steps, n_streams, -1)
        .swapaxes(0, 1)
        for name in answers[0]
    }
    return predictions, state, np.array(finite)


def require_same(
    path: Path, config: ImportConfig, n_steps: int = 20, atol: float = 1e-6
) -> tuple[StepGraphs, Reference]:
    """Import a file and compare it with itself along a stream."""
    imported = import_onnx(path, config)
    reference = record_reference(path, config, n_steps)
    predictions, state, _ = run(imported.graphs, reference.x)
    assert predictions.keys() == reference.predictions.keys() == imported.prediction.shapes.keys()
    for name, array in reference.predictions.items():
        assert array.shape[2:] == imported.prediction.shapes[name]
        np.testing.assert_allclose(predictions[name].reshape(array.shape), array, atol=atol)
    for name, array in reference.state.items():
        np.testing.assert_allclose(state[name], array, atol=atol)
    return imported.graphs, reference


def operators(graphs: StepGraphs) -> Counter[str]:
    return Counter(node.op_type for node in graphs.steps[0].model.graph.node)


# What is what -------------------------------------------------------------------------------------


def test_open_shapes_are_fixed_and_the_state_is_found_by_its_name(tmp_path: Path) -> None:
    said: list[str] = []
    path = written(tmp_path, LEAKY)
    config = ImportConfig(inputs={"x": (1, 3)})
    imported = import_onnx(path, config, said.append)
    assert said == ["took as state: h=hn"]
    (step,) = imported.graphs.steps
    assert [(t.name, t.role, t.of, t.shape) for t in (*step.inputs, *step.outputs)] == [
        ("x", "points.x", "x", (1, 3)),
        ("h", "state", "h", (1, 3)),
        ("next_h", "state", "h", (1, 3)),
        ("y", "prediction", "y", (1, 1)),
        ("finite", "finite", "finite", (1,)),
    ]
    assert imported.prediction == Raw({"y": (1,)})
    assert all(all(shape) for shape in shapes_of(step.model).values())
    require_same(path, config)


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, LEAKY)
    one, other = (
        import_onnx(path, ImportConfig(inputs={"x": (1, 3)})).graphs.steps[0] for _ in range(2)
    )
    assert one.model.SerializeToString() == other.model.SerializeToString()


def test_several_inputs_are_columns_of_x_in_the_file_s_order(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """g (float[1, 2, 2] image, int64[1] kind, double[1, 3] h)
            => (float[1, 4] flat, int64[1] kind_again, double[1, 3] h_out)
        {
            flat = Flatten (image)
            zero = Constant <value_int=0> ()
            kind_again = Add (kind, zero)
            wide = Cast <to=11> (kind)
            h_out = Add (h, wide)
        }""",
    )
    config = ImportConfig(inputs={"image": (1, 2, 2), "kind": (1,)})
    graphs, reference = require_same(path, config)
    assert reference.x.shape == (1, 20, 5)
    predictions, state, _ = run(graphs, np.array([[[0.5, 1, 2, 3, 7]]], np.float32))
    assert predictions["flat"].ravel().tolist() == [0.5, 1, 2, 3]
    assert predictions["kind_again"].ravel().tolist() == [7]
    assert state["h"].tolist() == [[7, 7, 7]] and state["h"].dtype == np.float64


def test_streams_do_not_meet(tmp_path: Path) -> None:
    path = written(tmp_path, LEAKY)
    several = ImportConfig(inputs={"x": (3, 3)}, n_streams=3)
    graphs, reference = require_same(path, several)
    one = import_onnx(path, ImportConfig(inputs={"x": (1, 3)})).graphs
    for stream in range(3):
        alone, _, _ = run(one, reference.x[stream : stream + 1])
        np.testing.assert_array_equal(alone["y"][0], reference.predictions["y"][stream])
    assert graphs.steps[0].outputs[-1].shape == (3,)


def test_the_first_state_can_be_given(tmp_path: Path) -> None:
    path = written(tmp_path, LEAKY)
    config = ImportConfig(inputs={"x": (1, 3)}, initial={"h": np.array([[1, 2, 30]])})
    graphs, reference = require_same(path, config, n_steps=1)
    assert reference.predictions["y"][0, 0, 0] > 20
    assert graphs.state["h"].dtype == np.float32


def test_what_overlaps_with_the_step_before_becomes_state(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """g (float[batch, 7] window, float[batch, 1] h) => (float[batch, 7] y, float[batch, 1] hn)
        {
            hn = ReduceMean <axes=[1]> (window)
            y = Add (window, h)
        }""",
    )
    plain = ImportConfig(inputs={"window": (1, 7)})
    graphs, reference = require_same(path, replace(plain, overlap={"window": 5}))
    assert reference.x.shape == (1, 20, 2)
    assert graphs.state["window_context"].shape == (1, 5)
    stream = np.concatenate([np.zeros(5, np.float32), reference.x.ravel()])
    windows = np.stack([stream[start : start + 7] for start in range(0, 40, 2)])
    by_hand = record_reference(path, plain, 20, windows[None])
    np.testing.assert_array_equal(by_hand.predictions["y"], reference.predictions["y"])


def test_a_prediction_may_be_the_next_state_too(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "g (float[1, 2] x, float[1, 2] h) => (float[1, 2] hn) { hn = Add (x, h) }",
    )
    graphs, _ = require_same(path, ImportConfig(outputs=("hn",)))
    assert {t.name for t in graphs.steps[0].outputs} == {"next_h", "hn", "finite"}


def test_a_prediction_without_an_axis_of_streams_gets_one(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """g (float[4] x, float[4] h) => (float y, float[4] z, float[4] hn) {
            hn = Add (x, h)
            y = ReduceMax <keepdims=0> (hn)
            z = Neg (hn)
        }""",
    )
    imported = import_onnx(path, ImportConfig())
    assert imported.prediction == Raw({"y": (), "z": (4,)})
    require_same(path, ImportConfig())


def test_state_that_no_step_changes_is_read_and_not_written(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """g (float[1, 2] x, float[1, 2] a, float[1, 2] b, float[1, 2] c)
            => (float[1, 2] y, float[1, 2] a_out, float[1, 2] b_out, float[1, 2] c_out) {
            a_out = Identity (a)
            b_out = Identity (c)
            c_out = Identity (x)
            y = Add (a, b)
        }""",
    )
    graphs, _ = require_same(path, ImportConfig())
    (step,) = graphs.steps
    assert [t.name for t in step.outputs if t.role == "state"] == ["next_b", "next_c"]
    assert {t.name for t in step.inputs} == {"x", "a", "b", "c"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ImportConfig(), "x has no fixed shape"),
        (ImportConfig(state={"state": "hn"}), "no input 'state'"),
        (ImportConfig(state={"h": "next"}), "no output 'next'"),
        (ImportConfig(inputs={"x": (1, 4)}), "cannot have shape"),
        (ImportConfig(inputs={"x": (2, 3), "h": (1, 3)}), "cannot have shape"),
        (ImportConfig(inputs={"x": (1, 3)}, n_streams=2), "must be the streams"),
        (ImportConfig(inputs={"x": (1, 3)}, overlap={"x": 3}), "cannot overlap"),
        (ImportConfig(inputs={"x": (1, 3)}, initial={"g": np.zeros(1)}), "no state tensor 'g'"),
        (ImportConfig(inputs={"x": (1, 3)}, initial={"h": np.zeros(1)}), "expected"),
        (ImportConfig(constants={"x": 0.0}), "nothing arrives"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_list(
    tmp_path: Path, config: ImportConfig, message: str
) -> None:
    with pytest.raises(ExportError, match=message) as error:
        import_onnx(written(tmp_path, LEAKY), config)
    listed = "Inputs: x float32 batchx3, h float32 batchx3. Outputs: y float32 batchx1, "
    assert listed in str(error.value)


def test_ambiguous_state_is_refused(tmp_path: Path) -> None:
    header = "g (float[1, 2] x, float[1, 2] h)"
    two = f"{header} => (float[1, 2] hn, float[1, 2] h_out) {{ hn = Add (x, h) h_out = Neg (h) }}"
    with pytest.raises(ExportError, match="h could be hn or h_out"):
        import_onnx(written(tmp_path, two), ImportConfig())
    none = f"{header} => (float[1, 2] y) {{ y = Add (x, h) }}"
    with pytest.raises(ExportError, match="no output is clearly"):
        import_onnx(written(tmp_path, none), ImportConfig())
    more = """g (float[1, 2] x, float[1] rate, float[1, 2] h) => (float[1, 2] y, float[1, 2] hn) {
        hn = Add (x, h)
        y = Mul (hn, rate)
    }"""
    path = written(tmp_path, more)
    for config in (ImportConfig(), ImportConfig(inputs={"x": (1, 2)})):
        with pytest.raises(ExportError, match=r"rate shall be; give --state"):
            import_onnx(path, config)
    require_same(path, ImportConfig(constants={"rate": 2.0}))


def test_what_arrives_is_not_taken_for_state_once_it_is_named(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """g (float[1, 2] frame, float[1, 2] h) => (float[1, 2] frame_out, float[1, 2] h_out) {
            h_out = Add (frame, h)
            frame_out = Neg (h)
        }""",
    )
    with pytest.raises(ExportError, match="nothing arrives"):
        import_onnx(path, ImportConfig())
    require_same(path, ImportConfig(inputs={"frame": (1, 2)}))


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


def test_names_that_would_meet_in_the_bundle_are_refused(tmp_path: Path) -> None:
    text = """g (float[1, 2] in, float[1, 2] h) => (float[1, 2] finite, float[1, 2] hn) {
        hn = Add (in, h)
        finite = Neg (hn)
    }"""
    with pytest.raises(ExportError, match="a name of its own"):
        import_onnx(written(tmp_path, text), ImportConfig())


# A model of others --------------------------------------------------------------------------------


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
