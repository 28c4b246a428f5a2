from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.runtime.hashing import sha256_of

Text = pytest.CaptureFixture[str]


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(tiny_bundle, tmp_path / "copy"))


@pytest.fixture
def key(tmp_path: Path) -> str:
    assert main(["sign", "--new-key", str(tmp_path / "own")]) == ExitCode.DONE
    return str(tmp_path / "own")


def test_a_key_signs_and_its_public_half_verifies(copy: str, key: str, capsys: Text) -> None:
    trusted = ["--trusted-key", f"{key}.pub"]
    assert main(["sign", copy, "--verify", *trusted]) == ExitCode.REFUSED
    assert main(["sign", copy, "--key", key]) == ExitCode.DONE
    capsys.readouterr()
    assert main(["sign", copy, "--verify", *trusted]) == ExitCode.DONE
    told = capsys.readouterr().out
    assert sha256_of(Path(copy) / "manifest.json") in told
    assert main(["sign", copy, "--verify", *trusted, "--expect-hash", "0" * 64]) == ExitCode.REFUSED


def test_a_key_that_exists_is_not_replaced(key: str) -> None:
    before = Path(key).read_bytes()
    assert main(["sign", "--new-key", key]) == ExitCode.REFUSED
    assert Path(key).read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["b"],
        ["--key", "k"],
        ["--verify", "--trusted-key", "k"],
        ["b", "--new-key", "k"],
        ["b", "--verify"],
        ["b", "--key", "k", "--verify", "--trusted-key", "k"],
        ["b", "--key", "k", "--trusted-key", "k"],
        ["--new-key", "k", "--expect-hash", "0" * 64],
        ["b", "--key", "k", "--expect-hash", "0" * 63],
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["sign", *words])


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    for name in ("cryptography", "cryptography.hazmat.primitives"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["sign", "--new-key", str(tmp_path / "key")]) == ExitCode.MACHINE
    assert "edgefold[sign]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# Every command that opens a bundle ----------------------------------------------------------------


def opened(bundle: str, folder: Path) -> dict[str, list[str]]:
    """Quick words for each command that opens a bundle of a series."""
    rows = folder / "rows.csv"
    rows.write_text("time,value\n" + "".join(f"{i},{400 + i % 7}\n" for i in range(60)))
    return {
        "check": ["check", bundle],
        "lockstep": ["check", bundle, "--lockstep", "onnxruntime", "onnxruntime"],
        "doctor": ["doctor", bundle],
        "run": ["run", bundle, "--input", str(rows)],
        "evaluate": ["evaluate", bundle, "--csv", str(rows)],
        "profile": [
            *("profile", bundle, "--updates", "100", "--queries", "10", "--energy-seconds", "0.01")
        ],
        "engine": ["engine", bundle, "--list"],
    }


COMMANDS = ("check", "lockstep", "doctor", "run", "evaluate", "profile", "engine")


@pytest.fixture
def series(series_bundle: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(series_bundle, tmp_path / "series"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_a_bundle_that_no_trusted_key_signed(
    command: str, series: str, key: str, tmp_path: Path, capsys: Text
) -> None:
    words = opened(series, tmp_path)[command]
    assert main([*words, "--trusted-key", f"{key}.pub"]) == ExitCode.REFUSED
    assert main([*words, "--expect-hash", "0" * 64]) == ExitCode.REFUSED
    printed = capsys.readouterr()
    errors = [line for line in printed.err.splitlines() if line.startswith("edgefold: error")]
    assert len(errors) == 2 and "not signed" in errors[0] and "0" * 64 in errors[1]


@pytest.mark.one_case
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "engine"])
def test_a_command_takes_a_bundle_that_a_trusted_key_signed(
    command: str, series: str, key: str, tmp_path: Path
) -> None:
    assert main(["sign", series, "--key", key]) == ExitCode.DONE
    found = sha256_of(Path(series) / "manifest.json").upper()
    words = [*opened(series, tmp_path)[command], "--expect-hash", found]
    assert main([*words, "--trusted-key", f"{key}.pub"]) == ExitCode.DONE


@pytest.mark.parametrize("words", [["doctor"], ["evaluate", "."]])
def test_trust_without_a_bundle_is_wrong_usage(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--expect-hash", "0" * 64])
