"""The commands of a board where numpy is the only package: with compiled code, and without it.

Other packages are hidden from the command and from the processes that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.runtime.backends.missing_onnxruntime import not_installed, read_system
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.native_builds import Native

OTHERS = (
    *("onnxruntime", "psutil", "torch", "onnx", "onnxscript", "onnx_ir", "safetensors", "tqdm"),
    *("matplotlib", "cryptography", "tensorrt", "tensorrt_rtx", "cuda", "pynvml", "scipy"),
)
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def edgefold(tmp_path: Path) -> Command:
    """Runs a command in `tmp_path` on a Python that finds only numpy; `cache` has the libraries."""
    site = tmp_path / "site"
    site.mkdir()
    hide = f"import sys\nfor name in {OTHERS}:\n    sys.modules[name] = None\n"
    (site / "sitecustomize.py").write_text(hide)

    def run(*words: object, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(site),
            "EDGEFOLD_CACHE": str(cache or tmp_path / "cache"),
        }
        return subprocess.run(
            [sys.executable, "-m", "edgefold.cli.main", *map(str, words)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def table(path: Path, n_rows: int = 40) -> Path:
    lines = [f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{20 + i % 7}.5" for i in range(n_rows)]
    path.write_text("\n".join(["time,value", *lines]) + "\n")
    return path


def test_the_help_and_the_doctor_need_only_numpy(edgefold: Command) -> None:
    assert "forecast" in edgefold("--help").stdout
    done = edgefold("doctor")
    assert done.returncode in (ExitCode.DONE, ExitCode.MACHINE)  # by whether there is a compiler
    error = not_installed(read_system())
    wanted = error.remedy.command if error.remedy and error.remedy.command else "has no wheel"
    assert "Traceback" not in done.stderr and wanted in " ".join(done.stdout.split())


def test_without_a_library_the_error_has_the_line_that_helps(
    edgefold: Command, tiny_bundle: Path
) -> None:
    done = edgefold("check", tiny_bundle)
    assert done.returncode == ExitCode.MACHINE, done.stderr
    error = " ".join(done.stderr.split())
    assert str(not_installed(read_system())) in error and "edgefold build" in error
    assert "Traceback" not in error and "TensorRT" not in error


def test_a_compiled_bundle_needs_only_numpy(
    edgefold: Command, native: Native, tiny_bundle: Path, tmp_path: Path
) -> None:
    cache = native(tiny_bundle).cache
    done = edgefold("check", tiny_bundle, cache=cache)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert "backend   native" in done.stdout
    rows = tmp_path / "rows.csv"
    rows.write_text("x1,x2,y1\n" + "0.1,0.2,0.3\n" * 20)
    output = tmp_path / "predictions.csv"
    done = edgefold("run", tiny_bundle, "--input", rows, "--output", output, cache=cache)
    assert done.returncode == ExitCode.DONE and len(output.read_text().splitlines()) > 10
    for words in (("budget", tiny_bundle, "--device", "raspberry-pi-5"), ("doctor", tiny_bundle)):
        done = edgefold(*words, cache=cache)
        assert done.returncode == ExitCode.DONE and "Traceback" not in done.stderr, done.stderr


@pytest.mark.long
def test_a_compiled_bundle_is_profiled_with_only_numpy(
    edgefold: Command, native: Native, tiny_bundle: Path, tmp_path: Path
) -> None:
    record = tmp_path / "profile.json"
    words = ("profile", tiny_bundle, "--updates", 200, "--queries", 50, "--json", record)
    done = edgefold(*words, cache=native(tiny_bundle).cache)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert '"onnxruntime": null' in record.read_text()


@pytest.mark.long
def test_the_shipped_model_needs_only_numpy_where_it_is_compiled(
    edgefold: Command, native: Native, tmp_path: Path
) -> None:
    cache = native(shipped_bundle()).cache
    rows = table(tmp_path / "sensor.csv")
    done = edgefold("forecast", rows, cache=cache)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert "backend   native" in done.stderr and "edgefold[report]" in done.stdout
    words = ("run", "sensors", "--input", rows, "--output", tmp_path / "run.csv")
    done = edgefold(*words, cache=cache)
    assert done.returncode == ExitCode.DONE and (tmp_path / "run.csv").read_text().count("\n") > 40
    assert edgefold("check", "sensors", cache=cache).returncode == ExitCode.DONE
