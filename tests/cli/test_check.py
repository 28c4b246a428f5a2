from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from tests.cli.conftest import spoil_golden


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def test_a_whole_bundle_passes(tiny_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tiny_bundle)]) == 0
    text = capsys.readouterr().out
    assert "passed" in text and "onnxruntime" in text and "tolerance" in text


@pytest.mark.parametrize(
    "name", ["update.onnx", "query.onnx", "weights.bin", "golden.npz", "manifest.json"]
)
def test_a_missing_file_is_named(copy: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / name).unlink()
    assert main(["check", str(copy)]) == 1
    error = capsys.readouterr().err
    assert name in error and "missing" in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["update.onnx", "refresh.onnx", "weights.bin", "golden.npz"])
def test_a_changed_byte_is_found(copy: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    raw = bytearray((copy / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (copy / name).write_bytes(raw)
    assert main(["check", str(copy)]) == 1
    error = capsys.readouterr().err
    assert name in error and "was changed" in error and error.count("\n") == 1


def test_predictions_that_are_off_fail(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil_golden(copy)
    assert main(["check", str(copy), "--json", str(copy / "check.json")]) == ExitCode.WRONG_RESULT
    record = json.loads((copy / "check.json").read_text())
    assert not record["passed"] and record["worst"] == pytest.approx(0.01, rel=0.01)
    text = capsys.readouterr().out
    assert "FAILED" in text and "OFF" in text and "1.0e-02" in text


def test_an_unknown_backend_lists_the_known(
    tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tiny_bundle), "--backend", "abacus"])
    assert ended.value.code == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "abacus" in told and "onnxruntime-cuda" in told
