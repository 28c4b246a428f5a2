"""ONNX Runtime on the CPU, with every tensor bound to a fixed host buffer.

Nothing is copied between steps and nothing is allocated after the first run of each graph: inputs
and outputs are bound by address, intermediates come from the session's arena.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.backends.base import STAGED, BoundStep
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.errors import BackendError
from edgefold.runtime.manifest import DTYPES, Graph, Manifest, StateTensor, Tensor


@cache
def _share_arena() -> None:
    """One arena for all sessions of the process, once.

    A bundle's graphs run one after the other, so they can work in the same memory; with an arena a
    session, each would keep its own peak (5 MB of 80 at the paper's size).
    """
    cpu = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    ort.create_and_register_allocator(cpu, ort.OrtArenaCfg({}))


def has_opened() -> bool:
    """Whether this process has had a session: what the first one loads stays."""
    return _share_arena.cache_info().currsize > 0


class HostTensor:
    """A tensor in the process's own memory: the graphs run where the caller is."""

    __slots__ = ("array",)

    def __init__(self, tensor: StateTensor):
        self.array = aligned_full(tensor.shape, tensor.dtype, 0)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.array.nbytes

    def read(self) -> Array:
        """A copy."""
        return self.array.copy()

    def write(self, values: Array) -> None:
        """Overwrite it."""
        np.copyto(self.array, values)


class OnnxRuntimeBackend:
    """Sessions of all graphs of a bundle, on one or more CPU threads."""

    name = "onnxruntime"

    def __init__(self, manifest: Manifest, threads: int):
        self._threads = threads
        self._staged: dict[str, dict[str, Array]] = {}
        _share_arena()
        self._sessions: dict[str, ort.InferenceSession] = {}
        for graph in manifest.graphs.values():
            path = manifest.path / graph.file
            try:
                session = ort.InferenceSession(
                    str(path), self._options(graph), providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # onnxruntime raises many kinds, none documented
                raise BackendError(
                    f"onnxruntime {ort.__version__} refused {path}: {error}"
                ) from error
            compare_tensors(graph, session)
            self._sessions[graph.name] = session

    def _options(self, graph: Graph) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        options.add_session_config_entry("session.use_env_allocators", "1")
        # A pattern takes all intermediates of a graph as one block: 3 µs off the steps that run at
        # every arrival, but it keeps the block, which is too much for the wide ones.
        options.enable_mem_pattern = graph.width == 1
        # A spinning pool burns a core between two points of a slow stream.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options

    def report(self) -> dict[str, Any]:
        """What really runs."""
        return {
            "name": self.name,
            "device": "cpu",
            "version": ort.__version__,
            "threads": self._threads,
        }

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        """Aligned arrays, which the graph reads and writes directly."""
        self._staged[graph.name] = {
            t.name: aligned_full(t.shape, t.dtype, 0)
            for t in (*graph.inputs, *graph.outputs)
            if t.role in STAGED
        }
        return self._staged[graph.name]

    def allocate_device(self, tensor: StateTensor) -> HostTensor:
        """Memory for a state or memory tensor."""
        return HostTensor(tensor)

    def bind(self, graph: Graph, placed: Mapping[str, HostTensor]) -> BoundStep:
        """Bind every input and output of a graph to its buffer, by address."""
        session = self._sessions[graph.name]
        binding = session.io_binding()
        arrays = self._staged[graph.name] | {name: host.array for name, host in placed.items()}

        def place(tensor: Tensor) -> tuple[Any, ...]:
            array = arrays[tensor.name]
            assert array.shape == tensor.shape and array.dtype == tensor.dtype
            assert array.flags.c_contiguous
            return tensor.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data

        for tensor in graph.inputs:
            binding.bind_input(*place(tensor))
        for tensor in graph.outputs:
            binding.bind_output(*place(tensor))
        run = session._sess.run_with_iobinding  # the public wrapper only adds a try and a retry
        low_level = binding._iobinding

        def step() -> None:
            try:
                run(low_level, None)
            except Exception as error:
                raise BackendError(f"{graph.name} failed in onnxruntime: {error}") from error

        step.buffers = arrays  # type: ignore[attr-defined]  # the binding knows addresses only
        return step

    def close(self) -> None:
        """Release sessions and buffers; idempotent."""
        self._sessions.clear()
        self._staged.clear()


def compare_tensors(graph: Graph, session: ort.InferenceSession) -> None:
    """Refuse a graph whose tensors are not those of the manifest."""
    for kind, expected, found in (
        ("input", graph.inputs, session.get_inputs()),
        ("output", graph.outputs, session.get_outputs()),
    ):
        listed = {t.name: (list(t.shape), f"tensor({_ONNX_NAME[t.dtype]})") for t in expected}
        real = {t.name: (list(t.shape), t.type) for t in found}
        if listed != real:
            raise BackendError(
                f"graph {graph.name} has other {kind}s than its manifest: found {real}, "
                f"listed {listed}; export the bundle again."
            )


_ONNX_NAME = {name: name for name in DTYPES} | {"float32": "float", "float64": "double"}
