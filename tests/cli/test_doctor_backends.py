from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.doctor import backends as doctor_backends
from edgefold.cli.doctor.backends import NEGATE, _run_node, probe_backends, probed_names
from edgefold.export.native.toolchain import zig
from edgefold.runtime import child_process
from edgefold.runtime.backends.native.library_store import LibraryStore
from edgefold.runtime.backends.native.processor import read_processor
from edgefold.runtime.backends.onnxruntime_session import onnxruntime
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError, BoardError, BundleError, MeterError, Remedy
from tests.native_builds import compiler_or_skip


@pytest.mark.parametrize("error", [MeterError("m"), BoardError("b"), BackendError("b")])
def test_an_error_of_ours_is_told_without_its_class(error: Exception) -> None:
    assert doctor_backends._refusal(error) == {"reason": str(error)}
    assert doctor_backends._refusal(ValueError("v")) == {"reason": "ValueError: v"}


def test_a_remedy_crosses_to_the_parent_process() -> None:
    error = BackendError("no driver", Remedy("the driver", "install it"))
    assert doctor_backends._refusal(error)["remedy"] == {
        "what": "the driver",
        "command": "install it",
    }


def test_the_model_of_one_node_is_what_it_says() -> None:
    onnx = pytest.importorskip("onnx", reason="boards have no onnx")
    model = onnx.load_from_string(NEGATE)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Neg"]


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "onnxruntime-tensorrt"])
def test_a_provider_that_onnxruntime_lacks_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)  # calling it is a TypeError
    with pytest.raises(BackendError) as refused:
        _run_node(name)
    assert refused.value.__cause__ is None


def test_native_opens_where_a_compiler_compiles_or_a_library_was_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_bundle: Path
) -> None:
    monkeypatch.setenv("EDGEFOLD_CACHE", str(tmp_path / "cache"))
    compiler = compiler_or_skip()
    told = doctor_backends._compile("native")
    assert told["version"] == compiler.title and told["detail"].startswith("0 built")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(zig, "find_spec", lambda _: None)
    with pytest.raises(BackendError) as refused:
        doctor_backends._compile("native")
    assert refused.value.remedy is not None
    (tmp_path / "made.so").write_bytes(b"a library, which nothing loads here")
    store, manifest = LibraryStore(), load_manifest(tiny_bundle)
    store.keep(manifest, read_processor(), tmp_path / "made.so", {})
    assert doctor_backends._compile("native")["detail"].startswith("1 built")


def stand_in(monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """Replace the program of the child that the doctor starts."""
    head = "import json, os, signal, sys, time\nnames = json.loads(sys.stdin.readline())['names']\n"
    monkeypatch.setattr(child_process, "CHILD", head + lines)


def test_a_library_that_kills_its_process_does_not_kill_the_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(
        monkeypatch,
        "for name in names:\n"
        "    if name == 'tensorrt': os.kill(os.getpid(), signal.SIGILL)\n"
        "    print(json.dumps({'name': name, 'opens': True}), flush=True)",
    )
    entries = {entry["name"]: entry for entry in probe_backends(None)}
    assert list(entries) == probed_names()
    assert entries["tensorrt"]["crashed"] and "SIGILL" in entries["tensorrt"]["reason"]
    assert all(entry["opens"] for name, entry in entries.items() if name != "tensorrt")


def test_a_child_that_ends_at_once_gives_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "print('ImportError: no such symbol', file=sys.stderr); sys.exit(3)")
    entries = probe_backends(None)
    assert len(entries) == len(probed_names())
    assert all("code 3: ImportError: no such symbol" in entry["reason"] for entry in entries)


def test_a_child_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "time.sleep(60)")
    monkeypatch.setattr(doctor_backends, "TIMEOUT_S", 0.05)
    assert "did not answer" in probe_backends(None)[0]["reason"]


def test_backends_are_tried_where_no_folder_is_writable(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the child, too: only TensorRT needs a place for its engines."""
    none = "raise OSError(30, 'Read-only file system')"
    head = f"import tempfile\ndef none(*a, **k): {none}\ntempfile.mkdtemp = none\n"
    monkeypatch.setattr(child_process, "CHILD", head + child_process.CHILD)
    for name in ("mkdtemp", "TemporaryFile"):
        monkeypatch.setattr(tempfile, name, None)
    entries = {entry["name"]: entry for entry in probe_backends(str(tiny_bundle))}
    assert entries["onnxruntime"]["opens"], entries


def test_another_bundle_than_the_expected_one_is_refused(tiny_bundle: Path) -> None:
    with pytest.raises(BundleError):
        probe_backends(str(tiny_bundle), "0" * 64)


@pytest.mark.parametrize(
    ("between_s", "line", "n_records"),
    [
        (200.0, b'{"name": "a", "opens": true}\n', 5),  # 1000 s in all
        (301.0, b'{"name": "a", "opens": true}\n', 0),
    ],
)
def test_the_limit_of_time_is_each_records_own(
    monkeypatch: pytest.MonkeyPatch, between_s: float, line: bytes, n_records: int
) -> None:
    reads, writes = os.pipe()
    clock = [0.0]
    lines = [line] * 5

    def select(handles: list[Any], _: Any, __: Any, left_s: float) -> tuple[list[Any], Any, Any]:
        clock[0] += min(left_s, between_s)
        if left_s < between_s:
            return [], [], []
        if lines:
            os.write(writes, lines.pop())
        else:
            os.close(writes)
        return handles, [], []

    monkeypatch.setattr("select.select", select)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    records = []
    with os.fdopen(reads, "rb") as answer, suppress(TimeoutError):
        for record in doctor_backends._records(answer):
            records.append(record)
    if not n_records:
        os.close(writes)
    assert len(records) == n_records


def test_files_of_the_folder_that_the_user_is_in_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the user')")
    monkeypatch.chdir(tmp_path)
    entries = {entry["name"]: entry for entry in probe_backends(None)}
    assert entries["onnxruntime"]["opens"]


def test_a_child_that_does_not_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    entries = probe_backends(None)
    assert len(entries) == len(probed_names())
    assert all("does not start (No such file" in entry["reason"] for entry in entries)
