"""Define the contract of a backend: it owns memory and runs graphs on it.

`Stream` knows the state's meaning: which buffer is current and when to swap. A backend does not
know it. It allocates memory of two kinds, so that the same stream drives a CPU and a GPU:

    host      arrays for the caller's points and for predictions
    device    state and cache, which stay where the graphs run

Nothing heavy is imported here: commands read `BackendInfo` before any library is loaded.
"""

from __future__ import annotations

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
    *("prediction", "slot", "finite"),
)
"""Roles of the tensors that the host writes or reads at every step."""

Trial = Literal["node", "driver", "compiler"]
"""The ways in which `edgefold doctor` tries a backend without a bundle; see `BackendInfo`."""
Wait = Literal["auto", "spin", "block"]
"""The ways in which a process may wait for the GPU; see `EngineOptions`."""
WAITS: tuple[Wait, ...] = get_args(Wait)
Watch = Callable[[str, str], None]
"""A function that is called with the work that begins; see `EngineOptions`."""


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """The facts of a backend that are known before it is opened.

    Attributes:
        place: Module in this folder and class, as "module:Class".
        device: The kind of processor that runs its graphs.
        provider: onnxruntime's execution provider; "" for a backend without onnxruntime.
        builds_engines: Engines are built from the graphs at the first open, which takes minutes.
        maps_weights: Weights are read in place, from the mapped library; none are copied.
        board_key: Field of a board's profile that says whether the backend runs there.
        trial: The test, without a bundle, that the backend can run: of a node on its provider, of
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
        """Whether opening it loads onnxruntime's library."""
        return bool(self.provider)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How TensorRT builds and runs engines; other backends ignore all but `cache` and `watch`.

    Attributes:
        cache: Folder of built engines and libraries; None is `CodeCache`'s default.
        workspace_bytes: The most scratch memory that a layer may ask for; None is 256 MiB where the
            GPU works in the processor's memory, else all of the GPU's memory.
        optimization_level: 0 (quick, small) to 5; None is TensorRT's 3. It changes the speed and
            never the results; TensorRT-RTX builds the same engine at every level.
        compute_capabilities: Kinds of GPU to build for, such as "8.6"; empty for this machine's.
        conditions: Returns the machine's present conditions, as JSON values: `power_mode` and
            clocks. They are stored with an engine and compared when it is loaded; None stores
            nothing.
        cuda_graphs: Launch each step as one captured CUDA graph.
        progress: Called with a line before each build, which may take minutes on a board.
        wait: The way in which the process waits for the GPU. "spin" answers soonest and holds a CPU
            core while it waits, "block" sleeps until the GPU interrupts, "auto" leaves the choice
            to CUDA. It holds for the process: all of its streams wait as the last stream that was
            opened with another word than "auto".
        high_priority: Run steps before other work that this process has on the GPU.
        watch: Called by every backend with the work that begins, "load", "open", "bind" or "run",
            and the name of a graph, or of the backend that is loaded. A parent process learns in
            this way where its child ended. None calls nothing.
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
    watch: Watch | None = None

    def __post_init__(self) -> None:
        workspace, level = self.workspace_bytes, self.optimization_level
        if workspace is not None and not 1 <= workspace < 2**63:
            raise BackendError(f"workspace is {workspace} bytes; give 1 to 2**63 - 1, or None.")
        if level is not None and level not in range(6):
            raise BackendError(f"optimization level is {level}; give 0 to 5, or None.")
        if self.wait not in WAITS:
            raise BackendError(f"wait is {self.wait!r}; give one of {', '.join(WAITS)}.")


@dataclass(frozen=True, slots=True)
class Contender:
    """A backend that is compared with others: its name in the registry, and its threads."""

    backend: str
    threads: int = 1

    @property
    def label(self) -> str:
        """The backend's name, and the number of threads if it is not 1."""
        return self.backend if self.threads == 1 else f"{self.backend}:{self.threads}"


class BoundStep(Protocol):
    """A graph bound to fixed buffers; calling it computes the outputs in place."""

    def __call__(self) -> None:
        """Run the graph once; when it returns, outputs for the host are on the host.

        Raises:
            BackendError: The graph failed; outputs are undefined, inputs untouched.
        """


class DeviceBuffer(Protocol):
    """One tensor's memory where the graphs run."""

    @property
    def nbytes(self) -> int:
        """Size of the buffer."""

    def read(self) -> Array:
        """Copy the tensor to the host; raises BackendError."""

    def write(self, values: Array) -> None:
        """Overwrite the tensor with an array that broadcasts to its shape; raises BackendError."""

    def write_row(self, row: Any, axis: int, slot: int, stream: int | None = None) -> None:
        """Overwrite one slot along an axis by a row; later steps and reads see it.

        Args:
            row: A buffer of the same backend and dtype, of this shape with size 1 along `axis`.
            axis: Number of the axis, from 0.
            slot: Index along the axis.
            stream: The only index along the first axis that is written; None for all.

        Raises:
            BackendError: The copy failed; the slot's content is undefined.
        """


def blocks_of(stream: int | None, n_streams: int, n_outer: int) -> range:
    """Return the blocks of one stream among the `n_outer` blocks before an axis, or all blocks."""
    if stream is None:
        return range(n_outer)
    each = n_outer // n_streams
    return range(stream * each, (stream + 1) * each)


class Backend(Protocol):
    """Opens a bundle's graphs, allocates memory, binds graphs to it."""

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> Backend:
        """Open every graph of a bundle; raises BackendError."""

    def report(self) -> dict[str, Any]:
        """Report what really runs: name, device, version and more."""

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        """Allocate zeroed host arrays of a graph's staged tensors, by tensor name; called once."""

    def allocate_device(self, tensor: StateTensor | Tensor) -> DeviceBuffer:
        """Allocate memory for a tensor of state, cache or row, with undefined content."""

    def bind(self, graph: Graph, placed: Mapping[str, Any]) -> BoundStep:
        """Return a callable that runs `graph` on device buffers, given by tensor name.

        Binding may run the graph once, so it happens before the state gets its first values.
        """

    def close(self) -> None:
        """Release everything; a second call does nothing.

        Raises:
            BackendError: Something could not be released; everything else was.
        """
