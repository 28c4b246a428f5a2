from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from edgefold.cli.options.bundle_options import add_stream_arguments, backend_lines, engine_options
from edgefold.cli.text.profile import describe_backend
from edgefold.devices.machine.build_conditions import read_build_conditions
from edgefold.runtime import BackendError, EngineOptions

REPORT = {"name": "onnxruntime", "version": "1.23", "device": "cpu"}


def test_a_refusal_is_one_clause_and_told_only_where_there_is_a_gpu(tmp_path: Path) -> None:
    refused = {
        "tensorrt": "TensorRT is not installed for this Python. On a Jetson: apt install it."
    }
    assert backend_lines({**REPORT, "refused": refused}, tmp_path) == [
        "backend   onnxruntime 1.23 on cpu"
    ]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvmap").touch()
    assert backend_lines({**REPORT, "refused": refused}, tmp_path) == [
        "backend   onnxruntime 1.23 on cpu",
        "refused   tensorrt: TensorRT is not installed for this Python (see `edgefold doctor`)",
    ]


def test_without_a_refusal_one_line_is_enough() -> None:
    assert backend_lines({**REPORT, "refused": {}}) == ["backend   onnxruntime 1.23 on cpu"]


def test_the_modes_of_build_and_run_are_told_where_they_are_known() -> None:
    mode = "built in 25W, running in MAXN_SUPER"
    assert f"engines   {mode}" in backend_lines({**REPORT, "mode": mode})
    assert not any(line.startswith("engines") for line in backend_lines({**REPORT, "mode": ""}))
    record = {
        "conditions": {"backend": {**REPORT, "asked": "tensorrt", "mode": mode}},
        "options": {"threads": 1},
    }
    assert describe_backend(record).endswith(f"engines {mode}")


def test_the_machines_conditions_are_asked_for_engines() -> None:
    parser = argparse.ArgumentParser()
    add_stream_arguments(parser)
    options = engine_options(parser.parse_args(["bundle"]))
    assert options.conditions is not None
    assert options.conditions() == read_build_conditions()


def test_how_the_gpu_is_waited_for_stands_beside_it() -> None:
    (line,) = backend_lines({**REPORT, "waits": "spin"})
    assert line == "backend   onnxruntime 1.23 on cpu, waits: spin"


def test_the_wait_that_was_asked_for_reaches_the_engine() -> None:
    parser = argparse.ArgumentParser()
    add_stream_arguments(parser)
    for asked, wait in (([], "auto"), (["--gpu-wait", "block"], "block")):
        assert engine_options(parser.parse_args(["bundle", *asked])).wait == wait
    with pytest.raises(BackendError, match="wait is 'nap'"):
        EngineOptions(wait="nap")  # type: ignore[arg-type]
