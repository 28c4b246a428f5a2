from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgefold.export.graphs.static_graph import shapes_of
from edgefold.export.importing.onnx_import import import_onnx, record_reference
from edgefold.export.importing.onnx_interface import ImportConfig
from edgefold.runtime.errors import ExportError
from edgefold.runtime.predictions import Raw
from tests.export.importing.onnx_files import LEAKY, require_same, run, written


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
