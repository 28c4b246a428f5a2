from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.bundle_files import WeightFile, new_folder
from edgefold.export.checks.parity import draw_stream
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest import Scaling
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.checking.golden import Golden, check_bundle, replay
from edgefold.runtime.errors import ExportError
from edgefold.runtime.hashing import sha256_of
from edgefold.runtime.stream.state_buffers import Step
from edgefold.train.checkpoints import load_model
from edgefold.train.contract import Prediction, State
from edgefold.train.models.constant_memory.cmanp import PRESETS, Cmanp, CmanpConfig
from edgefold.train.states import running_attention
from tests.conftest import tiny_config, tiny_model
from tests.pairwise import parametrize

ROOT = Path(__file__).parents[2]
SMALL = ExportConfig(chunk=8, targets=4, parity_steps=60)
FORCED = replace(SMALL, force=True)
AS_TINY = replace(SMALL, parity_steps=300)
"""Sizes of the shared bundles tiny, tiny-float16 and tiny-int8."""


@pytest.mark.one_case
@parametrize(n_streams=[1, 3], n_inputs=[1, 5], n_outputs=[1, 2], embedding=["fourier", "mlp"])
def test_every_shape_of_model_keeps_parity(
    tmp_path: Path, n_streams: int, n_inputs: int, n_outputs: int, embedding: str
) -> None:
    torch.manual_seed(1)
    config = CmanpConfig(n_inputs, n_outputs, 2, 32, 2, 16, 48, embedding)  # type: ignore[arg-type]
    sizes = ExportConfig(chunk=8, targets=4, streams=n_streams, parity_steps=60)
    report = export_bundle(Cmanp(config).eval(), {"name": "none"}, tmp_path / "b", sizes)
    # float32 through two blocks: a few rounding steps of values around 1.
    assert max(row.graphs_to_float64 for row in report.parity) < 5e-6


@pytest.mark.long
@pytest.mark.parametrize(
    ("chunk", "targets"), [(2, 1), (5, 3), pytest.param(64, 32, marks=pytest.mark.product)]
)
def test_any_chunk_and_number_of_targets(tmp_path: Path, chunk: int, targets: int) -> None:
    config = ExportConfig(chunk=chunk, targets=targets, parity_steps=300)
    export_bundle(tiny_model(), {"name": "none"}, tmp_path / "b", config)
    assert check_bundle(tmp_path / "b").passed


@pytest.mark.long
def test_ten_thousand_steps_stay_with_pytorch_and_closer_to_the_truth(tmp_path: Path) -> None:
    """The shipped model's parity along a long stream, and its last moments, where drift shows."""
    model, run = load_model(ROOT / "checkpoints" / "gp-small")
    report = export_bundle(model, run["task"], tmp_path / "b", ExportConfig(parity_steps=10_000))
    assert report.parity[-1].n_points == 10_000
    assert max(row.graphs_to_float32 for row in report.parity) < 1e-4
    late = [row for row in report.parity if row.n_points > 1000]
    assert all(row.graphs_to_float64 < row.torch_to_float64 for row in late)


@pytest.mark.long
def test_the_state_stays_within_1e_5_of_float64_over_a_long_stream(tmp_path: Path) -> None:
    """A periodic stream, where plain float32 sums are off by 1e-4 of themselves."""
    model = tiny_model(1)
    export_bundle(model, {"name": "none"}, tmp_path / "b", SMALL)
    random = np.random.default_rng(0)
    x, y = random.uniform(-2, 2, (64, 1)), random.normal(size=(64, 1))
    exact = model.double()
    with torch.inference_mode():
        once = exact.condition(exact.initial_state(), torch.tensor(x)[None], torch.tensor(y)[None])
    attended = once["attended"].numpy().reshape(4, 16, 16).transpose(0, 2, 1)  # (K*H, D/H, L)
    with Stream.open(tmp_path / "b") as stream:
        for _ in range(20_032 // 64):  # a multiple of the period: the exact attention is unchanged
            for row in range(64):
                stream.update(x[row : row + 1], y[row : row + 1])
        state = {name: a.astype(np.float64) for name, a in stream.state().items()}
    top = np.maximum(state["base_peak"], state["recent_peak"])
    sums = (state["base_sums"] + state["base_rest"]) * np.exp(state["base_peak"] - top)
    sums += state["recent_sums"] * np.exp(state["recent_peak"] - top)
    found = (sums[:, :, :-1] / sums[:, :, -1:])[0]
    error = np.linalg.norm(found - attended) / np.linalg.norm(attended)
    assert error < 1e-5


def require_weights_stored_once(bundle: Path) -> None:
    manifest = load_manifest(bundle)
    plan = manifest.memory_plan
    read = sum(graph["weights_bytes"] for graph in plan["graphs"].values())
    assert plan["weights_bytes"] < 0.95 * read  # condition and update, query and query_one share
    state = 2 * sum(4 * int(np.prod(t.shape)) for t in manifest.state)
    assert plan["state_bytes"] == state


def test_the_weights_of_a_bundle_are_stored_once(tiny_bundle: Path) -> None:
    require_weights_stored_once(tiny_bundle)


@pytest.mark.long
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_exports_and_its_weights_are_stored_once(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    export_bundle(Cmanp(PRESETS[name]).eval(), {"name": "none"}, tmp_path / name, SMALL)
    require_weights_stored_once(tmp_path / name)


def test_graphs_are_standard_onnx_of_opset_17(tiny_bundle: Path) -> None:
    for graph in load_manifest(tiny_bundle).graphs.values():
        model = onnx.load(tiny_bundle / graph.file)
        assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
        assert all(node.domain == "" for node in model.graph.node)
        assert all(d.dim_value > 0 for i in model.graph.input for d in i.type.tensor_type.shape.dim)


def test_the_update_graph_stays_small(tiny_bundle: Path) -> None:
    """Nodes cost about a microsecond each on the smallest boards; a new one needs a reason."""
    model = onnx.load(tiny_bundle / "update.onnx")
    assert len(model.graph.node) <= 25  # with two extremes as comparisons and choices: NaN passes


def test_scaling_of_the_run_reaches_the_manifest(bundles: Path) -> None:
    manifest = load_manifest(bundles / "scaled")
    assert manifest.scaling_x == Scaling((10.0,), (3.0,))
    assert manifest.scaling_y == Scaling((400.0,), (20.0,))


def test_a_wrong_graph_fails_the_export_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_attention, "LEAST_EXPONENT", 0.0)  # all points weigh the same
    with pytest.raises(ExportError, match="off by"):
        export_bundle(tiny_model(), {"name": "none"}, tmp_path / "b", SMALL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_an_older_bundle_is_replaced_by_force_alone(tmp_path: Path, tiny_bundle: Path) -> None:
    out = tmp_path / "b"
    copytree(tiny_bundle, out)
    first = load_manifest(out).bundle_hash
    with pytest.raises(ExportError):
        export_bundle(tiny_model(seed=5), {"name": "none"}, out, SMALL)
    assert load_manifest(out).bundle_hash == first
    export_bundle(tiny_model(seed=5), {"name": "none"}, out, FORCED)
    assert load_manifest(out).bundle_hash != first
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("name", ["precious.txt", "manifest.json", "folder"])
def test_force_deletes_nothing_but_bundles(tmp_path: Path, name: str) -> None:
    out = tmp_path / "b"
    (out / name).mkdir(parents=True) if name == "folder" else out.mkdir()
    if name != "folder":
        (out / name).write_text('{"name": "mine"}')
        (out / "notes.txt").write_text("mine")
    with pytest.raises(ExportError):
        export_bundle(tiny_model(), {"name": "none"}, out, FORCED)
    assert (out / name).exists()


@pytest.mark.long
def test_a_failed_replacement_leaves_the_older_bundle(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "b"
    copytree(tiny_bundle, out)
    first = load_manifest(out).bundle_hash
    monkeypatch.setattr(running_attention, "LEAST_EXPONENT", 0.0)
    with pytest.raises(ExportError, match="off by"):
        export_bundle(tiny_model(seed=5), {"name": "none"}, out, FORCED)
    assert load_manifest(out).bundle_hash == first
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_link_to_a_bundle_is_followed_and_the_present_folder_refused(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "b")
    for _ in range(2):
        with new_folder(tmp_path / "link", force=True) as folder:
            copytree(tiny_bundle, folder, dirs_exist_ok=True)
    assert (tmp_path / "link").is_symlink() and not (tmp_path / "b").is_symlink()
    load_manifest(tmp_path / "b")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in (Path(), Path(".."), Path("/")):
        with pytest.raises(ExportError, match="folder you are in"):
            export_bundle(tiny_model(), {"name": "none"}, out, FORCED)


@pytest.mark.long
@pytest.mark.parametrize("bundle", ["tiny", "tiny-float16", "tiny-int8"])
def test_exporting_again_gives_the_same_bytes(tmp_path: Path, bundles: Path, bundle: str) -> None:
    config = replace(AS_TINY, precision=load_manifest(bundles / bundle).precision["name"])
    export_bundle(tiny_model(), {"name": "untrained"}, tmp_path / "b", config)
    for path in (bundles / bundle).iterdir():
        if path.suffix in (".onnx", ".bin"):
            assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("bad", [{"chunk": 1}, {"targets": 0}, {"streams": 0}, {"parity_steps": 1}])
def test_impossible_sizes_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ExportError, match="give at least"):
        ExportConfig(**bad)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({}, "no name"),
        ({"name": "none", "x_shift": [1.0]}, "columns of positive scale"),
        ({"name": "none", "y_scale": [0.0]}, "columns of positive scale"),
        ({"name": "none", "y_scale": [float("inf")]}, "columns of positive scale"),
    ],
)
def test_a_task_that_is_wrong_is_refused(
    tmp_path: Path, task: dict[str, object], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        export_bundle(tiny_model(), task, tmp_path / "b", SMALL)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_reference_fails_the_check(tmp_path: Path, tiny_bundle: Path) -> None:
    """The check can fail: golden predictions that are off by more than the tolerance."""
    out = tmp_path / "b"
    copytree(tiny_bundle, out)
    golden = Golden.load(load_manifest(out))
    golden.predictions["mean"][3] += 3e-4
    golden.save(out / "golden.npz")
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["golden"]["sha256"] = sha256_of(out / "golden.npz")
    manifest["golden"]["n_bytes"] = (out / "golden.npz").stat().st_size
    (out / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    report = check_bundle(out)
    assert not report.passed
    assert report.worst == pytest.approx(3e-4, rel=0.1)


def test_the_golden_stream_meets_every_graph(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle) as stream:
        ran: set[str] = set()

        def watch(name: str, step: Step) -> None:
            run = step.run

            def watched(sides: int) -> None:
                ran.add(name)
                run(sides)

            step.run = watched  # type: ignore[method-assign]

        for name, step in stream._steps.items():
            watch(name, step)
        list(replay(stream, Golden.load(stream.manifest)))
        # What another stream has learned is merged by `check --lockstep` and `verify`.
        assert ran == set(stream._steps) == set(stream.manifest.graphs) - {"merge"}


@pytest.mark.long
def test_a_model_that_does_not_run_in_float64_is_its_own_reference_and_that_is_told(
    tmp_path: Path,
) -> None:
    class Narrow(Cmanp):
        """Multiplies by a float32 matrix of its own."""

        def query(self, cache: State, x: torch.Tensor) -> Prediction:
            found = super().query(cache, x)
            return {
                name: t @ torch.eye(t.shape[-1], dtype=torch.float32) for name, t in found.items()
            }

    told = list[str]()
    report = export_bundle(
        Narrow(tiny_config()).eval(), {"name": "none"}, tmp_path / "b", SMALL, told.append
    )
    assert [line for line in told if line.startswith("float32 is its own reference")]
    assert all(row.torch_to_float64 == 0 for row in report.parity)


def test_the_reference_stream_is_drawn_within_the_models_range() -> None:
    stream = draw_stream(Cmanp(tiny_config()), 2, 100, 8)
    assert stream.x.shape == (2, 100, 2)
    assert stream.x.abs().max() <= 2
    assert stream.moments[0] == 0
    assert stream.moments[-1] == 100


def test_equal_weights_are_placed_once() -> None:
    weights = WeightFile()
    one = weights.place(np.arange(5000.0))
    assert weights.place(np.arange(5000.0)) == one
    assert weights.place(np.arange(5001.0)).offset % 4096 == 0


@pytest.mark.long
def test_a_wide_chunk_is_met_by_the_recorded_stream(tmp_path: Path) -> None:
    config = ExportConfig(chunk=400, targets=32, parity_steps=1600)
    export_bundle(tiny_model(), {"name": "none"}, tmp_path / "b", config)
    assert check_bundle(tmp_path / "b").passed
    golden = Golden.load(load_manifest(tmp_path / "b"))
    assert golden.moments[-1] >= golden.n_condition == 3 * 400 + 2
    assert golden.x.shape[1] >= golden.n_condition


def test_a_state_starts_from_a_number_where_one_says_it_all(tiny_bundle: Path) -> None:
    starts = {t.name: t.initial for t in load_manifest(tiny_bundle).state}
    assert starts["recent_sums"] == 0 and starts["recent_peak"] == np.float32(-1e30)
