"""Define the contract of a backend: an object that owns memory and runs a bundle's graphs on it.

Only `Stream` knows what the state means: which buffer is current and when two buffers are swapped.
A backend allocates memory of two kinds, so that the same stream works with a CPU and with a GPU:

    host      arrays for the caller's points and for predictions ("staged" tensors)
    device    state and cache, which stay where the graphs run

Nothing heavy is imported here: commands read `BackendInfo` before any library is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from edgefold.runtime.errors import BackendError

if TYPE_CHECKING:
    from edgefold.runtime.arrays import Array
    from edgefold.runtime.bundle.manifest import Graph, Manifest, StateTensor, Tensor

STAGED = (
    *("points.x", "points.y", "points.mask", "targets.x", "targets.mask"),
    *("other", "prediction", "slot", "finite"),
)
"""Lists the roles of staged tensors: the host writes or reads these at every step."""

Trial = Literal["node", "driver", "compiler"]
"""`edgefold doctor` tries a backend without a bundle in one of these ways; see `BackendInfo`."""
Wait = Literal["auto", "spin", "block"]
"""A process waits for the GPU in one of these ways; see `EngineOptions`."""
WAITS: tuple[Wait, ...] = get_args(Wait)
Watch = Callable[[str, str], None]
"""Type of a function that is called whenever a piece of work begins; see `EngineOptions.watch`."""


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """Holds the facts of a backend that are known before it is opened.

    Attributes:
        name: The name by which users choose the backend.
        place: Module in this folder, and the backend's class in it, as "module:Class".
        device: The kind of processor that runs the graphs.
        provider: Name of onnxruntime's execution provider; "" for a backend without onnxruntime.
        builds_engines: Whether the first open builds engines from the graphs, which takes minutes.
        maps_weights: Whether weights are read in place from the mapped library and never copied.
        board_key: Field of a board's profile that says whether the backend runs on the board.
        trial: The test that `edgefold doctor` runs without a bundle: of a node on the provider, of
            TensorRT's driver, or of a compiler.
    """

    name: str
    place: str
    device: Literal["cpu", "gpu"]
    provider: str = ""
    builds_engines: bool = False
    maps_weights: bool = False
    board_key: str = "onnxruntime"
    trial: Trial = "node"

    @property
    def needs_onnxruntime(self) -> bool:
        """Return whether opening the backend loads onnxruntime's library."""
        return bool(self.provider)

    @property
    def runs_c(self) -> bool:
        """Return whether the backend runs what `edgefold build` made of the bundle."""
        return self.trial == "compiler"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Sets how TensorRT builds and runs engines.

    An engine is TensorRT's compiled form of a graph. Other backends use only `cache` and `watch`.

    Attributes:
        cache: Folder of built engines and libraries; None chooses `CodeCache`'s default folder.
        workspace_bytes: The most scratch memory, in bytes, that a layer may ask for; None allows
            256 MiB where the GPU works in the processor's memory, else all of the GPU's memory.
        optimization_level: Effort of the build, from 0 (quick, small) to 5; None chooses TensorRT's
            3. It changes the speed, never the results; TensorRT-RTX builds the same at every level.
        compute_capabilities: Kinds of GPU to build for, such as "8.6"; empty for this machine's.
        conditions: Function that returns the machine's present conditions as JSON values:
            `power_mode` and clocks. They are stored with an engine and compared when it is loaded;
            None stores nothing.
        cuda_graphs: Whether to launch each step as one captured CUDA graph.
        progress: Function that gets a line of text before each build, and one each minute of it.
        wait: The way in which the process waits for the GPU. "spin" answers soonest and holds a CPU
            core while it waits, "block" sleeps until the GPU interrupts, "auto" leaves the choice
            to CUDA. It holds for the process: all of its streams wait as the last stream that was
            opened with another word than "auto".
        high_priority: Whether steps run before other work that this process has on the GPU.
        build_timeout_s: The most seconds that the build of one graph's engine may take, above 0.
        may_build: Whether engines that are not in the cache are built; False refuses to open.
        watch: Function that every backend calls when work begins, with "load", "open", "bind" or
            "run" and the name of a graph, or of the backend that is loaded. A parent process learns
            in this way where its child ended. None calls nothing.
    """

    cache: Path | None = None
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    compute_capabilities: tuple[str, ...] = ()
    conditions: Callable[[], dict[str, Any]] | None = None
    cuda_graphs: bool = True
    progress: Callable[[str], None] | None = None
    wait: Wait = "auto"
    high_priority: bool = False
    build_timeout_s: float = 1800.0
    may_build: bool = True
    watch: Watch | None = None

    def __post_init__(self) -> None:
        workspace, level = self.workspace_bytes, self.optimization_level
        if workspace is not None and not 1 <= workspace < 2**63:
            raise BackendError(f"workspace is {workspace} bytes; give 1 to 2**63 - 1, or None.")
        if level is not None and level not in range(6):
            raise BackendError(f"optimization level is {level}; give 0 to 5, or None.")
        if not 0 < self.build_timeout_s < math.inf:
            raise BackendError(
                f"the builds' timeout is {self.build_timeout_s} s; give a finite number above 0."
            )
        if self.wait not in WAITS:
            raise BackendError(f"wait is {self.wait!r}; give one of {', '.join(WAITS)}.")


@dataclass(frozen=True, slots=True)
class Contender:
    """Names a backend that is compared with others.

    Attributes:
        backend: The backend's name in the registry, or "auto".
        threads: Number of CPU threads on which it runs.
    """

    backend: str
    threads: int = 1

    @property
    def label(self) -> str:
        """Return the backend's name, followed by ":" and the number of threads if it is not 1."""
        return self.backend if self.threads == 1 else f"{self.backend}:{self.threads}"


class BoundStep(Protocol):
    """A graph that is bound to fixed buffers: calling it reads and writes these buffers."""

    def __call__(self) -> None:
        """Run the graph once, and return when its outputs for the host are in host memory.

        Raises:
            BackendError: The graph failed; its outputs are undefined, its inputs as before.
        """


class DeviceBuffer(Protocol):
    """Holds one tensor in the memory where the graphs run: the GPU's, or the host's for a CPU."""

    @property
    def nbytes(self) -> int:
        """Return the buffer's size in bytes."""

    def read(self) -> Array:
        """Return a copy of the tensor as a numpy array on the host; raises BackendError."""

    def write(self, values: Array) -> None:
        """Overwrite the tensor with an array that broadcasts to its shape; raises BackendError."""

    def write_row(self, row: Any, axis: int, slot: int, stream: int | None = None) -> None:
        """Copy a row over the elements at index `slot` of an axis; later steps and reads see it.

        Args:
            row: A buffer of the same backend, dtype and shape, but of size 1 along `axis`.
            axis: Number of the axis, counted from 0.
            slot: The index along the axis that is overwritten.
            stream: Index along the first axis, to write for this stream only; None writes for all.

        Raises:
            BackendError: The copy failed; the overwritten elements are undefined.
        """


def blocks_of(stream: int | None, n_streams: int, n_outer: int) -> range:
    """Return the numbers of the memory blocks that `DeviceBuffer.write_row` writes.

    A tensor consists of `n_outer` equal blocks, one for each index before the row's axis; those of
    one stream lie next to each other.

    Args:
        stream: Index of the stream; None for all streams.
        n_streams: Number of streams, the length of the first axis.
        n_outer: Product of the lengths of all axes before the row's axis.
    """
    if stream is None:
        return range(n_outer)
    each = n_outer // n_streams
    return range(stream * each, (stream + 1) * each)


class Backend(Protocol):
    """Opens a bundle's graphs, allocates their memory, and binds each graph to its memory."""

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> Backend:
        """Open every graph of a bundle.

        Args:
            info: The backend's facts.
            manifest: The bundle's manifest.
            threads: Number of CPU threads for one step.
            engine: Settings of engines, and the folder of built code.

        Raises:
            BackendError: A graph does not open on this backend.
        """

    def report(self) -> dict[str, Any]:
        """Report what really runs, as JSON values: name, device, version and more."""

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        """Allocate host arrays, filled with 0, for a graph's staged tensors; called once a graph.

        Staged are the tensors that the host writes or reads at every step; see `STAGED`.

        Returns:
            The arrays by the tensors' names.
        """

    def allocate_device(self, tensor: StateTensor | Tensor) -> DeviceBuffer:
        """Allocate a buffer, of undefined content, for a tensor of state, cache or a new row."""

    def bind(self, graph: Graph, placed: Mapping[str, Any]) -> BoundStep:
        """Return a callable that runs a graph on the given device buffers.

        Binding may run graphs, so it happens before the state gets its first values. A graph that
        `opens_late` is opened by its first binding, and bound while the state has values: a binding
        then runs no other graph, and on no other buffers than these.

        Args:
            graph: The graph.
            placed: The device buffers by the names of the graph's tensors.
        """

    def close(self) -> None:
        """Release all memory and libraries; a second call does nothing.

        Raises:
            BackendError: Something could not be released; everything else was released.
        """
