"""A graph that takes weights from anywhere but the bundle's weight file is not opened."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import BackendError, BundleError, Stream
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.bundle.onnx_file import external_bytes, read_graph
from edgefold.runtime.hashing import sha256_of

GRAPH, NODE, ATTRIBUTE, INITIALIZER, SPARSE = 7, 1, 5, 5, 15  # fields of onnx.proto
LOCATION = b"weights.bin"


def number(value: int) -> bytes:
    """A varint."""
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def part(field: int, content: bytes) -> bytes:
    """A field that holds a message, a text or bytes."""
    return number(field << 3 | 2) + number(len(content)) + content


def entry(key: bytes, value: bytes) -> bytes:
    return part(13, part(1, key) + part(2, value))


def tensor(location: bytes = LOCATION, offset: bytes = b"0", length: bytes = b"64") -> bytes:
    """A TensorProto whose data lie elsewhere."""
    places = entry(b"location", location) + entry(b"offset", offset) + entry(b"length", length)
    return part(8, b"w") + places + number(14 << 3) + number(1)


def model(*parts: bytes) -> bytes:
    return part(GRAPH, b"".join(parts))


def counted(data: bytes) -> int:
    return external_bytes(data, LOCATION.decode(), 1000)


def in_attribute(field: int, content: bytes) -> bytes:
    return model(part(NODE, part(ATTRIBUTE, part(field, content))))


def test_constants_in_the_weight_file_are_counted() -> None:
    inline = part(INITIALIZER, part(8, b"own") + part(9, bytes(400)))
    assert counted(model(inline)) == 0
    one, last = part(INITIALIZER, tensor()), part(INITIALIZER, tensor(offset=b"936"))
    assert counted(model(one, inline, last)) == 128
    assert counted(model(one) + model(last)) == 128  # a reader merges both


@pytest.mark.parametrize(
    "foreign",
    [
        tensor(b"../../canary.bin"),
        tensor(b"/etc/passwd"),
        tensor(b"extra.bin"),
        tensor(b"golden.npz"),
        tensor(b"./weights.bin"),
        tensor(b"*/_ORT_MEM_ADDR_/*"),  # onnxruntime's name of an address
        tensor(offset=b"937"),
        tensor(offset=b"-1"),
        tensor(offset=b"0x0"),
        tensor(length=b"1" * 30),
        tensor() + entry(b"location", b"other"),
        tensor() + entry(b"checksum", b"0"),
        entry(b"location", b"other") + entry(b"offset", b"0") + entry(b"length", b"4"),
        number(14 << 3) + number(1),
    ],
)
def test_data_from_elsewhere_is_refused(foreign: bytes) -> None:
    with pytest.raises(ValueError):
        counted(model(part(INITIALIZER, foreign)))


@pytest.mark.parametrize(
    "data",
    [
        in_attribute(5, tensor()),
        in_attribute(10, tensor()),
        in_attribute(6, part(INITIALIZER, tensor())),
        in_attribute(11, part(INITIALIZER, tensor())),
        in_attribute(6, part(NODE, part(ATTRIBUTE, part(5, tensor())))),
        in_attribute(22, part(1, tensor())),
        in_attribute(23, part(2, tensor())),
        model(part(SPARSE, part(1, tensor()))),
        part(25, part(7, part(ATTRIBUTE, part(5, tensor())))),
        part(25, part(11, part(5, tensor()))),
        part(20, part(1, part(INITIALIZER, tensor()))),
    ],
)
def test_only_constants_of_the_main_graph_may_lie_in_the_weight_file(data: bytes) -> None:
    with pytest.raises(ValueError):
        counted(data)


def test_graphs_within_graphs_of_any_depth_are_walked() -> None:
    inner = part(INITIALIZER, tensor(b"other"))
    for _ in range(2000):
        inner = part(NODE, part(ATTRIBUTE, part(6, inner)))
    with pytest.raises(ValueError):
        counted(part(GRAPH, inner))


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a\x05ab",  # shorter than it says
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of more than 64 bits
        b"\xba\x80\x80\x80\x10" + b"\x00",  # a tag of more than 32 bits, which readers cut
        b"\x3b\x3c",  # groups
        b"\x3a",
        b"\x02\x00",  # field 0
    ],
)
def test_what_is_no_protobuf_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        counted(data)


def test_any_changed_byte_of_a_graph_is_walked_or_refused(tiny_bundle: Path) -> None:
    whole, drawn = (tiny_bundle / "update.onnx").read_bytes(), random.Random(0)
    stored = load_manifest(tiny_bundle).weights["n_bytes"]
    assert external_bytes(whole, "weights.bin", stored) > 0
    for _ in range(1000):
        data = bytearray(whole)
        data[drawn.randrange(len(data))] = drawn.randrange(256)
        try:
            assert external_bytes(bytes(data), "weights.bin", stored) >= 0
        except ValueError:
            continue


# Bundles ------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def replace(bundle: Path, name: str, data: bytes, **plan: Any) -> None:
    """Put another file in a graph's place and seal the bundle again."""
    (bundle / f"{name}.onnx").write_bytes(data)
    form = json.loads((bundle / "manifest.json").read_text())
    form["graphs"][name]["sha256"] = sha256_of(bundle / f"{name}.onnx")
    form["memory_plan"]["graphs"][name] |= plan
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(form)))


def test_a_sealed_bundle_with_weights_from_elsewhere_does_not_open(copy: Path) -> None:
    whole = (copy / "update.onnx").read_bytes()
    assert whole.count(b"weights.bin") > 1
    (copy / "another.bin").write_bytes((copy / "weights.bin").read_bytes())
    replace(copy, "update", whole.replace(b"weights.bin", b"another.bin", 1))
    with pytest.raises(BundleError, match=r"another\.bin"):
        Stream.open(copy, backend="onnxruntime")


def test_a_plan_below_the_weights_that_a_graph_reads_is_refused(copy: Path) -> None:
    whole = (copy / "update.onnx").read_bytes()
    replace(copy, "update", whole, weights_bytes=100)
    with pytest.raises(BundleError, match="100"):
        Stream.open(copy, backend="onnxruntime")


def test_a_graph_that_changed_after_it_was_verified_is_not_opened(copy: Path) -> None:
    manifest = load_manifest(copy)
    graph = manifest.graphs["update"]
    assert read_graph(manifest, graph) == (copy / "update.onnx").read_bytes()
    with (copy / "update.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(BundleError, match="changed"):
        read_graph(manifest, graph)


def test_a_sealed_file_that_is_no_graph_is_one_error(copy: Path) -> None:
    replace(copy, "update", b"")
    with pytest.raises(BackendError):
        Stream.open(copy, backend="onnxruntime")
    replace(copy, "update", b"junk")
    with pytest.raises(BundleError):
        Stream.open(copy, backend="onnxruntime")
