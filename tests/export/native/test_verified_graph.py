"""A foreign bundle whose graphs are not as its manifest says gives no C, and no traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgefold.export.native.generator import generate, refusal
from edgefold.export.native.rules import RULES
from edgefold.runtime import load_manifest
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.errors import BundleError, ExportError

Form = dict[str, Any]
Model = onnx.ModelProto


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def resealed(bundle: Path, change: Callable[[Form], object]) -> None:
    """Change the manifest, and give it the checksum of its new content."""
    path = bundle / "manifest.json"
    form = json.loads(path.read_text())
    change(form)
    path.write_text(json.dumps(with_checksum(form)))


def tensors(form: Form, name: str) -> list[Form]:
    """All descriptions in a manifest of one tensor of the state or the cache."""
    sides = [g[side] for g in form["graphs"].values() for side in ("inputs", "outputs")]
    used = [t for side in sides for t in side if t["of"] == name]
    return used + [t for t in (*form["state"], *form["cache"]) if t["name"] == name]


def shrunk(name: str, length: int) -> Callable[[Form], None]:
    def change(form: Form) -> None:
        for tensor in tensors(form, name):
            tensor["shape"][2] = length

    return change


def wide_query(form: Form) -> None:
    """Serve more targets than the graph of the query does."""
    graph = form["graphs"]["query"]
    graph["width"] *= 2
    for tensor in (*graph["inputs"], *graph["outputs"]):
        if tensor["role"] != "cache":
            tensor["shape"][0] *= 2
    for part in ("io_bytes", "total_bytes"):
        form["memory_plan"][part] += 10**6


def exchanged(form: Form) -> None:
    first, second = form["graphs"]["update"]["inputs"][2:4]
    first["name"], second["name"] = second["name"], first["name"]


def renamed(form: Form) -> None:
    form["graphs"]["update"]["inputs"][2]["name"] = "something_else"


def retyped(form: Form) -> None:
    form["graphs"]["update"]["inputs"][0]["dtype"] = "float16"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (shrunk("keys_0", 2), "keys_0"),
        (shrunk("recent_sums", 2), "recent_sums"),
        (wide_query, "query"),
        (exchanged, "update"),
        (renamed, "something_else"),
        (retyped, "float16"),
    ],
    ids=["cache", "state", "targets", "exchanged", "renamed", "type"],
)
def test_a_manifest_with_other_tensors_than_its_graphs_gives_no_c(
    bundle: Path, change: Callable[[Form], object], named: str
) -> None:
    resealed(bundle, change)
    load_manifest(bundle)  # every other rule holds
    with pytest.raises(BundleError, match=named) as refused:
        generate(bundle)
    assert "puts than its manifest" in str(refused.value)


def graph_changed(bundle: Path, name: str, change: Callable[[Model], object]) -> None:
    path = bundle / f"{name}.onnx"
    model = onnx.load_model_from_string(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())
    digest = sha256(path.read_bytes()).hexdigest()
    resealed(bundle, lambda form: form["graphs"][name].update(sha256=digest))


def test_shapes_that_a_graph_states_for_its_inner_values_are_not_believed(bundle: Path) -> None:
    expected = generate(bundle)

    def enlarge(model: Model) -> None:
        assert model.graph.value_info
        for info in model.graph.value_info:
            for length in info.type.tensor_type.shape.dim:
                length.dim_value *= 8

    graph_changed(bundle, "update", enlarge)
    assert generate(bundle).source == expected.source


def constant_of_output(model: Model) -> None:
    """Give an output of the graph the name of a constant of another shape."""
    output = model.graph.output[-1].name
    for node in model.graph.node:
        for at, name in enumerate(node.output):
            if name == output:
                node.output[at] = f"{output}_before"
    model.graph.initializer.append(helper.make_tensor(output, TensorProto.FLOAT, [9], [1.0] * 9))


def short_constant(model: Model) -> None:
    model.graph.initializer[0].CopyFrom(
        TensorProto(
            name=model.graph.initializer[0].name,
            data_type=TensorProto.FLOAT,
            dims=[5],
            raw_data=bytes(4),
        )
    )


def name_of_other_bytes(model: Model) -> None:
    """Give a node a name that is not UTF-8, which protobuf finds when it is read."""
    model.graph.node[0].name = "otherbytes"
    changed = model.SerializeToString().replace(b"otherbytes", b"other\xff\xfe\xfdes")
    model.ParseFromString(changed)


def without_a_node(model: Model) -> None:
    del model.graph.node[len(model.graph.node) // 2]


def bad_axis(model: Model) -> None:
    output = model.graph.output[0].name
    node = next(node for node in model.graph.node if output in node.output)
    node.output[0] = "before_the_end"
    model.graph.node.append(
        helper.make_node("Transpose", ["before_the_end"], [output], perm=[7, 7, 7, 7])
    )


@pytest.mark.parametrize(
    "change",
    [constant_of_output, short_constant, name_of_other_bytes, without_a_node, bad_axis],
    ids=lambda f: f.__name__,
)
def test_a_graph_that_is_not_valid_is_refused_as_a_bundle(
    bundle: Path, change: Callable[[Model], object]
) -> None:
    graph_changed(bundle, "update", change)
    with pytest.raises(BundleError, match=r"update\.onnx"):
        generate(bundle)


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard", "symbolic"])
def test_links_to_the_files_give_the_same_c(
    tiny_bundle: Path, bundle: Path, link: Callable[[Path, Path], None]
) -> None:
    store = bundle.parent / "store"
    store.mkdir()
    for at, path in enumerate(sorted(bundle.iterdir())):
        link(path.rename(store / f"object{at}"), path)
    assert generate(bundle) == generate(tiny_bundle)


def test_the_operator_that_stops_a_build_is_named_before_it(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(tiny_bundle) == ()
    monkeypatch.delitem(RULES, "Gemm")
    assert refusal(tiny_bundle)[0].startswith("Gemm of nodes 'gemm_0'")
    with pytest.raises(ExportError, match="does not cover Gemm"):
        generate(tiny_bundle)
