"""A sealed manifest that nobody's export wrote is refused before anything is allocated."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BundleError, MemoryLimitError, Stream
from edgefold.runtime.bundle.manifest_file import MOST_BYTES, load_manifest, with_checksum
from edgefold.runtime.checking.golden import CheckRow, Golden, check_bundle
from edgefold.runtime.hashing import sha256_of

Form = dict[str, Any]


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def form_of(bundle: Path) -> Form:
    found: Form = json.loads((bundle / "manifest.json").read_text())
    return found


def seal(bundle: Path, form: Form) -> None:
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(form)))


def listed(form: Form, graph: str, side: str, role: str) -> Form:
    """The first tensor of a role among a graph's inputs or outputs."""
    tensors: list[Form] = form["graphs"][graph][side]
    return next(tensor for tensor in tensors if tensor["role"] == role)


def with_a_mask_of_targets(form: Form) -> None:
    """As only a graph of joint predictions has it."""
    query = form["graphs"]["query"]
    mask = {"name": "mask", "role": "targets.mask", "of": "mask", "dtype": "bool"}
    query["inputs"].append({**mask, "shape": [form["n_streams"], query["width"]]})


def without(role: str, graph: str, side: str) -> Callable[[Form], None]:
    def change(form: Form) -> None:
        tensors = form["graphs"][graph][side]
        form["graphs"][graph][side] = [t for t in tensors if t["role"] != role]

    return change


def set_to(value: Any, *place: str | int) -> Callable[[Form], None]:
    def change(form: Form) -> None:
        part: Any = form
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value

    return change


def a_huge_state(form: Form) -> None:
    huge = {"name": "huge", "shape": [10**9], "dtype": "float32", "initial": 0.0}
    form["state"].append(huge)


def a_huge_state_that_the_plan_tells(form: Form) -> None:
    shape = [1 << 40, 1 << 40]
    form["state"].append({"name": "huge", "shape": shape, "dtype": "float32", "initial": 0.0})
    form["memory_plan"]["state_bytes"] = form["memory_plan"]["total_bytes"] = (1 << 62) - 1


def another_number_of_columns(form: Form) -> None:
    form["points"]["x"] = {"shift": [0.0], "scale": [1.0]}


def a_width_that_divides_nothing(form: Form) -> None:
    form["graphs"]["query"]["width"] = 3


def more_streams(form: Form) -> None:
    form["n_streams"] = 2


def a_role_that_stands_twice(form: Form) -> None:
    inputs = form["graphs"]["update"]["inputs"]
    inputs.append({**listed(form, "update", "inputs", "points.y"), "name": "again", "of": "again"})
    form["memory_plan"]["io_bytes"] *= 2
    form["memory_plan"]["total_bytes"] *= 2


def a_state_that_is_written_twice(form: Form) -> None:
    outputs = form["graphs"]["update"]["outputs"]
    outputs.append({**listed(form, "update", "outputs", "state"), "name": "again"})


def a_cache_that_nothing_refreshes(form: Form) -> None:
    del form["graphs"]["refresh"]


def two_graphs_of_one_step(form: Form) -> None:
    form["graphs"]["again"] = {**form["graphs"]["update"], "file": "again.onnx"}
    form["memory_plan"]["graphs"]["again"] = form["memory_plan"]["graphs"]["update"]
    form["memory_plan"]["io_bytes"] *= 2
    form["memory_plan"]["total_bytes"] *= 2


def many_groups_of_state(form: Form) -> None:
    """Each of 24 tensors has a writer of its own, and one graph reads them all."""
    tensor = {"dtype": "float32", "shape": [1], "role": "state"}
    query = form["graphs"]["query"]
    for index in range(24):
        name = f"own_{index}"
        form["state"].append({"name": name, "shape": [1], "dtype": "float32", "initial": 0.0})
        query["inputs"].append({**tensor, "name": f"in_{index}", "of": name})
        graph = json.loads(json.dumps(form["graphs"]["query_one"]))
        graph["outputs"].append({**tensor, "name": f"out_{index}", "of": name})
        graph["file"] = f"{name}.onnx"
        form["graphs"][name] = graph
        form["memory_plan"]["graphs"][name] = form["memory_plan"]["graphs"]["query_one"]
    for part in ("state_bytes", "io_bytes", "total_bytes"):
        form["memory_plan"][part] = 1 << 40


def a_series_of_many_lags(form: Form) -> None:
    form["task"] = {"name": "series", "features": {"clock": "date", "step": 1.0, "lags": 10**9}}


def a_series_of_half_a_lag(form: Form) -> None:
    form["task"] = {"name": "series", "features": {"clock": "date", "step": 1.0, "lags": 2.5}}


def a_series_of_a_long_season(form: Form) -> None:
    features = {"clock": "date", "step": 1e-300, "season": 1e300, "lags": 1}
    form["task"] = {"name": "series", "features": features}


CHANGES: list[Callable[[Form], None]] = [
    *(a_huge_state, a_huge_state_that_the_plan_tells, another_number_of_columns, more_streams),
    *(a_width_that_divides_nothing, a_role_that_stands_twice, a_state_that_is_written_twice),
    *(a_cache_that_nothing_refreshes, two_graphs_of_one_step, many_groups_of_state),
    *(a_series_of_many_lags, a_series_of_half_a_lag, a_series_of_a_long_season),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_the_runtime_could_not_run_is_refused(
    copy: Path, change: Callable[[Form], None]
) -> None:
    form = form_of(copy)
    change(form)
    seal(copy, form)
    with pytest.raises(BundleError):
        load_manifest(copy)


@pytest.mark.parametrize(
    "change",
    [
        without("points.x", "condition", "inputs"),
        without("points.mask", "condition", "inputs"),
        without("targets.x", "query_one", "inputs"),
        with_a_mask_of_targets,
        without("prediction", "query", "outputs"),
        set_to("tiny", "weights", "sha256"),
        set_to(None, "graphs", "update", "sha256"),
        set_to(["0" * 63], "resumes"),
        set_to([None], "resumes"),
        set_to(7, "resumes"),
        set_to(["0" * 64] * 65, "resumes"),
        set_to("up\0date.onnx", "graphs", "update", "file"),
        set_to("\ud800.onnx", "graphs", "update", "file"),
        set_to("golden.npz", "weights", "file"),
        set_to("..", "weights", "file"),
        set_to(1, "memory_plan", "state_bytes"),
        set_to(1, "memory_plan", "io_bytes"),
        set_to(1, "memory_plan", "cache_bytes"),
        set_to(1, "memory_plan", "total_bytes"),
        set_to(float("inf"), "memory_plan", "graphs", "update", "activations_bytes"),
        set_to(1e39, "state", 0, "initial"),
        set_to({"offset": 0, "n_bytes": 4}, "state", 0, "initial"),
        set_to({"offset": -4, "n_bytes": 4}, "state", 0, "initial"),
        set_to([1] * 17, "state", 0, "shape"),
        set_to(3, "graphs", "update", "width"),
        set_to(1, "graphs", "merge", "width"),
        without("other", "merge", "inputs"),
        set_to("other", "graphs", "refresh", "inputs", 0, "role"),
        set_to("other", "graphs", "merge", "outputs", 0, "role"),
        set_to([1], "graphs", "merge", "inputs", -1, "shape"),
        set_to("nothing", "graphs", "merge", "inputs", -1, "of"),
        set_to({"n_classes": 3}, "prediction", "settings"),
        set_to(True, "schema"),
    ],
)
def test_what_no_export_writes_is_refused(copy: Path, change: Callable[[Form], None]) -> None:
    form = form_of(copy)
    change(form)
    seal(copy, form)
    with pytest.raises(BundleError):
        load_manifest(copy)


def test_a_plan_that_says_more_than_the_shapes_is_taken(copy: Path) -> None:
    form = form_of(copy)
    for part in ("state_bytes", "total_bytes"):
        form["memory_plan"][part] += 1_000_000
    seal(copy, form)
    Stream.open(copy).close()


@pytest.mark.parametrize("name", ["tiny", "foreign", "scaled", "streams", "tiny-int8"])
def test_every_bundle_of_an_export_is_sound(bundles: Path, name: str) -> None:
    manifest = load_manifest(bundles / name)
    assert Golden.load(manifest).x.shape[0] == manifest.n_streams


@pytest.mark.parametrize("name", ["manifest.json", "weights.bin", "golden.npz", "update.onnx"])
def test_a_pipe_in_a_files_place_does_not_hang(copy: Path, name: str) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(BundleError):
        load_manifest(copy)


def test_a_manifest_of_any_size_is_not_read_whole(copy: Path) -> None:
    with (copy / "manifest.json").open("ab") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(BundleError):
        load_manifest(copy)


def test_nesting_of_any_depth_is_one_error(copy: Path) -> None:
    """At some depths the text can be read and not be written again, as the checksum needs it."""
    form, place = form_of(copy), copy / "manifest.json"
    limit = sys.getrecursionlimit()
    for depth in (*range(limit - 60, limit + 10, 3), 100_000):
        text = json.dumps({**form, "model": "HERE"}).replace('"HERE"', "[" * depth + "]" * depth)
        place.write_text(text)
        with pytest.raises(BundleError):
            load_manifest(copy)


def test_a_file_of_another_size_is_refused(copy: Path) -> None:
    with (copy / "weights.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(BundleError):
        load_manifest(copy)


VALUES: list[Any] = [
    *(None, True, 0, 1, -1, 3, 2**31, 2**62, 10**30, 0.5, 1e308, float("nan"), "", "x", "\x00"),
    *("..", "\ud800", [], [1], [0], [10**9], [2**40, 2**40], ["1"], {}, {"a": 1}, "float16"),
    *("int8", "state", "row", "cache", "prediction", "finite", "points.x", "targets.x", "query"),
    *("update", "step", "weights.bin", "golden.npz", "manifest.json"),
]


def places(node: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [at] if at else []
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return found + [place for key in keys for place in places(node[key], (*at, key))]


def test_any_changed_value_is_refused_or_runs(copy: Path) -> None:
    """Nothing but an error of ours comes out, whatever one value of the manifest is."""
    whole, drawn, refused = form_of(copy), random.Random(0), 0
    told = [place for place in places(whole) if "work" not in place and place[0] != "sha256"]
    for _ in range(400):
        form = json.loads(json.dumps(whole))
        set_to(drawn.choice(VALUES), *drawn.choice(told))(form)
        seal(copy, form)
        try:
            manifest = load_manifest(copy, verify=False)
            if manifest.graphs.keys() == whole["graphs"].keys():
                assert manifest.n_inputs == len(whole["points"]["x"]["shift"])
        except BundleError:
            refused += 1
    assert refused > 250  # the others changed facts for reports


# The golden stream --------------------------------------------------------------------------------


def change_golden(bundle: Path, **arrays: Any) -> None:
    """Replace arrays of the golden stream and seal the bundle again; None leaves one out."""
    path = bundle / "golden.npz"
    with np.load(path) as archive:
        found = {**archive, **{name.replace("__", "."): a for name, a in arrays.items()}}
    np.savez_compressed(path, **{name: a for name, a in found.items() if a is not None})
    form = form_of(bundle)
    form["golden"] |= {"sha256": sha256_of(path), "n_bytes": path.stat().st_size}
    seal(bundle, form)


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": None},
        {"tolerance": 1e9},
        {"tolerance": np.nan},
        {"tolerance": "1e-4"},
        {"moments": np.array([10**15])},
        {"moments": np.array([3, 1])},
        {"moments": np.array([-1, 1])},
        {"moments": np.array([], int)},
        {"n_condition": 10**6},
        {"n_condition": np.array([1])},
        {"n_condition": -1},
        {"x": np.zeros((1, 300, 3))},
        {"x": np.zeros((300, 2))},
        {"x": np.full((1, 300, 2), np.nan)},
        {"x": np.full((1, 300, 2), 1e30)},
        {"y": np.zeros((1, 299, 1))},
        {"targets": np.zeros((1, 10**5, 2))},
        {"prediction__mean": np.zeros((1, 1, 1, 1))},
        {"prediction__more": np.zeros(3)},
        {"more": np.zeros(3)},
        {"more": np.zeros(10**8, np.uint8)},
    ],
)
def test_a_golden_stream_of_another_bundle_is_refused(copy: Path, arrays: dict[str, Any]) -> None:
    change_golden(copy, **arrays)
    with pytest.raises(BundleError):
        check_bundle(copy)


def test_a_manifest_without_a_tolerance_takes_the_exporters(copy: Path) -> None:
    form = form_of(copy)
    del form["precision"]["parity"]
    seal(copy, form)
    change_golden(copy, tolerance=1e-4)
    assert check_bundle(copy).passed
    change_golden(copy, tolerance=1e-3)
    with pytest.raises(BundleError):
        check_bundle(copy)


def test_a_row_with_nan_is_not_within_any_tolerance() -> None:
    row = CheckRow(1, {"mean": 0.0, "std": float("nan")})
    assert not row.worst <= 1e9
    row = CheckRow(1, {"mean": float("nan"), "std": 0.0})
    assert not row.worst <= 1e9


def test_a_path_that_is_not_utf8_opens(copy: Path, tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"bundle_\xff")
    copy.rename(place)
    Stream.open(place, backend="onnxruntime").close()


def test_buffers_that_no_machine_can_hold_are_refused_though_the_plan_tells_them(
    copy: Path,
) -> None:
    form = form_of(copy)
    huge = {"name": "huge", "shape": [1 << 50], "dtype": "int8", "initial": 0.0}
    form["state"].append(huge)
    form["memory_plan"]["state_bytes"] += 1 << 51
    form["memory_plan"]["total_bytes"] += 1 << 51
    seal(copy, form)
    with pytest.raises(MemoryLimitError):
        Stream.open(copy, backend="onnxruntime")


def test_thousands_of_tensors_are_refused_at_once(copy: Path) -> None:
    form = form_of(copy)
    form["state"] += [{**form["state"][0], "name": f"more_{index}"} for index in range(20_000)]
    seal(copy, form)
    with pytest.raises(BundleError):
        load_manifest(copy)
