"""Find out which backends open on this machine; each is tried in a child process.

A vendor's library may end the process that loads it: onnxruntime 1.31 does so where /proc/cpuinfo
names no Arm core, as under an emulator. The child prints one line for each name that it tried. If
it dies, the first name without a line is the cause, and another child tries the names after it.

    parent ──start──> child   A opens   (B) dies
    parent ──start──> child                        C does not open, because ...

With a bundle, a backend opens it as a stream would and runs one of its steps, and the child tells
which graph it begins with, so that the parent can name the one that ended it; engines are built in
a temporary folder with the least effort, so that nothing is left behind. Without one it runs a
graph of a single node, or, for TensorRT, finds its library and a device.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgefold.devices.host import Host
from edgefold.devices.memory.registry import GPU_METERS
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.child_process import Ending
from edgefold.runtime.errors import BackendError, BundleError, EdgefoldError

IMPORT = "import onnxruntime"
TIMEOUT_S = 300.0  # for each name: TensorRT may build for minutes on a small board

CHILD = (
    "import sys; sys.path = [place for place in sys.path if place]; "
    "from edgefold.cli.doctor.backends import main; sys.exit(main(sys.argv[1:]))"
)
"""The current folder is removed from the path, because its json.py would be imported; from Python
3.11 on the option -P does the same."""

NEGATE = (
    b'\x08\x08:2\n\x0b\n\x01x\x12\x01y"\x03Neg\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04'
    b"\n\x02\x08\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)
"""An ONNX model, y = -x of one float32, because boards have no package that writes one."""


def probed_names() -> list[str]:
    """Return the names of what is tried: an import, backends, meters that make a CUDA context."""
    meters = [meter.name for meter in GPU_METERS if meter.makes_context]
    return [IMPORT, *BACKENDS, *meters]


def probe_backends(bundle: str | None, expect_hash: str | None = None) -> list[dict[str, Any]]:
    """Try everything of `probed_names`.

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
    """Run a child; returns its records, how it ended, and the signal that ended it."""
    command = [sys.executable, "-c", CHILD, bundle or "", expect_hash or "", *names]
    records: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
            )
            try:
                for record in _records(child):
                    records.append(record)
                code = child.wait()
            except subprocess.TimeoutExpired:
                return records, f"it did not answer in {TIMEOUT_S:.0f} s", None
            finally:
                child.kill()
                child.communicate()
            said.seek(0)
            ending = Ending(code, said.read())
            words = f"the process that tried it {ending.describe()}"
            return records, words, ending.signal or None
    except OSError as error:
        return records, f"the process to try it does not start ({error.strerror})", None


def _records(child: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield what a child prints until it ends its output, a record at a time.

    Raises:
        subprocess.TimeoutExpired: The next record took longer than the limit.
    """
    assert child.stdout is not None
    handle, begun, deadline_s = child.stdout.fileno(), b"", time.monotonic() + TIMEOUT_S
    while True:
        left_s = max(0.0, deadline_s - time.monotonic())
        if not select.select([handle], [], [], left_s)[0]:
            raise subprocess.TimeoutExpired(child.args, TIMEOUT_S)
        read = os.read(handle, 1 << 16)
        *lines, begun = (begun + read).split(b"\n")
        for line in lines:
            with suppress(ValueError):  # a library may print as well
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record
                    deadline_s = time.monotonic() + TIMEOUT_S
        if not read:
            return


# The child ----------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """Try what is named and print a line of JSON for each.

    Args:
        argv: The bundle or "", its hash or "", then names.
    """
    bundle, expect_hash, *names = argv
    if bundle:
        from edgefold.runtime.signature import load_expected

        try:
            load_expected(bundle, expect_hash or None)
        except BundleError as error:
            _tell({"bundle_error": str(error)})
            return 0
    for name in names:
        try:
            _tell({"name": name, "opens": True, **_try(name, bundle)})
        except Exception as error:  # whatever a foreign library raises is the answer
            _tell({"name": name, "opens": False, **_refusal(error)})
    return 0


def _tell(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


def _begin(doing: str, what: str) -> None:
    _tell({"doing": doing, "what": what})


def _refusal(error: Exception) -> dict[str, Any]:
    text = " ".join(str(error).split())
    if not isinstance(error, EdgefoldError):
        return {"reason": f"{type(error).__name__}: {text}"}
    return {"reason": text, **({"remedy": asdict(error.remedy)} if error.remedy else {})}


def _try(name: str, bundle: str) -> dict[str, Any]:
    for meter in GPU_METERS:
        if meter.name == name:
            return {"memory_bytes": meter.open(Host()).read_bytes()}
    if name == IMPORT:
        from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort

        return {"version": ort.__version__, "providers": ort.get_available_providers()}
    if bundle:
        return _open_bundle(name, bundle)
    return _find_tensorrt() if name == "tensorrt" else _run_node(name)


def _open_bundle(name: str, bundle: str) -> dict[str, Any]:
    """Open the bundle in a stream, and run a step."""
    from edgefold.runtime import Stream
    from edgefold.runtime.backends.base import EngineOptions

    with tempfile.TemporaryDirectory() as folder:
        engine = EngineOptions(cache=Path(folder), optimization_level=0, watch=_begin)
        with Stream.open(bundle, backend=name, engine=engine) as stream:
            stream.run_step(next(iter(stream.manifest.graphs)))
            report = stream.backend_report
    return {key: report[key] for key in ("version", "device") if key in report}


def _find_tensorrt() -> dict[str, Any]:
    from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver

    driver = CudaDriver.open()
    device = driver.device()
    driver.close()
    return {"version": f"{driver.variant} {driver.version}", "device": device.name}


def _run_node(name: str) -> dict[str, Any]:
    """Run one node on onnxruntime's provider of that name, and on nothing else."""
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
