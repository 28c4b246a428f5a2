from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper

from edgefold.cli.options.flags import add_flags, options_of
from edgefold.export.bundle import ExportConfig, export_bundle, subject_of
from edgefold.export.checks.parity import ParityRow
from edgefold.export.precision import accuracy_loss as cost
from edgefold.export.precision import int8 as quantise
from edgefold.export.precision.accuracy_loss import LikelihoodChange, likelihood_change
from edgefold.export.precision.precisions import Cost, checked_tolerance, require_acceptable
from edgefold.export.precision.task_streams import with_smooth
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.golden import check_bundle, distances
from edgefold.runtime.errors import DataError, ExportError
from edgefold.runtime.predictions import Categorical
from edgefold.train.checkpoints import load_model
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig
from edgefold.train.states import running_attention
from edgefold.train.tasks.contract import Episode, TaskStreams
from edgefold.train.tasks.gp import GpOptions, GpTask
from edgefold.train.tasks.series import SeriesTask, SeriesTaskOptions
from tests.conftest import tiny_model

ROOT = Path(__file__).parents[3]
FOLD = ("condition", "update", "consolidate")
NARROW = ("float16", "int8")


def small(precision: str, **options: Any) -> ExportConfig:
    return ExportConfig(chunk=8, targets=4, parity_steps=60, precision=precision, **options)


def graph_of(bundle: Path, name: str) -> onnx.ModelProto:
    return onnx.load(bundle / f"{name}.onnx")


def makers(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in model.graph.node for name in node.output}


# What is in the graphs ------------------------------------------------------------------------


@pytest.mark.parametrize("precision", NARROW)
def test_the_fold_is_the_same_in_every_precision(bundles: Path, precision: str) -> None:
    for name in FOLD:
        exact, narrow = (graph_of(bundles / b, name) for b in ("tiny", f"tiny-{precision}"))
        assert exact.graph.node == narrow.graph.node
        for one, other in zip(exact.graph.initializer, narrow.graph.initializer, strict=True):
            assert one.data_type == other.data_type
            assert (numpy_helper.to_array(one) == numpy_helper.to_array(other)).all()


@pytest.mark.parametrize("precision", NARROW)
def test_the_state_is_bit_identical_in_every_precision(bundles: Path, precision: str) -> None:
    random = np.random.default_rng(3)
    x, y = random.normal(size=(150, 2)), random.normal(size=(150, 1))
    states = []
    for name in ("tiny", f"tiny-{precision}"):
        with Stream.open(bundles / name) as stream:
            stream.condition(x[:140], y[:140])
            for row in range(140, 150):
                stream.update(x[row : row + 1], y[row : row + 1])
            states.append(stream.state())
    for name, array in states[0].items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, states[1][name])


def test_float16_halves_weights_and_cache_and_keeps_the_interface(bundles: Path) -> None:
    exact, half = (load_manifest(bundles / name) for name in ("tiny", "tiny-float16"))
    assert {t.dtype for t in half.cache} == {"float16"}
    assert {t.dtype for t in half.state} == {"float32"}
    assert half.memory_plan["cache_bytes"] * 2 == exact.memory_plan["cache_bytes"]
    for graph in half.graphs.values():
        for tensor in (*graph.inputs, *graph.outputs):
            expected = {"cache": "float16", "points.mask": "bool"}.get(tensor.role, "float32")
            assert tensor.dtype == expected
    for name in ("refresh", "query", "query_one"):
        model = graph_of(bundles / "tiny-float16", name)
        kinds = {t.data_type for t in model.graph.initializer if len(t.dims) == 2}
        assert TensorProto.FLOAT16 in kinds
        assert (kinds == {TensorProto.FLOAT16}) == (name == "refresh")  # a query embeds in float32
    assert half.weights["n_bytes"] < 0.75 * exact.weights["n_bytes"]


def test_a_half_query_embeds_and_ends_in_float32(bundles: Path) -> None:
    model = graph_of(bundles / "tiny-float16", "query")
    kinds = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
    made = makers(model)
    assert kinds[next(n.output[0] for n in model.graph.node if n.op_type == "Sin")] == 1
    for output in model.graph.output:
        assert made[output.name].op_type in ("Gemm", "Exp")  # not a Cast of half's grid
    assert all(
        kinds[n.output[0]] == TensorProto.FLOAT16
        for n in model.graph.node
        if n.op_type in ("Softmax", "LayerNormalization", "MatMul")
    )


@pytest.mark.parametrize("name", ["refresh", "query", "query_one"])
def test_int8_grids_are_symmetric_and_biases_are_not_quantised(bundles: Path, name: str) -> None:
    model = graph_of(bundles / "tiny-int8", name)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") > 5
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            zero = constants[node.input[2]]
            assert zero.dtype == np.int8 and not zero.any()
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            weight, scale = constants[node.input[0]], constants[node.input[1]]
            assert weight.dtype == np.int8 and weight.min() >= -127
            assert scale.shape == weight.shape[1:]  # one a column
    made = makers(model)
    for node in model.graph.node:
        if node.op_type == "Sum":
            assert made[node.input[0]].op_type == "MatMul"
            assert constants[node.input[1]].dtype == np.float32
        if node.op_type == "Softmax":  # the products inside an attention stay float32
            scores = made[node.input[0]]
            assert all(made[x].op_type != "DequantizeLinear" for x in scores.input if x in made)
    assert not any(a.dtype == np.int32 for a in constants.values())


@pytest.mark.parametrize("precision", NARROW)
def test_narrow_graphs_are_standard_onnx_of_opset_17(bundles: Path, precision: str) -> None:
    manifest = load_manifest(bundles / f"tiny-{precision}")
    for graph in manifest.graphs.values():
        model = graph_of(manifest.path, graph.name)
        assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
        assert model.ir_version == 8
        assert all(node.domain == "" for node in model.graph.node)


def test_both_widths_of_int8_queries_share_their_weights(bundles: Path) -> None:
    def large(name: str) -> set[tuple[str, bytes]]:
        return {
            (t.name, t.raw_data)
            for t in graph_of(bundles / "tiny-int8", name).graph.initializer
            if t.data_type == TensorProto.INT8 and len(t.dims) == 2
        }

    assert large("query") == large("query_one") != set()


@pytest.mark.long
def test_large_inputs_give_finite_predictions_in_half(tmp_path: Path) -> None:
    """float16 ends at 65504, callers may give a billion; the plain embedding grows with x."""
    torch.manual_seed(0)
    plain = Cmanp(CmanpConfig(1, 1, 2, 32, 2, 16, 48, embedding="mlp")).eval()
    for index, model in enumerate((plain, tiny_model(1))):
        export_bundle(model, {"name": "none"}, tmp_path / f"{index}", small("float16"))
        with Stream.open(tmp_path / f"{index}") as stream:
            stream.update([[1e8]], [[-1e8]])
            prediction = stream.query([[1e8]])
            assert np.isfinite(prediction.mean).all() and np.isfinite(prediction.std).all()


# Agreement and refusal ------------------------------------------------------------------------


@pytest.mark.parametrize("precision", NARROW)
def test_narrow_bundles_pass_their_check_and_say_what_they_are(
    bundles: Path, precision: str
) -> None:
    report = check_bundle(bundles / f"tiny-{precision}")
    assert report.passed
    found = load_manifest(bundles / f"tiny-{precision}").precision
    assert found["name"] == precision
    assert found["parity"]["worst"] <= found["parity"]["tolerance"] == report.tolerance < 0.1
    assert "log_likelihood_change" not in found  # untrained: no task
    assert ("calibrated_on" in found) == (precision == "int8")


@pytest.mark.long
@pytest.mark.parametrize("precision", NARROW)
def test_several_streams_and_outputs_keep_parity(tmp_path: Path, precision: str) -> None:
    config = ExportConfig(8, 4, 3, parity_steps=60, precision=precision)
    export_bundle(tiny_model(n_outputs=2), {"name": "none"}, tmp_path / "b", config)
    assert check_bundle(tmp_path / "b").passed


@pytest.mark.long
def test_a_grid_that_is_too_coarse_is_refused_unless_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantise, "LEVELS", 1)
    monkeypatch.setattr(quantise, "MAX_ERROR", 10.0)
    with pytest.raises(ExportError, match="off by"):
        export_bundle(tiny_model(), {"name": "none"}, tmp_path / "b", small("int8"))
    assert list(tmp_path.iterdir()) == []
    export_bundle(tiny_model(), {"name": "none"}, tmp_path / "b", small("int8", accept_loss=True))
    assert load_manifest(tmp_path / "b").precision["parity"]["worst"] > 0.3


@pytest.mark.long
def test_a_precision_that_costs_more_than_the_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "FEWEST", 6)
    monkeypatch.setattr(cost, "MOST", 6)
    task = GpTask().describe()
    model = tiny_model(1)

    def streams() -> TaskStreams:
        return GpTask.streams(task, None)

    with pytest.raises(ExportError, match=r"costs .* nats .* --accept-loss"):
        export_bundle(model, task, tmp_path / "b", small("int8", max_loss=-1.0), streams=streams())
    assert list(tmp_path.iterdir()) == []
    report = export_bundle(
        model, task, tmp_path / "b", small("int8", max_loss=5.0), streams=streams()
    )
    assert set(report.precision["log_likelihood_change"]) == {"rbf", "matern52"}
    assert report.precision["n"] == {"rbf": 6, "matern52": 6}
    assert load_manifest(tmp_path / "b").precision == report.precision


def test_bounds_hold_for_the_worst_kind_of_episode_and_nan_passes_none(bundles: Path) -> None:
    row = ParityRow(10, 1e-3, 2e-3, 1e-6)

    def cost_of(*means: float) -> Cost:
        return Cost("int8", (row,), {str(m): LikelihoodChange(m, 0.001, 9) for m in means}, "x", "")

    require_acceptable(cost_of(0.1, -0.049))
    for bad in (-0.051, float("nan")):
        with pytest.raises(ExportError, match="int8 costs"):
            require_acceptable(cost_of(0.1, bad))
    require_acceptable(cost_of(-0.3), max_loss=0.5)
    broken = Cost("float16", (ParityRow(10, 1e-3, float("nan"), 0),), {}, "", "")
    assert not broken.is_finite  # which not even an accepted loss excuses
    with pytest.raises(ExportError, match="off by nan"):
        require_acceptable(broken)
    inexact = Cost("float32", (ParityRow(10, 0.0, 2e-3, 2e-3),), {}, "", "")
    with pytest.raises(ExportError, match=r"after 10 points.* PyTorch in float32 itself is off by"):
        require_acceptable(inexact)
    manifest = load_manifest(bundles / "tiny")
    sound, lost = np.zeros((1, 1)), np.array([[np.nan]])
    found = distances(manifest, {"mean": sound, "std": lost}, {"mean": sound, "std": sound})
    assert np.isnan(found["std"])
    assert checked_tolerance(Cost("float32", (row,), {}, "", "")) == 1e-4
    assert checked_tolerance(cost_of(0.0)) == pytest.approx(4e-3)


def test_scores_of_classes_are_compared_relative_to_the_largest(bundles: Path) -> None:
    told = Categorical(2).tensors(1)
    manifest = replace(load_manifest(bundles / "tiny"), prediction_tensors=told)
    scores = np.array([[20.0, -1.0]])
    found = distances(manifest, {"scores": scores + 2e-3}, {"scores": scores})
    assert found["scores"] == pytest.approx(1e-4)
    small = distances(manifest, {"scores": scores / 40 + 2e-3}, {"scores": scores / 40})
    assert small["scores"] == pytest.approx(2e-3)
    lost = distances(manifest, {"scores": scores}, {"scores": scores * np.nan})
    assert np.isnan(lost["scores"])


@pytest.mark.long
@pytest.mark.parametrize("precision", NARROW)
def test_a_wrong_fold_fails_a_narrow_export_whatever_loss_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """The narrow graphs agree with the float32 ones, and both are wrong."""
    monkeypatch.setattr(running_attention, "LEAST_EXPONENT", 0.0)  # all points weigh the same
    with pytest.raises(ExportError, match="the float32 graphs are off by"):
        export_bundle(
            tiny_model(), {"name": "none"}, tmp_path / "b", small(precision, accept_loss=True)
        )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ExportError, match="give one of float32, float16, int8"):
        ExportConfig(precision="bfloat16")


def test_the_same_bundle_twice_changes_nothing(bundles: Path) -> None:
    random = np.random.default_rng(0)
    trials = [Episode(random.normal(size=(9, 2)), random.normal(size=(9, 1)), 5) for _ in range(3)]
    found = likelihood_change(bundles / "tiny", bundles / "tiny", trials)
    assert found == LikelihoodChange(0.0, 0.0, 3)


def test_a_trial_that_learns_counts_each_row(bundles: Path) -> None:
    random = np.random.default_rng(0)
    trial = Episode(random.normal(size=(9, 2)), random.normal(size=(9, 1)), 5, prequential=True)
    assert likelihood_change(bundles / "tiny", bundles / "tiny-int8", [trial]).n == 4


# Tasks ----------------------------------------------------------------------------------------


def test_every_task_offers_streams_in_the_callers_units() -> None:
    gp = GpTask.streams(GpTask().describe(), GpOptions())
    assert set(gp.scored) == {"rbf", "matern52"}
    episode = next(gp.scored["rbf"])
    assert 3 <= episode.n_context < len(episode.x) and not episode.prequential
    assert max(len(e.x) for e in gp.calibration) > 500  # beyond what training showed
    wide = {"name": "none", "x_shift": [100.0], "x_scale": [10.0]}
    none = with_smooth(TaskStreams([]), tiny_model(1), subject_of(tiny_model(1), wide))
    assert none.scored == {} and none.measured_on == ""
    assert none.calibration[0].x.min() >= 80 and none.calibration[0].x.max() <= 120


def series_options(csv: Path | None) -> SeriesTaskOptions:
    parser = argparse.ArgumentParser()
    add_flags(parser, SeriesTaskOptions)
    words = ["--csv", str(csv)] if csv else []
    options: SeriesTaskOptions = options_of(SeriesTaskOptions, parser.parse_args(words))
    return options


def test_a_series_without_its_rows_draws_made_up_ones() -> None:
    scaling = {"x_shift": [5.0] * 3, "x_scale": [2.0] * 3, "y_shift": [1.0], "y_scale": [4.0]}
    streams = SeriesTask.streams({"name": "series", **scaling}, series_options(None))
    assert set(streams.scored) == {"made_up"}
    episodes = list(islice(streams.scored["made_up"], 3))
    assert np.abs(np.concatenate([e.x for e in episodes]).mean() - 5) < 0.5


@pytest.mark.long
def test_the_shipped_series_costs_next_to_nothing_in_int8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: real rows set the ranges, held-out rows tell the cost."""
    monkeypatch.setattr(quantise, "MOST_ROWS", 128)
    model, run = load_model(ROOT / "checkpoints" / "series-co2")
    streams = SeriesTask.streams(run["task"], series_options(ROOT / "data" / "co2_weekly.csv"))
    config = ExportConfig(parity_steps=128, precision="int8")
    report = export_bundle(model, run["task"], tmp_path / "b", config, streams=streams)
    assert report.precision["n"] == {"held_out": 457}
    assert abs(report.precision["log_likelihood_change"]["held_out"]) < 0.02
    assert report.precision["standard_error"]["held_out"] < 0.003
    assert (tmp_path / "b" / "weights.bin").stat().st_size < 1.1e6  # float32: 2.7 MB


def test_a_series_too_short_to_be_judged_by_is_refused(tmp_path: Path) -> None:
    _, run = load_model(ROOT / "checkpoints" / "series-co2")
    lines = (ROOT / "data" / "co2_weekly.csv").read_text().splitlines()
    short = tmp_path / "short.csv"
    short.write_text("\n".join(lines[:57]) + "\n")
    with pytest.raises(DataError):
        SeriesTask.streams(run["task"], series_options(short))
