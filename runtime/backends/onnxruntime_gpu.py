"""Run graphs on onnxruntime's CUDA and TensorRT providers, for boards that have such a package.

Points are copied to the GPU and predictions back at every step; state and cache stay on the GPU:

    host array ──update_inplace──> device ── run on bound device memory ──> host array

A node that the provider does not support would run on the CPU, with its operands copied silently;
sessions are opened so that this is an error instead. No GPU has run this file yet: tests run it
with the CPU in the provider's place.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import BackendInfo, BoundStep, EngineOptions, blocks_of
from edgefold.runtime.backends.code_cache import NO_HOME, make_private_folder
from edgefold.runtime.backends.onnxruntime_cpu import OnnxRuntimeBackend
from edgefold.runtime.backends.onnxruntime_session import (
    Provider,
    onnxruntime,
    open_session,
    require_provider,
)
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache
from edgefold.runtime.bundle.manifest import Graph, Manifest, StateTensor, Tensor
from edgefold.runtime.errors import BackendError

IDENTITY = (
    b'\x08\x08:9\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x10\n\x01x\x12\x0b\n\t\x08\x02\x12'
    b"\x05\n\x03\x12\x01nb\x10\n\x01y\x12\x0b\n\t\x08\x02\x12\x05\n\x03\x12\x01nB\x04\n\x00\x10\r"
)
"""Holds an ONNX model that copies n bytes, y = x.

onnxruntime has no other way to copy from one address of a device to another.
"""


class OrtBuffer:
    """Holds a tensor in the memory of onnxruntime's provider, such as the GPU's."""

    __slots__ = ("_backend", "_dtype", "_shape", "nbytes", "value")

    def __init__(self, backend: OnnxRuntimeGpuBackend, tensor: StateTensor | Tensor):
        self._backend = backend
        self._shape, self._dtype = tensor.shape, np.dtype(tensor.dtype)
        self.nbytes = math.prod(tensor.shape) * self._dtype.itemsize
        with _reporting(f"onnxruntime has no memory for {tensor.name}"):
            self.value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
                list(tensor.shape), self._dtype.type, backend.device, 0
            )

    def read(self) -> Array:
        with _reporting("onnxruntime could not read from its device"):
            return np.array(self.value.numpy())

    def write(self, values: Array) -> None:
        with _reporting("onnxruntime could not write to its device"):
            whole = np.broadcast_to(values, self._shape)
            self.value.update_inplace(np.ascontiguousarray(whole, self._dtype))

    def write_row(self, row: OrtBuffer, axis: int, slot: int, stream: int | None = None) -> None:
        """Copy a row over the elements at index `slot` of an axis; see `DeviceBuffer.write_row`.

        An ONNX graph makes the copy; it runs once for each block of memory that is written.
        """
        n_outer, n_slots = math.prod(self._shape[:axis]), self._shape[axis]
        n_bytes = row.nbytes // n_outer
        target, source = self.value.data_ptr(), row.value.data_ptr()
        with _reporting("onnxruntime could not copy on its device"):
            for outer in blocks_of(stream, self._shape[0], n_outer):
                start = (outer * n_slots + slot) * n_bytes
                self._backend.copy(target + start, source + outer * n_bytes, n_bytes)


class OnnxRuntimeGpuBackend(OnnxRuntimeBackend):
    """Runs the graphs of a bundle on one GPU provider of onnxruntime.

    Each input that the host writes (a staged one) has a copy in the GPU's memory, which is updated
    before each step.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._twins: dict[str, dict[str, OrtBuffer]] = {}
        self._engine_cache: str | None = None

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> OnnxRuntimeGpuBackend:
        """Open a bundle on a GPU provider of the installed onnxruntime.

        Raises:
            BackendError: This build of onnxruntime has no such provider, or the provider does not
                open or does not take the bundle's precision.
        """
        require_provider(info.provider)
        precision = manifest.precision["name"]
        if info.builds_engines and precision != "float32":
            # Its networks are weakly typed: a tensor of another type fails at the build unless
            # trt_fp16_enable is on, which would narrow nodes of float32 as well
            # (NVIDIA/TensorRT#3277).
            raise BackendError(
                f"{info.name} was asked to open a bundle of {precision}; onnxruntime's TensorRT "
                "provider takes the types of float32 bundles only. Use the backend tensorrt, which "
                "builds with the types that the graph names, or onnxruntime, or export with "
                "--precision float32."
            )
        # Products of float32 stay float32: TF32 would round them to 10 bits, too few for a state.
        # The TensorRT provider has no option for it, only the variable of NVIDIA's libraries.
        os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
        cuda = {"device_id": "0", "use_tf32": "0"}
        providers: list[Provider] = [("CUDAExecutionProvider", cuda)]
        cache = None
        if info.builds_engines:
            options, cache = _tensorrt_options(engine, manifest.bundle_hash)
            providers.insert(0, (info.provider, options))
        backend = cls(info, manifest, threads, providers, "cuda", engine.watch)
        backend._engine_cache = cache
        return backend

    def report(self) -> dict[str, Any]:
        cache = {} if self._engine_cache is None else {"engine_cache": self._engine_cache}
        return super().report() | cache

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        arrays = super().allocate_host(graph)
        inputs = (t for t in graph.inputs if t.name in arrays)
        self._twins[graph.name] = {t.name: OrtBuffer(self, t) for t in inputs}
        return arrays

    def allocate_device(self, tensor: StateTensor | Tensor) -> OrtBuffer:
        return OrtBuffer(self, tensor)

    def bind(self, graph: Graph, placed: Mapping[str, Any]) -> BoundStep:
        session = self._session(graph)
        arrays, twins = self._staged[graph.name], self._twins[graph.name]
        binding = session.io_binding()
        for tensor in graph.inputs:
            there = twins.get(tensor.name) or placed[tensor.name]
            binding.bind_ortvalue_input(tensor.name, there.value)
        for tensor in graph.outputs:
            if tensor.name in arrays:
                array = arrays[tensor.name]
                place = (array.dtype.type, array.shape, array.ctypes.data)
                binding.bind_output(tensor.name, "cpu", 0, *place)
            else:
                binding.bind_ortvalue_output(tensor.name, placed[tensor.name].value)
        copies = [(arrays[name], twin.value) for name, twin in twins.items()]

        def step() -> None:
            try:
                for array, value in copies:
                    value.update_inplace(array)
                session.run_with_iobinding(binding)
                binding.synchronize_outputs()
            except Exception as error:
                raise BackendError(f"{graph.name} failed in {self._info.name}: {error}") from error

        step.buffers = arrays, placed  # type: ignore[attr-defined]  # must outlive the binding
        return step

    @cached_property
    def _copier(self) -> Any:
        return open_session(IDENTITY, providers=self._providers[-1:])

    def copy(self, target: int, source: int, n_bytes: int) -> None:
        """Copy `n_bytes` from one device address to another, and wait until that is done.

        Raises:
            Exception: Any error of onnxruntime.
        """
        binding = self._copier.io_binding()
        binding.bind_input("x", self.device, 0, np.uint8, [n_bytes], source)
        binding.bind_output("y", self.device, 0, np.uint8, [n_bytes], target)
        self._copier.run_with_iobinding(binding)
        binding.synchronize_outputs()

    def close(self) -> None:
        super().close()
        self._twins.clear()
        self.__dict__.pop("_copier", None)


@contextmanager
def _reporting(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # onnxruntime raises many kinds, none documented
        raise BackendError(f"{what}: {error}") from error


def _tensorrt_options(engine: EngineOptions, bundle_hash: str) -> tuple[dict[str, str], str]:
    """Return the options of the TensorRT provider, and a line about its cache for the report.

    The line is the folder that keeps the provider's engines, or why none are kept.
    """
    options = {"device_id": "0"}
    if engine.workspace_bytes is not None:
        options["trt_max_workspace_size"] = str(engine.workspace_bytes)
    if engine.optimization_level is not None:
        options["trt_builder_optimization_level"] = str(engine.optimization_level)
    cache = EngineCache(engine.cache).folder
    # The provider distinguishes engines by file and tensor names, not by weights or shapes.
    names = ("onnxruntime", bundle_hash[:32])
    reason = NO_HOME if cache is None else make_private_folder(cache, names)
    if cache is None or reason:  # the provider loads whatever lies there
        return options, f"off, engines are built at every start: {reason}"
    place = str(cache.joinpath(*names))
    options |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": place}
    options["trt_timing_cache_enable"] = "1"
    return options, place
