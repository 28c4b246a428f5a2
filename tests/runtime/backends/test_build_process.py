"""Builds in a child process. A stand-in for TensorRT's module lies in a folder of `sys.path`, so
that the child really imports it, prints, fails, dies and is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.runtime import child_process
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt import build_process
from edgefold.runtime.backends.tensorrt.build_process import build_in_child
from edgefold.runtime.errors import BackendError

MODULE = """
import enum, json, os, pathlib, signal, sys, time
from types import SimpleNamespace

__version__ = "10.3.0"

class ILogger:
    class Severity(enum.IntEnum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2

NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
BuilderFlag = SimpleNamespace(TF32="TF32")
MemoryPoolType = SimpleNamespace(WORKSPACE="WORKSPACE")
ProfilingVerbosity = SimpleNamespace(DETAILED=1)
LayerType = SimpleNamespace(MATRIX_MULTIPLY=1, DEQUANTIZE=2)
LayerInformationFormat = SimpleNamespace(JSON=1)
float16 = "half"

class Config:
    def clear_flag(self, flag): pass
    def set_memory_pool_limit(self, pool, n_bytes): self.limit = n_bytes
    def create_timing_cache(self, content): return SimpleNamespace(serialize=lambda: content + b"+")
    def set_timing_cache(self, timing, ignore_mismatch): return True

def Builder(logger):
    def build(network, config):
        told = {
            "environment": os.environ.get("LD_LIBRARY_PATH"),
            "limit": getattr(config, "limit", None),
            "level": getattr(config, "builder_optimization_level", None),
            "pid": os.getpid(),
            "session": os.getsid(0),
        }
        WHAT
        return json.dumps(told).encode() + bytes(300_000)
    return SimpleNamespace(
        create_network=lambda flags: SimpleNamespace(num_layers=0),
        create_builder_config=Config,
        build_serialized_network=build,
    )

def OnnxParser(network, logger):
    def parse(path):
        if pathlib.Path(path).name == "strange.onnx":
            logger.log(ILogger.Severity.ERROR, "no such operator")
            return False
        return True
    error = SimpleNamespace(
        node=lambda: -1, desc=lambda: "no such operator", code=lambda: SimpleNamespace(name="BAD")
    )
    return SimpleNamespace(parse_from_file=parse, num_errors=1, get_error=lambda index: error)

def Runtime(logger):
    inspector = SimpleNamespace(get_engine_information=lambda how: '{"Layers": ["one", "two"]}')
    engine = SimpleNamespace(create_engine_inspector=lambda: inspector)
    return SimpleNamespace(deserialize_cuda_engine=lambda plan: engine)
"""
Install = Callable[[str], None]
ONNX = Path("update.onnx")


@pytest.fixture
def tensorrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a TensorRT on the path, whose builder does what is given."""

    def install(what: str = "pass") -> None:
        (tmp_path / "tensorrt.py").write_text(MODULE.replace("WHAT", what))

    monkeypatch.syspath_prepend(str(tmp_path))
    return install


def told(plan: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan.rstrip(b"\0"))
    return found


def test_a_child_builds_with_the_options_and_the_environment_of_its_parent(
    tensorrt: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorrt("pass")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/some/lib")
    options = EngineOptions(workspace_bytes=1 << 20, optimization_level=2)
    build = build_in_child("tensorrt", ONNX, options, b"earlier\n" * 20_000)
    found = told(build.plan)
    assert (found["environment"], found["limit"], found["level"]) == ("/opt/some/lib", 1 << 20, 2)
    assert found["pid"] != os.getpid() and found["session"] == found["pid"]
    assert build.timing == b"earlier\n" * 20_000 + b"+"
    assert [kernel["name"] for kernel in build.facts["kernels"]] == ["one", "two"]
    assert build.facts["peak_bytes"] > 1 << 20  # Python alone takes more
    assert "tensorrt" not in sys.modules


def test_what_libraries_print_is_not_taken_for_the_answer(tensorrt: Install) -> None:
    tensorrt("print('{}'); os.write(1, b'from C'); os.write(2, b'x' * 1_000_000)")
    assert told(build_in_child("tensorrt", ONNX, EngineOptions(), b"").plan)


def test_a_refused_graph_is_told_as_without_a_child(tensorrt: Install) -> None:
    tensorrt("pass")
    with pytest.raises(BackendError, match=r"does not take strange\.onnx: BAD: no such operator"):
        build_in_child("tensorrt", Path("strange.onnx"), EngineOptions(), b"")


def test_a_tensorrt_that_does_not_load_is_told(tmp_path: Path, tensorrt: Install) -> None:
    (tmp_path / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.10')")
    with pytest.raises(BackendError, match=r"does not load .*libnvinfer\.so\.10"):
        build_in_child("tensorrt", ONNX, EngineOptions(), b"")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL, as the kernel does"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os._exit(3)", "ended with code 3: silent"),
        ("raise ValueError('no such thing')", "code 1: ValueError: no such thing"),
    ],
)
def test_a_child_that_dies_leaves_its_end_or_its_last_words(
    tensorrt: Install, what: str, words: str
) -> None:
    tensorrt(what)
    with pytest.raises(BackendError, match=words):
        build_in_child("tensorrt", ONNX, EngineOptions(), b"")


def test_half_an_answer_is_none(tensorrt: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorrt("pass")
    monkeypatch.setattr(child_process, "CHILD", """print('{"n_plan": 9, "n_timing": 0}')""")
    with pytest.raises(BackendError, match="ended with code 0"):
        build_in_child("tensorrt", ONNX, EngineOptions(), b"")


def test_a_child_that_does_not_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "CHILD", "import os; os.close(0); os._exit(5)")
    with pytest.raises(BackendError, match="ended with code 5"):
        build_in_child("tensorrt", ONNX, EngineOptions(), bytes(10_000_000))


def test_a_child_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(BackendError, match="does not start"):
        build_in_child("tensorrt", ONNX, EngineOptions(), b"")


def test_a_service_without_a_folder_for_temporary_files_builds(
    tensorrt: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorrt("pass")
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert build_in_child("tensorrt", ONNX, EngineOptions(), b"").plan


def test_a_file_of_the_folder_that_the_user_is_in_is_not_imported(
    tensorrt: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorrt("pass")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "json.py").write_text("raise SystemExit('a file of the user')")
    monkeypatch.chdir(tmp_path / "here")
    assert build_in_child("tensorrt", ONNX, EngineOptions(), b"").plan


def wait_for(path: Path) -> int:
    """The number that a process writes into a file; the test's own limit of time ends the wait."""
    while not path.exists() or not path.read_text():
        time.sleep(0.01)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


HANGS = "pathlib.Path(r'{}').write_text(str(os.getpid())); time.sleep(600)"


def test_ctrl_c_ends_the_build_and_nothing_of_it_stays(tensorrt: Install, tmp_path: Path) -> None:
    tensorrt(HANGS.format(tmp_path / "pid"))

    def interrupt() -> None:
        wait_for(tmp_path / "pid")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        build_in_child("tensorrt", ONNX, EngineOptions(), b"")
    assert is_gone(wait_for(tmp_path / "pid"))


def test_a_build_that_never_ends_is_reported_and_ended_after_its_time(
    tensorrt: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorrt(HANGS.format(tmp_path / "pid"))
    monkeypatch.setattr(build_process, "REPORT_EVERY_S", 0.001)
    clock = SimpleNamespace(monotonic=iter([7.0, 67.0, 127.0, 1807.0]).__next__)
    monkeypatch.setattr(build_process, "time", clock)
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        wait_for(tmp_path / "pid")  # so the builder runs when its time is over

    with pytest.raises(BackendError, match=r"graph update .*not built within 1800 s"):
        build_in_child("tensorrt", ONNX, EngineOptions(progress=progress), b"")
    assert [re.findall(r"of (\w+).* (\d+) s so far", line) for line in lines] == [
        [("update", "60")],
        [("update", "120")],
    ]
    assert is_gone(wait_for(tmp_path / "pid"))


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_timeout_that_ends_no_build_is_refused(timeout_s: float) -> None:
    with pytest.raises(BackendError, match="timeout"):
        EngineOptions(build_timeout_s=timeout_s)


def test_a_parent_that_is_killed_takes_its_build_with_it(tensorrt: Install, tmp_path: Path) -> None:
    tensorrt(HANGS.format(tmp_path / "pid"))
    code = (
        f"import sys; sys.path = {sys.path}\n"
        "from pathlib import Path\n"
        "from edgefold.runtime.backends.base import EngineOptions\n"
        "from edgefold.runtime.backends.tensorrt.build_process import build_in_child\n"
        "build_in_child('tensorrt', Path('update.onnx'), EngineOptions(), b'')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    child = wait_for(tmp_path / "pid")
    ignored = re.search(r"^SigIgn:\s+(\w+)$", Path(f"/proc/{child}/status").read_text(), re.M)
    assert ignored and int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1  # systemd sends it to all
    parent.kill()
    parent.wait()
    while not is_gone(child):
        time.sleep(0.01)
