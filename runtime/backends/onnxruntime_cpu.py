"""Run graphs with ONNX Runtime on the CPU, with every tensor bound to a fixed host buffer.

Nothing is copied between steps and nothing is allocated after the first run of each graph: inputs
and outputs are bound by address, intermediates come from the session's arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefold.runtime.backends.base import BackendInfo, BoundStep, EngineOptions, Watch
from edgefold.runtime.backends.host_memory import HostMemory
from edgefold.runtime.backends.onnxruntime_session import (
    CPU,
    TAKES_BYTES,
    TAKES_FILES,
    Provider,
    onnxruntime,
    open_session,
    require_same_interface,
)
from edgefold.runtime.bundle.manifest import Graph, Manifest, Tensor
from edgefold.runtime.bundle.manifest_file import require_hashes
from edgefold.runtime.bundle.onnx_file import read_graph
from edgefold.runtime.errors import BackendError, BundleError
from edgefold.runtime.plain_files import open_plain


class OnnxRuntimeBackend(HostMemory):
    """Runs the graphs of a bundle in onnxruntime's sessions, on one or more CPU threads.

    Args:
        info: The backend's facts, for reports.
        manifest: The bundle's manifest.
        threads: Number of CPU threads for one step.
        providers: Names of onnxruntime's execution providers; see `open_session`.
        device: onnxruntime's name of the device that holds the providers' memory.
        watch: Function that is called when work begins; see `EngineOptions`.
    """

    def __init__(
        self,
        info: BackendInfo,
        manifest: Manifest,
        threads: int,
        providers: Sequence[Provider] = (CPU,),
        device: str = "cpu",
        watch: Watch | None = None,
    ):
        self._info, self._threads, self._providers = info, threads, providers
        self.device, self._manifest, self._watch = device, manifest, watch
        super().__init__(manifest)
        # onnxruntime's GPU providers find the weights only by the graph's own path.
        self._as_bytes = TAKES_BYTES and info.device == "cpu"
        files = _linked_weights(manifest) if self._as_bytes else {}
        self._sessions: dict[str, Any] = {
            graph.name: self._opened(graph, files)
            for graph in manifest.graphs.values()
            if not graph.opens_late
        }

    def _opened(self, graph: Graph, files: Mapping[str, bytes]) -> Any:
        """Open a graph's session; `files` are the contents of files of weights by name."""
        if self._watch:
            self._watch("open", graph.name)
        path, model = self._manifest.path / graph.file, read_graph(self._manifest, graph)
        on_cpu = self._info.device == "cpu"
        # A memory pattern saves 3 µs in the steps of one row; in wide steps the block that it keeps
        # is too large.
        session = open_session(
            model if self._as_bytes else path,
            path=path,
            files=files,
            threads=self._threads,
            providers=self._providers,
            mem_pattern=graph.width == 1 or not on_cpu,
            shared_arena=on_cpu,
        )
        require_same_interface(graph, session)
        return session

    def _session(self, graph: Graph) -> Any:
        """Return a graph's session; one that opens late is opened now.

        Raises:
            BundleError: Its files are no longer those that the manifest lists.
            BackendError: It does not open.
        """
        if graph.name not in self._sessions:
            require_hashes(self._manifest)  # the bundle may have been replaced since it was opened
            files = _linked_weights(self._manifest) if self._as_bytes else {}
            self._sessions[graph.name] = self._opened(graph, files)
        return self._sessions[graph.name]

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> OnnxRuntimeBackend:
        return cls(info, manifest, threads, watch=engine.watch)

    def report(self) -> dict[str, Any]:
        return {
            "name": self._info.name,
            "device": self.device,
            "version": onnxruntime.__version__,
            "provider": self._info.provider,
            "threads": self._threads,
        }

    def bind(self, graph: Graph, placed: Mapping[str, Any]) -> BoundStep:
        """Bind every input and output of a graph to the address of its buffer.

        Returns:
            A callable that runs the graph on these buffers.
        """
        session = self._session(graph)
        binding = session.io_binding()
        arrays = self.arrays_of(graph, placed)

        def place(tensor: Tensor) -> tuple[Any, ...]:
            array = arrays[tensor.name]
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
        self._sessions.clear()
        super().close()


def _linked_weights(manifest: Manifest) -> dict[str, bytes]:
    """Return the weight file's content by its name if it is a link, else nothing.

    onnxruntime 1.32 opens no link that leads out of the bundle's folder. Older ones do, and take no
    contents.
    """
    path = manifest.path / manifest.weights["file"]
    if not (TAKES_FILES and path.is_symlink()):
        return {}
    try:
        with open_plain(path) as file:
            return {path.name: file.read(manifest.weights["n_bytes"])}
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
