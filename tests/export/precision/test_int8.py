from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from edgefold.export.precision import calibrate as calibration
from edgefold.export.precision import int8 as quantise
from edgefold.export.precision.calibrate import CalibrationSession, calibrate, moments
from edgefold.train.tasks.contract import Episode


def graph_of(bundle: Path, name: str) -> onnx.ModelProto:
    return onnx.load(bundle / f"{name}.onnx")


def test_calibration_sees_the_empty_state_and_the_first_points_after_every_reset(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    run = CalibrationSession.run

    def watched(self: CalibrationSession, given: dict[str, Any]) -> dict[str, Any]:
        if "recent_sums" in given:
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
    names = quantise.quantised_inputs(model)
    random = np.random.default_rng(0)
    shapes = {i.name: i.type.tensor_type.shape.dim[1].dim_value for i in model.graph.value_info}
    samples = {n: random.normal(size=(50, shapes[n])).astype(np.float32) for n in names}
    monkeypatch.setattr(quantise, "MAX_ERROR", 0.0)
    found = quantise.quantise(model, samples)
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
