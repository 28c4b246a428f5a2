"""The script of examples/ci gates on each step, and stops at the first that fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode

SCRIPT = Path(__file__).parents[2] / "examples" / "ci" / "gate.sh"
SHORT = ["--updates", "40", "--queries", "20", "--energy-seconds", "0.1"]
RECORDS = ["budget.json", "check.json", "profile.json", "profile.prom"]


def gate(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {"EDGEFOLD": f"{sys.executable} -m edgefold.cli.main", "ATTEMPTS": "1"}
    return subprocess.run(
        [str(SCRIPT), *map(str, words)],
        env={**os.environ, **settings, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def records(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.long
def test_a_bundle_that_keeps_its_gates_passes(tiny_bundle: Path, tmp_path: Path) -> None:
    done = gate(tiny_bundle, tmp_path, *SHORT, "--fail-if", "needed > 2GB")
    assert done.returncode == ExitCode.DONE, done.stderr
    assert records(tmp_path) == RECORDS
    assert done.stdout.endswith(f"== passed: {tiny_bundle}\n")


def test_a_gate_that_is_exceeded_fails_and_leaves_the_records(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    done = gate(tiny_bundle, tmp_path, *SHORT, "--fail-if", "needed > 1MB")
    assert done.returncode == ExitCode.WRONG_RESULT
    assert records(tmp_path) == RECORDS
    assert "FAILED  needed > 1MB" in done.stdout


@pytest.mark.long
def test_memory_beyond_the_baselines_fails(tiny_bundle: Path, tmp_path: Path) -> None:
    assert gate(tiny_bundle, tmp_path, *SHORT).returncode == ExitCode.DONE
    record = json.loads((tmp_path / "profile.json").read_text())
    record["validity"] = {"verdict": "valid", "reasons": []}  # the machine here may be busy
    record["memory"]["needed_bytes"] //= 2
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(record))
    words = ["--baseline", baseline, "--tolerance", "50%"]
    assert gate(tiny_bundle, tmp_path, *SHORT, *words).returncode == ExitCode.WRONG_RESULT


def test_a_bundle_that_does_not_fit_is_not_profiled(tiny_bundle: Path, tmp_path: Path) -> None:
    done = gate(tiny_bundle, tmp_path, *SHORT, MEMORY="2MB")
    assert done.returncode == ExitCode.MISFIT
    assert records(tmp_path) == ["budget.json", "check.json"]


def test_a_damaged_bundle_is_refused_at_once(tiny_bundle: Path, tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "out"
    shutil.copytree(tiny_bundle, copy)
    (copy / "weights.bin").write_bytes(b"damaged")
    assert gate(copy, out, *SHORT).returncode == ExitCode.REFUSED
    assert records(out) == []


@pytest.mark.long
def test_a_model_is_exported_first(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="exporting needs the train extra")
    model = SCRIPT.parents[1] / "gru.py"
    done = gate(f"{model}:Gru", tmp_path, *SHORT)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert records(tmp_path) == ["budget.json", "bundle", *RECORDS[1:]]


@pytest.mark.parametrize(("attempts", "code"), [("2", ExitCode.UNSURE), ("3", ExitCode.DONE)])
def test_an_unsure_profile_is_tried_again(
    attempts: str, code: ExitCode, tiny_bundle: Path, tmp_path: Path
) -> None:
    stub, count = tmp_path / "stub", tmp_path / "count"
    count.write_text("")
    stub.write_text(
        '#!/bin/sh\n[ "$1" = profile ] || exit 0\n'
        f'printf x >>{count}\n[ "$(wc -c <{count})" -ge 3 ] || exit {ExitCode.UNSURE}\n'
    )
    stub.chmod(0o755)
    done = gate(tiny_bundle, tmp_path / "out", EDGEFOLD=str(stub), ATTEMPTS=attempts)
    assert done.returncode == code
    assert len(count.read_text()) == int(attempts)


def test_it_finds_the_command_on_the_path(tiny_bundle: Path, tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "edgefold"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/calls\n')
    stub.chmod(0o755)
    path = f"{stub.parent}{os.pathsep}{os.environ['PATH']}"
    for named in ({"EDGEFOLD": ""}, {"EDGEFOLD": "edgefold"}):
        done = gate(tiny_bundle, tmp_path / "out", PATH=path, **named)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "calls").read_text().split() == ["check", "budget", "profile"]
        (tmp_path / "calls").unlink()


def test_without_arguments_it_says_how_it_is_called() -> None:
    done = gate()
    assert done.returncode == ExitCode.USAGE and "ATTEMPTS" in done.stderr
