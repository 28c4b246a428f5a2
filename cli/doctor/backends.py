"""Find out which backends open on this machine; each is tried in a child process.

A vendor's library may end the process that loads it: onnxruntime 1.31 does so where /proc/cpuinfo
names no Arm core, as under an emulator. The child writes one line for each name that it tried. If
it dies, the first name without a line is the cause, and another child tries the names after it.

    parent ──start──> child   A opens   (B) dies
    parent ──start──> child                        C does not open, because ...

With a bundle, a backend opens it as a stream would and runs one of its steps, and the child says
which graph it begins with, so that the parent can name the one that ended it; engines are built in
a temporary folder with the least effort, so that nothing is left behind. Without one it runs a
graph of a single node; for TensorRT it finds its library and a device, for native it compiles a
function of one line.
"""

from __future__ import annotations

import json
import os
import select
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgefold.devices.host import Host
from edgefold.devices.memory.registry import GPU_METERS
from edgefold.runtime.backends.base import Trial
from edgefold.runtime.backends.registry import BACKENDS, info_of
from edgefold.runtime.child_process import child_process, die_first
from edgefold.runtime.errors import BackendError, BundleError, EdgefoldError

if TYPE_CHECKING:
    from edgefold.runtime.backends.native.processor import Processor

IMPORT = "import onnxruntime"
TIMEOUT_S = 300.0  # for each name: TensorRT may build for minutes on a small board

NEGATE = (
    b'\x08\x08:2\n\x0b\n\x01x\x12\x01y"\x03Neg\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04'
    b"\n\x02\x08\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)
"""Bytes of an ONNX model, y = -x of one float32; boards have no package that writes a model."""
NEGATE_C = "int negate(int x);\nint negate(int x) { return -x; }\n"


def probed_names() -> list[str]:
    """Return the names to try: "import onnxruntime", backends, meters that make a CUDA context."""
    meters = [meter.name for meter in GPU_METERS if meter.makes_context]
    return [IMPORT, *BACKENDS, *meters]


def probe_backends(bundle: str | None, expect_hash: str | None = None) -> list[dict[str, Any]]:
    """Try each of `probed_names` in a child process, and return a record of each.

    Returns:
        One record each, in the same order: name, opens, and either what opened (version, device
        and more) or reason and remedy. A backend whose process ended has `crashed`, and
        `crashed_in` if that was in a graph: doing, graph, and signal (None: it took too long).

    Raises:
        BundleError: The bundle itself is missing, damaged or changed, or not the expected one.
    """
    left = probed_names()
    records: list[dict[str, Any]] = []
    while left:
        done, end, signal = _child(bundle, expect_hash, left)
        for record in done:
            if "bundle_error" in record:
                raise BundleError(record["bundle_error"])
        finished = [record for record in done if "opens" in record]
        records += finished
        left = left[len(finished) :]
        if left:
            crashed = {"name": left[0], "opens": False, "reason": end, "crashed": True}
            last = done[-1] if done else {}
            if last.get("doing", "load") != "load":
                place = {"doing": last["doing"], "graph": last["what"]}
                crashed["crashed_in"] = {**place, "signal": signal}
            records.append(crashed)
            left = left[1:]
    return records


def _child(
    bundle: str | None, expect_hash: str | None, names: Sequence[str]
) -> tuple[list[dict[str, Any]], str, str | None]:
    """Run a child that tries `names`; return its records, how it ended, and the ending signal."""
    request = {"bundle": bundle, "expect_hash": expect_hash, "names": list(names)}
    records: list[dict[str, Any]] = []
    try:
        with child_process(__name__, request) as child:
            try:
                for record in _records(child.answer):
                    records.append(record)
            except TimeoutError:
                return records, f"it did not answer in {TIMEOUT_S:.0f} s", None
            ending = child.wait()
    except OSError as error:
        return records, f"the process to try it does not start ({error.strerror})", None
    words = f"the process that tried it {ending.describe()}"
    return records, words, ending.signal or None


def _records(answer: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the records that a child writes, until the child ends.

    Raises:
        TimeoutError: The next record took longer than `TIMEOUT_S`.
    """
    begun, deadline_s = b"", time.monotonic() + TIMEOUT_S
    while True:
        left_s = max(0.0, deadline_s - time.monotonic())
        if not select.select([answer], [], [], left_s)[0]:
            raise TimeoutError
        read = os.read(answer.fileno(), 1 << 16)
        *lines, begun = (begun + read).split(b"\n")
        for line in lines:
            yield json.loads(line)
            deadline_s = time.monotonic() + TIMEOUT_S
        if not read:
            return


# The child ----------------------------------------------------------------------------------------


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Try each name of a request in this child, and write a line of JSON on each.

    Args:
        request: `names` to try; `bundle`, a folder or None; `expect_hash`, its SHA-256 or None.
        answer: Pipe to the parent, which receives the lines.
    """
    die_first()

    def report(record: dict[str, Any]) -> None:
        answer.write(json.dumps(record).encode() + b"\n")
        answer.flush()  # the next library may end this process

    bundle, expect_hash = request["bundle"], request["expect_hash"]
    if bundle:
        from edgefold.runtime.bundle.signature import load_expected

        try:
            load_expected(bundle, expect_hash)
        except BundleError as error:
            return report({"bundle_error": str(error)})

    def begin(doing: str, what: str) -> None:
        report({"doing": doing, "what": what})

    for name in request["names"]:
        try:
            report({"name": name, "opens": True, **_try(name, bundle, expect_hash, begin)})
        except Exception as error:  # whatever a foreign library raises is the answer
            report({"name": name, "opens": False, **_refusal(error)})


def _refusal(error: Exception) -> dict[str, Any]:
    text = " ".join(str(error).split())
    if not isinstance(error, EdgefoldError):
        return {"reason": f"{type(error).__name__}: {text}"}
    return {"reason": text, **({"remedy": asdict(error.remedy)} if error.remedy else {})}


def _try(
    name: str, bundle: str | None, expect_hash: str | None, begin: Callable[[str, str], None]
) -> dict[str, Any]:
    for meter in GPU_METERS:
        if meter.name == name:
            return {"memory_bytes": meter.open(Host()).read_bytes()}
    if name == IMPORT:
        from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort

        return {"version": ort.__version__, "providers": ort.get_available_providers()}
    if bundle:
        return _open_bundle(name, bundle, expect_hash, begin)
    return TRIALS[info_of(name).trial](name)


def _open_bundle(
    name: str, bundle: str, expect_hash: str | None, begin: Callable[[str, str], None]
) -> dict[str, Any]:
    """Open the bundle on a backend, run a step, and return the backend's version and device.

    Args:
        name: Name of the backend.
        bundle: Folder of the bundle.
        expect_hash: SHA-256 that the bundle must have; None accepts any.
        begin: Called with each action that begins ("open", "bind" or "run") and its graph.
    """
    from edgefold.runtime import Stream
    from edgefold.runtime.backends.base import EngineOptions

    with ExitStack() as stack:
        cache = None
        if info_of(name).builds_engines:  # the others need no place to write
            cache = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = EngineOptions(cache=cache, optimization_level=0, watch=begin)
        opened = Stream.open(bundle, backend=name, engine=engine, expect_hash=expect_hash)
        with opened as stream:
            stream.run_step(next(iter(stream.manifest.graphs)))
            report = stream.backend_report
    return {key: report[key] for key in ("version", "device") if key in report}


def _find_tensorrt(name: str) -> dict[str, Any]:
    from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver

    driver = CudaDriver.open()
    device = driver.device()
    driver.close()
    return {"version": f"{driver.variant} {driver.version}", "device": device.name}


def _compile(name: str) -> dict[str, Any]:
    """Compile, load and call a C function; return version (the compiler), device and detail.

    The detail is the number of kept libraries and the processors of the wheel's; one of them is
    enough where there is no compiler.
    """
    from ctypes import CDLL

    from edgefold.runtime.backends.native.library_store import LibraryStore
    from edgefold.runtime.backends.native.processor import read_processor

    processor = read_processor()
    n_kept = sum(not library.reason for library in LibraryStore().libraries(processor))
    levels = _levels_of_wheel(processor)
    facts = {
        "device": "cpu",
        "detail": f"{n_kept} built libraries for this processor"
        + (f"; the wheel's: {', '.join(levels)}" if levels else ""),
    }
    try:  # the Debian package has no edgefold.export
        from edgefold.export.native.toolchain.compilers import compile_library, find_compiler

        compiler = find_compiler()
    except (BackendError, ModuleNotFoundError):
        if n_kept or levels:
            return {"version": "no compiler", **facts}
        raise
    with tempfile.TemporaryDirectory() as folder:
        library = CDLL(str(compile_library({"negate.c": NEGATE_C}, compiler, Path(folder))))
        if library.negate(2) != -2:
            raise BackendError(f"{compiler.title} compiles -(2) as {library.negate(2)}")
    return {"version": compiler.title, **facts}


def _levels_of_wheel(processor: Processor) -> list[str]:
    """Return the levels of the wheel's libraries that this machine opens, each once."""
    from edgefold.runtime.backends.native.wheel_libraries import choose_library, libraries_of_wheel
    from edgefold.runtime.bundle.manifest_file import load_manifest
    from edgefold.runtime.sensors.shipped_bundle import SHIPPED, shipped_bundle

    levels = []
    with suppress(EdgefoldError):  # a bundle or an index that is damaged has its own message
        libraries = libraries_of_wheel()
        for name in SHIPPED if libraries else ():
            library = choose_library(load_manifest(shipped_bundle(name)), processor, libraries)
            levels += [f"{name} {library.level}"] if library else []
    return levels


def _run_node(name: str) -> dict[str, Any]:
    """Run a graph of one node on the onnxruntime provider of the backend `name`.

    Returns a dict with the version of onnxruntime and the backend's device.
    """
    import numpy as np

    from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
    from edgefold.runtime.backends.onnxruntime_session import open_session, require_provider

    info = BACKENDS[name]
    if not info.provider:
        raise BackendError(f"{name} is tried with a bundle: edgefold doctor BUNDLE")
    require_provider(info.provider)
    session = open_session(NEGATE, providers=(info.provider,))
    (y,) = session.run(None, {"x": np.array([2.0], "float32")})
    if y[0] != -2.0:
        raise BackendError(f"{info.provider} computes -(2) as {y[0]}")
    return {"version": ort.__version__, "device": info.device}


TRIALS: dict[Trial, Callable[[str], dict[str, Any]]] = {
    "node": _run_node,
    "driver": _find_tensorrt,
    "compiler": _compile,
}
"""Functions that try a backend without a bundle; each takes the backend's name."""
