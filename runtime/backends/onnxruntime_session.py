"""Open onnxruntime's sessions without its telemetry; all other files import onnxruntime from here.

From 1.29 on, onnxruntime's packages report usage: an extra thread, a database under the user's
cache folder, and an upload some seconds after the start. A device must not send usage data, and the
thread's 0.7 MB would appear in the middle of a stream. Only the environment variable below, set
before the first import, turns it off; a value that the user set stays.

Where onnxruntime is missing or does not load, the import of this module raises BackendError.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from edgefold.runtime.backends.missing_onnxruntime import (
    not_installed,
    not_loaded,
    read_system,
)
from edgefold.runtime.backends.needed_memory import settled_bytes
from edgefold.runtime.bundle.graph_interface import require_same_tensors
from edgefold.runtime.bundle.manifest import DTYPES, Graph
from edgefold.runtime.errors import BackendError

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_imported_by_others = "onnxruntime" in sys.modules
_before_import = settled_bytes()

try:
    import onnxruntime
except ModuleNotFoundError as error:
    if error.name != "onnxruntime":
        raise not_loaded(error) from error
    raise not_installed(read_system()) from error
except ImportError as error:
    raise not_loaded(error) from error

import_bytes = None if _imported_by_others else settled_bytes() - _before_import
"""Counts the bytes of memory that the import of onnxruntime took in this process.

None means that onnxruntime had been imported before this module.
"""

__all__ = [
    "first_session_bytes",
    "import_bytes",
    "onnxruntime",
    "open_session",
    "require_provider",
    "require_same_interface",
    "share_arena",
]

CPU = "CPUExecutionProvider"
Provider = str | tuple[str, dict[str, str]]
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
LEAST_STACK_BYTES = 256 * 1024
"""A process needs a stack of at least this size, in bytes, to open a graph.

onnxruntime 1.31 crashes with a stack of 64 KiB, and opens a small graph with one of 128 KiB.
"""
TAKES_BYTES = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 21)
"""States whether this onnxruntime finds the weights of a graph that it gets as bytes."""
TAKES_FILES = hasattr(onnxruntime.SessionOptions, "add_external_initializers_from_files_in_memory")
"""States whether this onnxruntime takes the contents of files of weights."""
_first_session: list[int] = []  # bytes of the first session, once there was one
_NUMPY_NAME = {f"tensor({name})": name for name in DTYPES} | {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}


def first_session_bytes() -> int | None:
    """Return how many bytes this process's first session and its graph took.

    The result is None before a session was opened.
    """
    return _first_session[0] if _first_session else None


@cache
def share_arena() -> None:
    """Make one arena, a block of work memory, for all sessions of the process that ask for it.

    A second call does nothing. A bundle's graphs run one after the other, so they can work in the
    same memory; with one arena per session, each would keep its own peak (5 MB of 80 at the paper's
    size).
    """
    cpu = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(cpu, onnxruntime.OrtArenaCfg({}))


def open_session(
    model: Path | bytes,
    *,
    threads: int = 1,
    providers: Sequence[Provider] = (CPU,),
    mem_pattern: bool = True,
    shared_arena: bool = False,
    path: Path | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Any:
    """Open an onnxruntime session of a model; fail if the first of `providers` does not load.

    Args:
        model: The graph's file, or its bytes.
        threads: Number of CPU threads of one node.
        providers: onnxruntime's execution providers, each as a name or as (name, options). The
            first must run nodes; the others run the nodes that it leaves. Nodes may run on the CPU
            only if the first is the CPU's.
        mem_pattern: Whether all intermediate results lie in one block: this is faster, but the
            block stays allocated.
        shared_arena: Whether the session works in the memory that `share_arena` makes.
        path: The file that the bytes were read from; the weights are in the same folder.
        files: Contents of files of weights by name, which onnxruntime does not open then.

    Returns:
        The `InferenceSession`.

    Raises:
        BackendError: onnxruntime refused the model or could not load the provider.
    """
    _require_stack()
    before = None if _first_session else settled_bytes()
    path = model if isinstance(model, Path) else path
    name = "a model" if path is None else str(path)
    asked = providers[0] if isinstance(providers[0], str) else providers[0][0]
    version = f"onnxruntime {onnxruntime.__version__}"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if files:
        names, contents = list(files), list(files.values())
        lengths = [len(content) for content in contents]
        options.add_external_initializers_from_files_in_memory(names, contents, lengths)
    options.enable_mem_pattern = mem_pattern
    # A spinning pool burns a core between two points of a slow stream.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if shared_arena:
        share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
    if asked != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        with _in_utf8(path.parent if path else Path()) as folder:
            source: str | bytes = model if isinstance(model, bytes) else f"{folder}/{model.name}"
            if isinstance(model, bytes) and path:
                options.add_session_config_entry(WEIGHTS_FOLDER, folder)
            # Its own fallback prints to stdout and hides why the provider did not load.
            session = onnxruntime.InferenceSession(
                source, options, providers=list(providers), enable_fallback=0
            )
        session._model_bytes = None  # onnxruntime keeps them only for its fallback
    except Exception as error:  # onnxruntime raises many kinds, none documented
        raise BackendError(f"{version} refused {name}: {error}") from error
    if before is not None:
        _first_session.append(settled_bytes() - before)
    first = session.get_providers()[0]
    if first != asked:
        raise BackendError(
            f"{version} opened {name} on {first} instead of {asked}: the provider's own libraries "
            "(CUDA, cuDNN, TensorRT) are missing, or of another version than this build was made "
            "for."
        )
    return session


def _require_stack() -> None:
    """Refuse a stack so small that onnxruntime would crash the process; raises BackendError."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_STACK_BYTES:
        raise BackendError(
            f"the stack is limited to {limit // 1024} KiB, on which onnxruntime would crash; set "
            f"at least `ulimit -s {LEAST_STACK_BYTES // 1024}`."
        )


@contextmanager
def _in_utf8(folder: Path) -> Iterator[str]:
    """Yield a path of the folder that is valid UTF-8, because onnxruntime takes no other paths.

    The path holds only until the end of the `with` block.
    """
    try:
        yield os.fsencode(folder).decode()
        return
    except UnicodeDecodeError:
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


def require_provider(name: str) -> None:
    """Raise BackendError if the installed onnxruntime does not have an execution provider."""
    if name not in onnxruntime.get_available_providers():
        raise BackendError(
            f"onnxruntime {onnxruntime.__version__} has no {name}; on a Jetson install "
            "NVIDIA's wheel for its JetPack, elsewhere `pip install onnxruntime-gpu` in place of "
            "onnxruntime."
        )


def require_same_interface(graph: Graph, session: Any) -> None:
    """Raise BundleError if a session's inputs and outputs are not those of the manifest.

    Args:
        graph: The graph as the manifest describes it.
        session: The `InferenceSession` of the graph's file.
    """
    inputs, outputs = (
        [(t.name, t.shape, _NUMPY_NAME.get(t.type, t.type)) for t in tensors]
        for tensors in (session.get_inputs(), session.get_outputs())
    )
    require_same_tensors(graph, inputs, outputs)
