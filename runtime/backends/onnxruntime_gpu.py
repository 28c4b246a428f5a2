"""onnxruntime's CUDA and TensorRT execution providers, for boards that have those wheels.

Points and predictions cross to the device and back at every step; state and memory stay there:

    host array ──update_inplace──> device ── run on bound device memory ──> host array

A node that the provider cannot take would run on the CPU, with its operands copied behind our
back; sessions are opened so that this is an error instead. No GPU has run this file yet: tests
drive it with the CPU in the provider's place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.backends.base import STAGED, BoundStep, EngineOptions
from edgefold.runtime.backends.onnxruntime_cpu import compare_tensors
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache
from edgefold.runtime.errors import BackendError
from edgefold.runtime.manifest import Graph, Manifest, StateTensor, Tensor

PROVIDERS = {
    "onnxruntime-cuda": "CUDAExecutionProvider",
    "onnxruntime-tensorrt": "TensorrtExecutionProvider",
}


class OrtTensor:
    """A state or memory tensor in the provider's memory."""

    __slots__ = ("_dtype", "_shape", "nbytes", "value")

    def __init__(self, tensor: StateTensor | Tensor, device: str):
        self._shape, self._dtype = tensor.shape, np.dtype(tensor.dtype)
        try:
            self.value = ort.OrtValue.ortvalue_from_shape_and_type(
                list(tensor.shape), self._dtype.type, device, 0
            )
        except Exception as error:  # onnxruntime raises many kinds, none documented
            raise BackendError(f"onnxruntime has no memory for {tensor.name}: {error}") from error
        self.nbytes = int(np.prod(tensor.shape, dtype=np.int64)) * self._dtype.itemsize

    def read(self) -> Array:
        """A copy on the host."""
        try:
            return np.array(self.value.numpy())
        except Exception as error:
            raise BackendError(f"onnxruntime could not read from its device: {error}") from error

    def write(self, values: Array) -> None:
        """Overwrite it."""
        try:
            whole = np.broadcast_to(values, self._shape)
            self.value.update_inplace(np.ascontiguousarray(whole, self._dtype))
        except Exception as error:
            raise BackendError(f"onnxruntime could not write to its device: {error}") from error


class OnnxRuntimeGpuBackend:
    """Sessions of all graphs on one execution provider.

    Args:
        name: The backend's name, for reports.
        providers: onnxruntime's names of providers, each with its options; the first must take
            part, the others take what it leaves.
        device: onnxruntime's name of where the provider's memory lies: "cuda", or "cpu" in tests.
    """

    def __init__(
        self,
        name: str,
        manifest: Manifest,
        threads: int,
        providers: list[tuple[str, dict[str, str]]],
        device: str,
    ):
        self.name = name
        self._providers, self._device, self._threads = providers, device, threads
        self._staged: dict[str, tuple[dict[str, Array], dict[str, OrtTensor]]] = {}
        self._sessions: dict[str, Any] = {}
        for graph in manifest.graphs.values():
            self._sessions[graph.name] = self._open(manifest.path / graph.file)
            compare_tensors(graph, self._sessions[graph.name])

    def _open(self, path: Path) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if self._device != "cpu":
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        try:
            # Its own fallback prints to stdout and hides why the provider did not load.
            session = ort.InferenceSession(
                str(path), options, providers=self._providers, enable_fallback=0
            )
        except Exception as error:  # onnxruntime raises many kinds, none documented
            raise BackendError(f"onnxruntime {ort.__version__} refused {path}: {error}") from error
        asked, found = self._providers[0][0], session.get_providers()[0]
        if found != asked:
            raise BackendError(
                f"onnxruntime {ort.__version__} opened {path.name} on {found} instead of {asked}: "
                "the provider's own libraries (CUDA, cuDNN, TensorRT) are missing, or of another "
                "version than this build was made for."
            )
        return session

    def report(self) -> dict[str, Any]:
        """What really runs."""
        return {
            "name": self.name,
            "device": self._device,
            "version": ort.__version__,
            "provider": self._providers[0][0],
            "threads": self._threads,
        }

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        """Host arrays; inputs have a twin on the device."""
        arrays = {
            t.name: aligned_full(t.shape, t.dtype, 0)
            for t in (*graph.inputs, *graph.outputs)
            if t.role in STAGED
        }
        twins = {t.name: OrtTensor(t, self._device) for t in graph.inputs if t.role in STAGED}
        self._staged[graph.name] = arrays, twins
        return arrays

    def allocate_device(self, tensor: StateTensor) -> OrtTensor:
        """Device memory for a state or memory tensor."""
        return OrtTensor(tensor, self._device)

    def bind(self, graph: Graph, placed: Mapping[str, OrtTensor]) -> BoundStep:
        """Bind every tensor of a graph to its place."""
        session = self._sessions[graph.name]
        arrays, twins = self._staged[graph.name]
        binding = session.io_binding()
        for tensor in graph.inputs:
            there = twins.get(tensor.name) or placed[tensor.name]
            binding.bind_ortvalue_input(tensor.name, there.value)
        for tensor in graph.outputs:
            if tensor.role in STAGED:
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
                raise BackendError(f"{graph.name} failed in {self.name}: {error}") from error

        step.buffers = arrays, placed  # type: ignore[attr-defined]  # must outlive the binding
        return step

    def close(self) -> None:
        """Release sessions and buffers; idempotent."""
        self._sessions.clear()
        self._staged.clear()


def open_provider(
    name: str, manifest: Manifest, threads: int, engine: EngineOptions
) -> OnnxRuntimeGpuBackend:
    """Open a bundle on a GPU provider of the installed onnxruntime.

    Raises:
        BackendError: This build of onnxruntime has no such provider, or it does not open.
    """
    provider = PROVIDERS[name]
    if provider not in ort.get_available_providers():
        raise BackendError(
            f"onnxruntime {ort.__version__} has no {provider}; on a Jetson install NVIDIA's wheel "
            "for its JetPack, elsewhere `pip install onnxruntime-gpu` in place of onnxruntime."
        )
    # Products of float32 stay float32: TF32 would round them to 10 bits, which a state cannot bear.
    # The TensorRT provider has no option for it, only the variable of NVIDIA's libraries.
    os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
    providers = [(PROVIDERS["onnxruntime-cuda"], {"device_id": "0", "use_tf32": "0"})]
    if name == "onnxruntime-tensorrt":
        providers.insert(0, (provider, _tensorrt_options(engine, manifest.bundle_hash)))
    return OnnxRuntimeGpuBackend(name, manifest, threads, providers, "cuda")


def _tensorrt_options(engine: EngineOptions, bundle_hash: str) -> dict[str, str]:
    options = {"device_id": "0"}
    if engine.workspace_bytes is not None:
        options["trt_max_workspace_size"] = str(engine.workspace_bytes)
    if engine.optimization_level is not None:
        options["trt_builder_optimization_level"] = str(engine.optimization_level)
    folder = EngineCache(engine.cache).folder
    if folder is not None:
        # The provider tells engines apart by file and tensor names, not by weights or shapes.
        place = folder / "onnxruntime" / bundle_hash[:32]
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:  # a read-only disk: engines are built at every start
            return options
        options |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(place)}
        options["trt_timing_cache_enable"] = "1"
    return options
