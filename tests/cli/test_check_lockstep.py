from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.backends.onnxruntime_cpu import OnnxRuntimeBackend
from edgefold.runtime.backends.registry import BACKENDS

Text = pytest.CaptureFixture[str]


class DriftingBackend(OnnxRuntimeBackend):
    """Adds to one element of what `update` writes."""

    def bind(self, graph: Any, placed: Any) -> Any:
        bound = super().bind(graph, placed)
        if graph.name != "update":
            return bound
        array = placed["next_recent_sums"].array

        def step() -> None:
            bound()
            array[0, 1, 2, 3] += 1

        return step


@pytest.fixture
def drifting(monkeypatch: pytest.MonkeyPatch) -> str:
    module: Any = SimpleNamespace(Drifting=DriftingBackend)
    monkeypatch.setitem(sys.modules, "edgefold.runtime.backends.drifting", module)
    monkeypatch.setitem(BACKENDS, "drifting", BackendInfo("drifting", "drifting:Drifting", "cpu"))
    return "drifting"


def test_two_backends_that_agree_pass(tiny_bundle: Path, capsys: Text) -> None:
    words = ["check", str(tiny_bundle), "--lockstep", "onnxruntime", "onnxruntime:1"]
    assert main([*words, "--points", "200", "--bound", "0"]) == 0
    text = capsys.readouterr().out
    assert "passed" in text and "base_rest" in text and "query_one" in text


def test_a_backend_that_parts_fails_with_graph_tensor_and_values(
    tiny_bundle: Path, drifting: str, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    # A child process would not know this backend.
    monkeypatch.setattr("edgefold.cli.commands.check.in_child", lambda work, args: work(args))
    assert (
        main(["check", str(tiny_bundle), "--lockstep", "onnxruntime", drifting])
        == ExitCode.WRONG_RESULT
    )
    text = capsys.readouterr().out
    assert "FAILED" in text and "graph update, tensor recent_sums[0, 1, 2, 3]: A " in text


@pytest.mark.parametrize(
    "words",
    [
        ["--bound", "1e-3"],
        ["--points", "10"],
        ["--lockstep", "onnxruntime"],
        ["--lockstep", "onnxruntime", "onnxruntime:two"],
        ["--lockstep", "onnxruntime", "onnxruntime", "--bound", "nan"],
        ["--lockstep", "onnxruntime", "onnxruntime", "--backend", "onnxruntime"],
        ["--lockstep", "onnxruntime", "onnxruntime", "--memory-limit", "1GB"],
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(words: list[str], capsys: Text) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", "no such bundle", *words])
    assert "(see edgefold check --help)" in capsys.readouterr().err


def test_an_unknown_backend_is_refused(tiny_bundle: Path, capsys: Text) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tiny_bundle), "--lockstep", "onnxruntime", "abacus"])
    assert ended.value.code == ExitCode.USAGE
    assert "abacus" in capsys.readouterr().err
