from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.cli.doctor import backends as doctor_backends
from edgefold.cli.doctor.backends import NEGATE, _run_node, probe_backends, probed_names
from edgefold.runtime.backends.onnxruntime_session import onnxruntime
from edgefold.runtime.errors import BackendError, BoardError, MeterError, Remedy


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


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces the interpreter that the doctor starts by a shell script."""

    def replaced(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(path))

    return replaced


def test_a_library_that_kills_its_process_does_not_kill_the_doctor(
    child: Callable[[str], None],
) -> None:
    # argv: -c program bundle hash name...; whoever is asked for tensorrt first dies of it
    child(
        'shift 4; for name; do [ "$name" = tensorrt ] && kill -ILL $$\n'
        'echo "a library says hello"; echo "{\\"name\\": \\"$name\\", \\"opens\\": true}"; done'
    )
    entries = {entry["name"]: entry for entry in probe_backends(None)}
    assert list(entries) == probed_names()
    assert entries["tensorrt"]["crashed"] and "SIGILL" in entries["tensorrt"]["reason"]
    assert all(entry["opens"] for name, entry in entries.items() if name != "tensorrt")


def test_a_child_that_ends_at_once_gives_its_last_words(child: Callable[[str], None]) -> None:
    child("echo 'ImportError: no such symbol' >&2; exit 3")
    entries = probe_backends(None)
    assert len(entries) == len(probed_names())
    assert all("code 3: ImportError: no such symbol" in entry["reason"] for entry in entries)


def test_a_child_that_hangs_is_given_up(
    child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    child("exec sleep 60")
    monkeypatch.setattr(doctor_backends, "TIMEOUT_S", 0.05)
    assert "did not answer" in probe_backends(None)[0]["reason"]


@pytest.mark.parametrize(
    ("between_s", "line", "n_records"),
    [
        (200.0, b'{"name": "a", "opens": true}\n', 5),  # 1000 s in all
        (301.0, b'{"name": "a", "opens": true}\n', 0),
        (200.0, b"a library says that it is busy\n", 0),
    ],
)
def test_the_limit_of_time_is_each_records_own(
    monkeypatch: pytest.MonkeyPatch, between_s: float, line: bytes, n_records: int
) -> None:
    reads, writes = os.pipe()
    clock = [0.0]
    lines = [line] * 5

    def select(handles: list[int], _: Any, __: Any, left_s: float) -> tuple[list[int], Any, Any]:
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
    child: Any = SimpleNamespace(stdout=os.fdopen(reads, "rb"), args=["python"])
    records = []
    with child.stdout, suppress(subprocess.TimeoutExpired):
        for record in doctor_backends._records(child):
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
