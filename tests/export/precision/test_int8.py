from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from edgefold.export.graphs.rewriting import EditableGraph
from edgefold.export.graphs.static_graph import shapes_of
from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs
from edgefold.export.precision import calibrate as calibration
from edgefold.export.precision import int8 as quantise
from edgefold.export.precision.calibrate import CalibrationSession, calibrate, moments
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.bundle.manifest import Tensor
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ExportError
from edgefold.train.tasks.contract import Episode
from tests.export.parsed_graphs import parsed


def graph_of(bundle: Path, name: str) -> onnx.ModelProto:
    return onnx.load(bundle / f"{name}.onnx")


def test_calibration_sees_the_empty_state_and_the_first_points_after_every_reset(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    run = CalibrationSession.run

    def watched(self: CalibrationSession, given: dict[str, Any]) -> dict[str, Any]:
        if "recent_sums" in given and self.graph.step == "refresh":  # a query may get it, too
            seen.append(not given["recent_sums"].any())
        return run(self, given)

    monkeypatch.setattr(calibration.CalibrationSession, "run", watched)
    random = np.random.default_rng(0)
    trials = [Episode(random.normal(size=(9, 2)), random.normal(size=(9, 1)), 5) for _ in range(3)]
    samples = calibrate(Path(shutil.copytree(bundles / "tiny", tmp_path / "b")), trials)
    assert moments(5) == [0, 1, 2, 4, 5]
    assert seen == [True, False, False, False, False] * 3
    assert all(np.isfinite(rows).all() for own in samples.values() for rows in own.values())


def test_a_grid_covers_rows_of_every_size() -> None:
    """A few rows a hundred times larger do not make the grid too coarse for the others."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 32)).astype(np.float32)
    rows[:4] *= 100
    weight = random.normal(size=(32, 8)).astype(np.float32)
    grid = quantise.choose_grid(rows, weight, evened=False)
    assert grid.step * quantise.LEVELS < 0.5 * np.abs(rows).max()


def test_evening_out_the_columns_makes_the_grid_finer() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 32)) * np.geomspace(0.1, 30, 32)
    weight = random.normal(size=(32, 8)) / np.geomspace(0.1, 30, 32)[:, None]
    rows, weight = rows.astype(np.float32), weight.astype(np.float32)
    plain, evened = (quantise.choose_grid(rows, weight, flag) for flag in (False, True))
    assert evened.error < 0.3 * plain.error
    assert (plain.factors == 1).all()


def test_a_product_that_int8_would_move_too_far_stays_float32(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = graph_of(bundles / "tiny", "query")
    graph = load_manifest(bundles / "tiny").graphs["query"]
    tensors = (*graph.inputs, *graph.outputs)
    names = quantise.quantised_inputs(model, tensors)
    random = np.random.default_rng(0)
    shapes = {i.name: i.type.tensor_type.shape.dim[1].dim_value for i in model.graph.value_info}
    samples = {n: random.normal(size=(50, shapes[n])).astype(np.float32) for n in names}
    monkeypatch.setattr(quantise, "MAX_ERROR", 0.0)
    found = quantise.quantise(model, tensors, samples)
    assert [n.op_type for n in found.graph.node] == [n.op_type for n in model.graph.node]


def test_a_column_of_zeros_has_a_grid() -> None:
    values, scale = quantise.column_grid(np.array([[0.0, 2.54], [0.0, 0.0]], np.float32))
    assert values.tolist() == [[0, 127], [0, 0]]
    assert scale == pytest.approx([1.0, 0.02])


def test_two_neighbouring_weights_never_overflow_16_bits_with_any_input(bundles: Path) -> None:
    """As processors without VNNI add them, the input moved to 1 .. 255: see column_grid."""
    for name in ("refresh", "query"):
        for tensor in graph_of(bundles / "tiny-int8", name).graph.initializer:
            if tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 2:
                weight = np.abs(numpy_helper.to_array(tensor).astype(np.int32))
                assert (255 * (weight[0::2] + weight[1::2])).max() <= 32767
    odd, _ = quantise.column_grid(np.ones((3, 2), np.float32))
    assert np.abs(odd).max() == 64  # half of 127, rounded to even


# Any graph ----------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(0)
SHARED = {"a": (6, 8), "b": (8, 8), "c": (8, 8), "d": (8, 1), "bias": (8,)}
WEIGHTS = {n: RANDOM.normal(size=s).astype(np.float32) for n, s in SHARED.items()}
WEIGHTS["ones"] = np.ones(8, np.float32)


def query_of(body: str, outputs: str = "float[2, 3, 1] mean") -> StepGraph:
    """A query of two streams and three targets, from a state of 8 numbers."""
    header = "query (float[2, 3, 6] x, float[2, 1, 8] state)"
    model = parsed(f"{header} => ({outputs}) {{ {body} }}", WEIGHTS)
    inputs = (
        Tensor("x", "targets.x", "x", (2, 3, 6)),
        Tensor("state", "state", "state", (2, 1, 8)),
    )
    shapes = shapes_of(model)
    given = tuple(
        Tensor(info.name, "prediction", info.name, shapes[info.name]) for info in model.graph.output
    )
    return StepGraph("query", "query", 3, model, inputs, given)


def products_of(step: StepGraph) -> list[str]:
    tensors = (*step.inputs, *step.outputs)
    products = quantise.quantised_products(EditableGraph.of(step.model), tensors)
    return [str(node.outputs[0].name) for node in products]


def quantised(step: StepGraph, rows: int = 200) -> StepGraph:
    """The step in int8, with samples of its own values on random inputs."""
    names = quantise.quantised_inputs(step.model, (*step.inputs, *step.outputs))
    found = run(step, rows, names)
    samples = {name: found[name].reshape(-1, found[name].shape[-1]) for name in names}
    graphs = quantise.narrowed(StepGraphs((step,), {}), {"query": samples})
    return graphs.steps[0]


def run(step: StepGraph, n: int, names: list[str]) -> dict[str, Any]:
    """Values of a graph, one call after another."""
    model = onnx.ModelProto()
    model.CopyFrom(step.model)
    infos = {info.name: info for info in model.graph.value_info}
    model.graph.output.extend(infos[name] for name in names if name in infos)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    calls = []
    for _ in range(n):
        feeds = {t.name: random.normal(size=t.shape).astype(np.float32) for t in step.inputs}
        fetched = [output.name for output in session.get_outputs()]
        calls.append({**feeds, **dict(zip(fetched, session.run(fetched, feeds), strict=True))})
    return {name: np.stack([call[name] for call in calls]) for name in calls[0]}


MIXED = """
    first = MatMul (x, a)
    bent = Sin (first)
    second = MatMul (bent, b)
    met = Add (second, state)
    third = MatMul (met, c)
    active = Relu (third)
    mean = MatMul (active, d)
"""


def test_products_on_the_way_of_x_alone_and_the_last_ones_stay_float32() -> None:
    assert products_of(query_of(MIXED)) == ["third"]
    behind_a_norm = MIXED.replace("bent = Sin (first)", "bent = LayerNormalization (first, ones)")
    assert products_of(query_of(behind_a_norm)) == ["second", "third"]
    joined = MIXED.replace("met = Add (second, state)", "met = Mul (state, x8)").replace(
        "bent = Sin (first)", "bent = Sin (first) x8 = Concat <axis=-1> (bent)"
    )
    assert products_of(query_of(joined)) == ["third"]


def test_what_holds_x_itself_stays_float32() -> None:
    """One grid would have to fit whatever callers give."""
    text = """
        wide = Expand (state, size)
        cut = Slice (wide, zero, two, last)
        both = Concat <axis=-1> (cut, x)
        mixed = MatMul (both, b)
        active = Relu (mixed)
        again = MatMul (active, c)
        mean = MatMul (again, d)
    """
    constants = {"size": [2, 3, 8], "zero": [0], "two": [2], "last": [2]}
    lines = [f"{name} = Constant <value_ints={values}> ()" for name, values in constants.items()]
    assert products_of(query_of("\n".join(lines) + text)) == ["again"]


def test_products_without_a_bias_and_of_several_axes_run_in_int8() -> None:
    exact = query_of(MIXED)
    made = quantised(exact)
    assert made.precision == "int8"
    kinds = [node.op_type for node in made.model.graph.node]
    assert kinds.count("QuantizeLinear") == 1 and "Sum" not in kinds
    one, other = (run(step, 20, [])["mean"] for step in (exact, made))
    assert 0 < np.abs(one - other).max() < 0.05 * np.abs(one).max()  # 8 bits, eight numbers


def test_products_that_share_their_input_are_joined_whether_or_not_they_have_a_bias() -> None:
    body = """
        met = Add (x8, state)
        one = MatMul (met, b)
        rows = Reshape (met, flat)
        active = Relu (one)
        mean = MatMul (active, d)
        two = Gemm (rows, c, bias)
        three = Gemm (rows, b)
        four = Add (two, three)
        again = Tanh (four)
        std = MatMul (again, d)
    """
    head = "x8 = MatMul (x, a)\n flat = Constant <value_ints=[6, 8]> ()\n"
    exact = query_of(head + body, "float[2, 3, 1] mean, float[6, 1] std")
    assert products_of(exact) == ["one", "two", "three"]
    made = quantised(exact)
    assert [n.op_type for n in made.model.graph.node].count("Split") == 1
    found = [run(step, 20, []) for step in (exact, made)]
    for name in ("mean", "std"):
        difference = np.abs(found[0][name] - found[1][name]).max()
        assert 0 < difference < 0.1 * np.abs(found[0][name]).max()  # 8 bits, eight numbers


GATED = """
    wide = LayerNormalization (state, ones)
    value = MatMul (wide, b)
    gate = MatMul (wide, c)
    open = Sigmoid (gate)
    hidden = Mul (open, value)
    out = MatMul (hidden, c)
    met = Add (out, x8)
    mean = MatMul (met, d)
"""


@pytest.mark.parametrize(
    ("body", "evened"),
    [
        (GATED, True),
        (GATED.replace("Mul (open, value)", "Mul (value, open)"), True),
        (
            GATED.replace("met = Add (out, x8)", "more = Add (out, value) met = Add (more, x8)"),
            False,
        ),
        (
            GATED.replace("met = Add (out, x8)", "more = Add (out, hidden) met = Add (more, x8)"),
            False,
        ),
        (GATED.replace("value = MatMul (wide, b)", "value = Neg (wide)"), False),
        (GATED.replace("hidden = Mul", "hidden = Add"), False),
    ],
)
def test_columns_are_evened_only_where_one_product_alone_scales_them(
    body: str, evened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[bool, int] = {True: 0, False: 0}
    choose = quantise.choose_grid

    def watched(values: Any, weight: Any, evened: bool) -> quantise.Grid:
        seen[evened] += 1
        return choose(values, weight, evened)

    monkeypatch.setattr(quantise, "choose_grid", watched)
    exact = query_of(f"x8 = MatMul (x, a) {body}")
    made = quantised(exact)
    assert seen[True] == evened
    one, other = (run(step, 20, [])["mean"] for step in (exact, made))
    assert np.abs(one - other).max() < 0.05 * np.abs(one).max()


def test_a_model_that_has_nothing_to_quantise_is_refused() -> None:
    step = query_of("first = MatMul (x, a) met = Add (first, state) mean = MatMul (met, d)")
    with pytest.raises(ExportError, match="no product of refresh, query or step bears int8"):
        quantised(step)
