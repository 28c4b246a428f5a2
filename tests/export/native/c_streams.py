"""Streams in C for tests: a compiled bundle behind ctypes, with the state laid open.

`stubs` gives graph functions that call Python, where onnxruntime runs the bundle's own graphs. So
what stands around them can be compared with `Stream` bit for bit.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.export.native.interface.graph_function import GraphFunction
from edgefold.export.native.interface.interface import interface_of
from edgefold.export.native.interface.stream_struct import Member, StreamStruct
from edgefold.export.native.program.arena import ArenaPlan
from edgefold.export.native.program.c_words import C_TYPES
from edgefold.runtime import load_manifest
from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.opening import open_backend
from edgefold.runtime.bundle.manifest import Graph, Manifest

KINDS = {
    "tiny": "points in chunks, sums that are consolidated, a cache",
    "scaled": "raw units that are not the model's",
    "streams": "three streams, two columns of each",
    "shelves": "three streams whose steps choose the slots of rings, no x",
    "anp": "rings that refuse what does not fit, seeds, several components",
    "cmanp-and": "targets that are predicted jointly, under a mask",
    "continual-nystrom": "a filter of three streams with rings, which consolidates every 4 inputs",
    "cmhp": "a filter that starts from stored arrays, and log densities",
}
"""What each bundle is there for."""
NAME = "model"
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
STATUS = (
    *("OK", "BAD_VALUE", "NOT_FINITE", "FULL", "TOO_MANY", "BAD_SLOT"),
    *("NO_SNAPSHOT", "BAD_SNAPSHOT", "FOREIGN_SNAPSHOT", "IO"),
)
HEAD = "".join(f"#include <{name}.h>\n" for name in ("math", "stddef", "stdint", "string"))
CALLED = "void (*called)(int graph, void *const *tensors);\n"
Callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
ReadOrWrite = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class CArray(ctypes.Structure):
    """`struct edgefold_array`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("shape", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("n_bytes", ctypes.c_size_t),
        ("room", ctypes.c_size_t),
    ]


class CCommit(ctypes.Structure):
    """`struct edgefold_commit`."""

    _fields_ = [
        ("n_points", ctypes.c_uint64),
        ("n_recent", ctypes.c_uint64),
        ("sides", ctypes.c_uint32),
        ("rows_due", ctypes.c_uint8),
        ("cache_is_made", ctypes.c_uint8),
    ]


def compiler(name: str = "gcc") -> str:
    """The path of a C compiler; the test is skipped where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return found


def stubs(manifest: Manifest, body: str = "") -> list[GraphFunction]:
    """Graph functions that do nothing but call `called`, or `body`."""
    functions = []
    for index, graph in enumerate(manifest.graphs.values()):
        tensors = [(t, "const " * (t in graph.inputs)) for t in (*graph.inputs, *graph.outputs)]
        parameters = [f"{c}{C_TYPES[t.dtype]} *t{i}" for i, (t, c) in enumerate(tensors)]
        listed = ", ".join(f"(void *)t{i}" for i in range(len(tensors)))
        parameters.append("unsigned char *arena")
        call = body or f"called({index}, tensors);"
        source = (
            f"static void run_{index}({', '.join(parameters)})\n{{\n"
            f"    void *const tensors[] = {{{listed}}};\n    (void)arena;\n    (void)tensors;\n"
            f"    {call}\n}}\n"
        )
        functions.append(GraphFunction(graph, f"run_{index}", source, ArenaPlan()))
    return functions


def stubbed_files(manifest: Manifest, body: str = "") -> dict[str, str]:
    """Header and source of a bundle whose graph functions are stubs."""
    functions = stubs(manifest, body)
    header, around = interface_of(manifest, NAME, functions, 0)
    sources = "\n".join(function.source for function in functions)
    head = f'#include "edgefold_{NAME}.h"\n{HEAD}{CALLED}'
    return {f"edgefold_{NAME}.h": header, f"edgefold_{NAME}.c": f"{head}{sources}\n{around}"}


def compiled(files: Mapping[str, str], folder: Path, *flags: str) -> ctypes.CDLL:
    """A shared library of generated files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    library = folder / "model.so"
    sources = [str(folder / name) for name in files if name.endswith(".c")]
    options = [*FLAGS, "-O1", *flags, "-shared", "-fPIC", "-DEDGEFOLD_LIBRARY"]
    subprocess.run([compiler(), *options, *sources, "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def layout_of(struct: StreamStruct) -> type[ctypes.Structure]:
    """The struct as ctypes has it, member for member."""

    def field(member: Member) -> tuple[str, Any]:
        n = member.sides * member.size * np.dtype(member.dtype).itemsize
        aligned = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}
        size = np.dtype(member.dtype).itemsize
        return member.name, aligned[size] * (n // size)

    fields: list[tuple[str, Any]] = []
    for region in struct.regions:
        commits = [("commits", CCommit * 2)] if region.kind == "commits" else []
        fields += [*commits, *(field(member) for member in region.members)]
    fields.append(("current", ctypes.c_uint8))
    return type("CStruct", (ctypes.Structure,), {"_fields_": fields})


class CStream:
    """A stream of a library; calls return names of `STATUS`.

    Attributes:
        spoil: Called with a graph and its tensors after each step of a stub.
    """

    def __init__(self, path: Path, library: ctypes.CDLL, name: str = NAME):
        self.manifest = manifest = load_manifest(path)
        self.struct = StreamStruct(manifest, f"edgefold_{name}")
        layout = layout_of(self.struct)
        told = ctypes.c_size_t.in_dll(library, "edgefold_native_stream_bytes").value
        assert ctypes.sizeof(layout) == told
        assert told <= self.struct.n_bytes
        self.memory: Any = layout()
        self._library, self._name = library, name
        self.spoil: Callable[[Graph, Mapping[str, Array]], None] = lambda graph, tensors: None
        self.called: list[str] = []
        self.reset()

    def beside(self) -> CStream:
        """Another stream of the same library, which computes as this one does."""
        return CStream(self.manifest.path, self._library, self._name)

    def answer_with_onnxruntime(self) -> None:
        """Let the stubs run the bundle's graphs."""
        options = EngineOptions()
        backend: Any = open_backend("onnxruntime", self.manifest, 1, options)[0]
        graphs = list(self.manifest.graphs.values())

        def call(index: int, addresses: Any) -> None:
            graph = graphs[index]
            arrays = {
                t.name: _at(addresses[i], t.shape, t.dtype)
                for i, t in enumerate((*graph.inputs, *graph.outputs))
            }
            given = {t.name: arrays[t.name] for t in graph.inputs}
            names = [t.name for t in graph.outputs]
            for name, made in zip(names, backend._session(graph).run(names, given), strict=True):
                arrays[name][...] = made
            self.called.append(graph.name)
            self.spoil(graph, arrays)

        self._callback = Callback(call)
        ctypes.c_void_p.in_dll(self._library, "called").value = ctypes.cast(
            self._callback, ctypes.c_void_p
        ).value

    def _call(self, what: str, *arguments: Any) -> str:
        function = getattr(self._library, f"edgefold_{self._name}_{what}")
        return STATUS[function(ctypes.byref(self.memory), *arguments)]

    def reset(self, seeds: Sequence[int] | None = None) -> None:
        init = getattr(self._library, f"edgefold_{self._name}_init")
        given = None if seeds is None else (ctypes.c_int64 * len(seeds))(*seeds)
        init(ctypes.byref(self.memory), *[given] * self.manifest.takes_seed)

    def update(self, x: Array | None, y: Array | None) -> str:
        return self._call("update", _numbers(x), _numbers(y))

    def condition(self, n: int, x: Array | None, y: Array | None) -> str:
        return self._call("condition", ctypes.c_size_t(n), _numbers(x), _numbers(y))

    def query(self, n: int, x: Array | None) -> str:
        return self._call("query", ctypes.c_size_t(n), _numbers(x))

    def step(self, x: Array | None) -> str:
        return self._call("step", _numbers(x))

    def refresh(self) -> str:
        return self._call("refresh")

    def merge(self, other: CStream) -> str:
        return self._call("merge", ctypes.byref(other.memory))

    def save(
        self, extra: Mapping[str, Array] | None = None, most: int = 1 << 40
    ) -> tuple[str, bytes]:
        """The snapshot; `most` bytes of it are taken before the callback refuses more."""
        written = bytearray()

        def write(to: Any, data: int, n: int) -> int:
            if len(written) + n > most:
                return 0
            written.extend(ctypes.string_at(data, n))
            return n

        arrays = (CArray * len(extra or {}))()
        for place, (name, array) in zip(arrays, (extra or {}).items(), strict=True):
            place.name, place.type = name.encode(), array.dtype.str.encode()
            place.shape = None if array.ndim == 1 else str(array.shape).encode()
            place.data, place.n_bytes = array.ctypes.data, array.nbytes
        status = self._call("save", ReadOrWrite(write), None, arrays, ctypes.c_size_t(len(arrays)))
        return status, bytes(written)

    def load(self, snapshot: bytes, wanted: Mapping[str, Array] | None = None) -> str:
        """Read a snapshot; arrays of `wanted` are filled, shorter ones at their beginning."""
        left = memoryview(snapshot)

        def read(source: Any, data: int, n: int) -> int:
            nonlocal left
            part = left[:n].tobytes()
            ctypes.memmove(data, part, len(part))
            left = left[n:]
            return len(part)

        arrays = (CArray * len(wanted or {}))()
        for place, (name, array) in zip(arrays, (wanted or {}).items(), strict=True):
            place.name, place.type = name.encode(), array.dtype.str.encode()
            place.shape = None if array.ndim == 1 else str(array.shape).encode()
            place.data, place.room = array.ctypes.data, array.nbytes
        self.found = arrays
        return self._call("load", ReadOrWrite(read), None, arrays, ctypes.c_size_t(len(arrays)))

    @property
    def n_points(self) -> int:
        function = getattr(self._library, f"edgefold_{self._name}_n_points")
        function.restype = ctypes.c_uint64
        return int(function(ctypes.byref(self.memory)))

    @property
    def commit(self) -> CCommit:
        return self.memory.commits[self.memory.current]  # type: ignore[no-any-return]

    def state(self) -> dict[str, Array]:
        """Copies of the current side of every tensor."""
        found = {}
        for tensor in self.manifest.state:
            member = self.struct.state[tensor.name]
            side = self.commit.sides >> self.struct.group_of[tensor.name] & 1
            flat = np.frombuffer(getattr(self.memory, member.name), tensor.dtype)
            one = flat.reshape(member.sides, *tensor.shape)[side if member.sides > 1 else 0]
            found[tensor.name] = one.copy()
        return found

    def predictions(self, n: int) -> dict[str, Array]:
        """The last prediction of n targets, (B, n, *shape)."""
        found = {}
        for told in self.manifest.prediction_tensors:
            flat = np.frombuffer(getattr(self.memory, self.struct.predictions[told.name].name))
            shape = (self.manifest.n_streams, self.manifest.targets, *told.shape)
            found[told.name] = flat.reshape(shape)[:, :n].copy()
        return found


def _at(address: int, shape: tuple[int, ...], dtype: str) -> Array:
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    block: Any = (ctypes.c_uint8 * n_bytes).from_address(address)
    array: Array = np.frombuffer(block, dtype).reshape(shape)
    return array


def _numbers(rows: Array | None) -> Any:
    if rows is None:
        return None
    array: Any = np.ascontiguousarray(rows, np.float64)
    return (ctypes.c_double * array.size).from_buffer_copy(array)
