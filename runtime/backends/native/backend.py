"""Run a bundle's steps as compiled C: a step is one call with a list of addresses.

A library that `edgefold build` compiled on this machine is opened first, else that of the wheel.

    void edgefold_native_G(void *const *tensors, void *arena)    for each graph G

The tensors are in the manifest's order, inputs first. The arena is a block of work memory. A step
runs on the thread that calls it; it allocates nothing and cannot fail. Each stream has its own
arena, so that two streams may run at once.

The library is loaded with CDLL, which releases the interpreter's lock while a step runs: other
threads of the program continue during the milliseconds of a refresh, as they do with onnxruntime.
That costs 40 ns of the 180 that a call takes. Ctrl-C is handled between two steps with and without
the lock, and two calls of one stream never run at once (`edgefold.runtime.stream.call_guard`).
"""

from __future__ import annotations

import ctypes
from _ctypes import dlclose
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from edgefold.runtime.arrays import aligned_full
from edgefold.runtime.backends.base import BackendInfo, BoundStep, EngineOptions, Watch
from edgefold.runtime.backends.host_memory import HostMemory
from edgefold.runtime.backends.native.library_store import LibraryStore
from edgefold.runtime.backends.native.processor import read_processor
from edgefold.runtime.backends.native.wheel_libraries import (
    choose_library,
    libraries_of_wheel,
    prove_once,
)
from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.errors import BackendError
from edgefold.runtime.sensors.shipped_bundle import word_of

PREFIX = "edgefold_native_"
BUILT_HERE = "library built by edgefold build"
GENERATOR = "edgefold native "
"""A library's text about its generator begins with these words; the rest is a version."""


class NativeBackend(HostMemory):
    """Runs a bundle's steps by calling the functions of a loaded library.

    Args:
        manifest: The bundle's manifest.
        library: The library's file, which the caller must trust: loading it runs code.
        facts: The builder's facts about the library; see `Library`.
        watch: Function that is called when work begins; see `EngineOptions`.
        named: The path that messages show instead, if the file is a copy.
        origin: Words for reports that say where the library comes from.

    Attributes:
        generator: The library's text about the generator that wrote its C code, with the version.
        library: The loaded library; None after `close`.
    """

    generator: str

    def __init__(
        self,
        manifest: Manifest,
        library: Path,
        facts: Mapping[str, Any],
        watch: Watch | None = None,
        named: Path | None = None,
        origin: str = BUILT_HERE,
    ):
        super().__init__(manifest)
        self._path, self._facts, self._origin = named or library, facts, origin
        self._functions: dict[str, Callable[[int, int], None]] = {}
        self.library: ctypes.CDLL | None = None
        try:
            # Absolute, because a name without a folder would be searched along the system's path.
            self.library = ctypes.CDLL(str(library.absolute()))
            self._open(self.library, manifest, watch)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | AttributeError | ValueError):  # of ctypes
                reason = str(error).replace(str(library.absolute()), str(self._path))
                raise BackendError(
                    f"{self._path} does not load ({reason}); run `edgefold build "
                    f"{word_of(str(manifest.path))}` again, and see that the folder of libraries "
                    "(--cache) is not mounted with noexec."
                ) from error
            raise

    def _open(self, library: ctypes.CDLL, manifest: Manifest, watch: Watch | None) -> None:
        built_for = (ctypes.c_char * 65).in_dll(library, f"{PREFIX}bundle").value.decode("latin-1")
        if built_for != manifest.bundle_hash:
            raise BackendError(
                f"{self._path} was built from the bundle {built_for[:12]}…, not from "
                f"{manifest.path} ({manifest.bundle_hash[:12]}…). Build this bundle: `edgefold "
                f"build {manifest.path}`, with --target where the compiler is on another machine."
            )
        text = ctypes.c_char.in_dll(library, f"{PREFIX}generator")
        self.generator = ctypes.string_at(ctypes.addressof(text)).decode(errors="replace")
        for graph in manifest.graphs.values():
            if watch:
                watch("open", graph.name)
            function = getattr(library, PREFIX + graph.name)
            function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), None
            self._functions[graph.name] = function
        n_bytes = ctypes.c_size_t.in_dll(library, f"{PREFIX}arena_bytes").value
        self._arena = aligned_full((n_bytes,), "uint8", 0)

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> NativeBackend:
        if threads != 1:
            raise BackendError(
                f"a step runs on one thread, {threads} were asked; leave the threads out, or take "
                "the backend onnxruntime."
            )
        processor = read_processor()
        try:
            library = LibraryStore(engine.cache).find_library(manifest, processor)
        except BackendError as error:  # what was compiled on this machine is faster, so it is first
            not_built = error
        else:
            return cls(manifest, library.path, library.facts, engine.watch)
        try:
            of_wheel = choose_library(manifest, processor, libraries_of_wheel())
            if of_wheel is None:
                raise not_built
            facts = prove_once(of_wheel, manifest, processor, engine)
            return cls(manifest, of_wheel.path, facts, engine.watch, origin=of_wheel.origin)
        except BackendError as error:
            if error is not_built:
                raise
            raise BackendError(f"{error} {not_built}", *not_built.remedies) from error

    def report(self) -> dict[str, Any]:
        facts = self._facts
        return {
            "name": "native",
            "device": "cpu",
            "version": f"generator {self.generator.removeprefix(GENERATOR)}, "
            f"{facts.get('compiler')}",
            "threads": 1,
            "library": str(self._path),
            "origin": self._origin,
            "flags": facts.get("flags"),
            "proof": facts.get("proof"),
            "arena_bytes": self._arena.nbytes,
        }

    def bind(self, graph: Graph, placed: Mapping[str, Any]) -> BoundStep:
        """Return a callable that calls the graph's C function with the addresses of its tensors."""
        arrays = self.arrays_of(graph, placed)
        order = [arrays[tensor.name] for tensor in (*graph.inputs, *graph.outputs)]
        tensors = (ctypes.c_void_p * len(order))(*(array.ctypes.data for array in order))
        # Addresses as numbers: ctypes takes 80 ns longer to convert its own objects.
        step = partial(
            self._functions[graph.name], ctypes.addressof(tensors), self._arena.ctypes.data
        )
        step.keeps = tensors, order, self._arena  # type: ignore[attr-defined]  # it knows addresses
        return step

    def close(self) -> None:
        self._functions.clear()
        library, self.library = self.library, None
        if library is not None:
            dlclose(library._handle)
        super().close()
