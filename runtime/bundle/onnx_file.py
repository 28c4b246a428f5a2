"""Find from which files a graph takes its weights, before any library opens the graph.

A graph's file may name any other file for the data of a tensor: one outside of the bundle, or one
that no hash covers. A library opens whatever is named there (older ones even `../../secret`). So
this module reads the graph's file first, and refuses it unless it is as the exporter writes it:
constants of the main graph lie in the bundle's weight file, with offset and length, and all other
tensors in the graph's own file.

    model ─> graph ─┬─> initializers                            may lie in the weight file
                    └─> nodes ─> attributes ─> tensors, graphs  hold their data themselves

An ONNX file is a protobuf message (https://protobuf.dev/programming-guides/encoding). Only the
needed fields are read, by their numbers in onnx.proto, because a board has no package onnx.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.errors import BundleError
from edgefold.runtime.hashing import sha256
from edgefold.runtime.plain_files import open_plain

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; groups (3, 4) are in no ONNX file
EXTERNAL = 1  # TensorProto.DataLocation
MOST_BYTES = 64_000_000
"""A graph's file with more bytes than this is refused; our exports have up to 0.2 MB."""

INNER: dict[str, dict[int, str]] = {
    "model": {7: "main", 20: "training", 25: "function"},
    "main": {1: "node", 5: "initializer", 15: "sparse"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
}
"""Gives, for each kind of message that can hold tensors, the kind of message in each field.

A field is named by its number in onnx.proto; other fields hold no tensors. A kind that is not a key
here is a tensor.
"""


def read_graph(manifest: Manifest, graph: Graph) -> bytes:
    """Return the content of a graph's file, after checking its hash and where its weights lie.

    Raises:
        BundleError: The file cannot be read, was changed, or takes weights from another file.
    """
    path = manifest.path / graph.file
    try:
        with open_plain(path) as file:
            model = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
    if sha256(model).hexdigest() != graph.sha256:
        raise BundleError(f"{path} was changed: its SHA-256 is not the manifest's.")
    try:
        n_bytes = external_bytes(model, manifest.weights["file"], manifest.weights["n_bytes"])
    except ValueError as error:
        raise BundleError(
            f"{path} is not as edgefold exports it: {error}. Export the bundle again, and do not "
            "open this one if it is a stranger's."
        ) from error
    planned = manifest.memory_plan["graphs"][graph.name]["weights_bytes"]
    if n_bytes > planned:
        raise BundleError(
            f"{path} reads {n_bytes} bytes of weights, its memory plan says {planned}; export the "
            "bundle again."
        )
    return model


def external_bytes(model: bytes, location: str, n_stored: int) -> int:
    """Return how many bytes of a graph's constants lie in the weight file.

    Args:
        model: The content of the graph's file.
        location: Name of the weight file, the only other file that the graph may name.
        n_stored: Size of the weight file in bytes.

    Raises:
        ValueError: The model is not a protobuf message, or takes data from another file.
    """
    total = 0
    waiting = [("model", 0, len(model))]
    while waiting:
        kind, start, stop = waiting.pop()
        inner = INNER.get(kind)
        if inner is None:
            total += _external_bytes(model, (start, stop), location, n_stored, kind)
            continue
        for field, wire, first, last in _fields(model, start, stop):
            if wire == BYTES and field in inner:
                waiting.append((inner[field], first, last))
    return total


def _fields(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the protobuf message in `data[at:stop]`.

    Yields:
        The field's number, its wire type, and the positions of its first byte and of the byte after
        its last one; for a varint (an integer) its value twice instead.

    Raises:
        ValueError: The bytes are not such a message.
    """
    while at < stop:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1, stop)
        field, wire = tag >> 3, tag & 7
        if not field or tag >> 32:
            raise ValueError(f"no protobuf: field {field} at byte {at}")
        if wire == BYTES:
            if at >= stop:
                raise ValueError("no protobuf: it ends early")
            length = data[at]
            at += 1
            if length > 127:
                length, at = _varint(data, at - 1, stop)
        elif wire == VARINT:
            number, at = _varint(data, at, stop)
            yield field, wire, number, number
            continue
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"no protobuf of ONNX: wire type {wire} at byte {at}")
        if length > stop - at:
            raise ValueError("no protobuf: it ends early")
        yield field, wire, at, at + length
        at += length


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            raise ValueError("no protobuf: it ends early")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError(f"no protobuf: a number of more than 64 bits at byte {at}")


def _external_bytes(
    data: bytes, place: tuple[int, int], location: str, n_stored: int, kind: str
) -> int:
    """Return how many bytes of a tensor's data lie in the weight file; 0 if its message holds them.

    Protobuf allows the message of a tensor in several parts, which readers merge; here each part
    that has external data must state their whole place.

    Args:
        data: The content of the graph's file.
        place: Positions in `data` of the tensor's first byte and of the byte after its last one.
        location: Name of the weight file.
        n_stored: Size of the weight file in bytes.
        kind: The kind of tensor, a word of `INNER`. Only an "initializer", a constant of the main
            graph, may lie in the weight file.

    Raises:
        ValueError: The tensor's data lie in another file, or beyond the end of the weight file.
    """
    name, is_external = "", False
    places: list[tuple[str, str]] = []
    for field, wire, first, last in _fields(data, *place):
        if field == 8 and wire == BYTES:
            name = data[first:last].decode()
        elif field == 13 and wire == BYTES:
            places.append(_entry(data, first, last))
        elif field == 14 and wire == VARINT:
            is_external = is_external or first == EXTERNAL
    if not is_external and not places:
        return 0
    if kind != "initializer":
        raise ValueError(f"{name!r} has external data and is no constant of the main graph")
    entries = dict(places)
    if len(places) != 3 or entries.keys() != {"location", "offset", "length"}:
        raise ValueError(f"{name!r} has external data of {[key for key, _ in places]}")
    if (source := entries["location"]) != location:
        raise ValueError(f"{name!r} takes its data from {source!r}, not from {location}")
    offset, n_bytes = (_count(entries[key]) for key in ("offset", "length"))
    if offset + n_bytes > n_stored:
        raise ValueError(f"{name!r} lies beyond the {n_stored} bytes of {location}")
    return n_bytes


def _entry(data: bytes, start: int, stop: int) -> tuple[str, str]:
    texts = {
        field: data[first:last].decode()
        for field, wire, first, last in _fields(data, start, stop)
        if wire == BYTES
    }
    return texts.get(1, ""), texts.get(2, "")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ValueError(f"{text!r} is no number of bytes")
    return int(text)
