"""`edgefold deploy` of wheels and bundles, on real sshd boards with a stand-in for the wheel."""

from __future__ import annotations

import filecmp
import json
import os
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from edgefold.cli.main import main
from tests.cli.remote.boards import Pc, Sshd, copy_of_bundle
from tests.cli.remote.stand_in import make_wheel

Text = pytest.CaptureFixture[str]
Deploy = Callable[..., int]


@pytest.fixture
def deploy(pc: Pc) -> Deploy:
    """Call `edgefold deploy` with the boards' configuration of ssh."""

    def call(*words: object) -> int:
        return main(["deploy", *map(str, words), "--ssh-config", str(pc.config)])

    return call


def asked(board: Sshd) -> list[list[str]]:
    """How the stand-in was called on a board: its version, then its words."""
    path = board.home / "asked"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def has(board: Sshd, bundle: Path, place: str = "", folder: str = "edgefold") -> bool:
    """Whether a board has these very files as a bundle."""
    there = board.home / folder / "bundles" / (place or bundle.name)
    names = sorted(os.listdir(bundle))
    if not there.is_dir() or sorted(os.listdir(there)) != names:
        return False
    return filecmp.cmpfiles(bundle, there, names, shallow=False)[0] == names


def version_there(board: Sshd, folder: str = "edgefold") -> str:
    """Return the version that the edgefold in use on a board prints."""
    command = [str(board.home / folder / "bin" / "edgefold"), "--version"]
    environment = {"HOME": str(board.home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return str(done.stdout).split()[1]


def change(bundle: Path) -> Path:
    """Give a bundle another file, so that it is another one for the copy."""
    (bundle / "signature.json").write_text(json.dumps({"signed": str(bundle)}))
    return bundle


def installed(board: Sshd, version: str = "1.0") -> None:
    """Put a stand-in on the board's path, so that no wheel is needed."""
    wheel = make_wheel(board.home / "wheels", version)
    text = "import sys, edgefold_stand_in\nsys.exit(edgefold_stand_in.main())\n"
    (board.programs / "edgefold_stand_in_main.py").write_text(text)
    board.program(
        "edgefold",
        f'PYTHONPATH={wheel}:{board.programs} exec python3 -m edgefold_stand_in_main "$@"',
    )


@pytest.mark.long
def test_two_boards_get_a_wheel_and_a_bundle(
    deploy: Deploy, kitchen: Sshd, roof: Sshd, tmp_path: Path, capsys: Text
) -> None:
    make_wheel(tmp_path / "wheels", "1.0")
    bundle = copy_of_bundle(tmp_path / "tiny")
    words = ["kitchen", "roof", "--wheel", tmp_path / "wheels", "--bundle", bundle]
    assert deploy(*words) == 0
    shown = capsys.readouterr().out
    assert shown.split()[:2] == ["kitchen", "roof"] and shown.count("passed, error 2.0e-07") == 2
    for board in (kitchen, roof):
        assert has(board, bundle) and version_there(board) == "1.0"
        assert [call[:2] for call in asked(board)] == [["1.0", "check"]]
        left = {path.name for path in (board.home / "edgefold").iterdir()}
        assert left == {"bin", "bundles", "environments"}
    place = kitchen.home / "edgefold"
    before = {path: path.stat().st_ino for path in (place / "bundles" / "tiny", place / "bin")}
    assert deploy(*words) == 0
    assert {path: path.stat().st_ino for path in before} == before
    assert not (place / "bundles" / "tiny.previous").exists()
    assert not (place / "bin" / "edgefold.previous").exists()
    shown = capsys.readouterr().out
    assert "tiny, unchanged" in shown and "1.0, was there" in shown


@pytest.mark.long
def test_a_new_version_can_be_taken_back(
    deploy: Deploy, kitchen: Sshd, tmp_path: Path, capsys: Text
) -> None:
    for version in ("1.0", "1.1", "1.2"):
        wheel = make_wheel(tmp_path / version, version)
        assert deploy("kitchen", "--wheel", wheel.parent) == 0
        assert version_there(kitchen) == version
    kept = sorted((kitchen.home / "edgefold" / "environments").iterdir())
    assert [path.name.partition("-")[0] for path in kept] == ["1.1", "1.2"]
    assert deploy("kitchen", "--rollback") == 0
    assert version_there(kitchen) == "1.1"
    assert "1.1, went back from 1.2" in capsys.readouterr().out
    assert deploy("kitchen", "--rollback") == 0
    assert version_there(kitchen) == "1.2"


def test_a_new_bundle_can_be_taken_back(deploy: Deploy, kitchen: Sshd, tmp_path: Path) -> None:
    installed(kitchen)
    first = copy_of_bundle(tmp_path / "1" / "tiny")
    second = change(copy_of_bundle(tmp_path / "2" / "tiny"))
    assert deploy("kitchen", "--bundle", first, "--rollback") == 1  # there is none yet
    assert deploy("kitchen", "--bundle", first) == 0
    assert deploy("kitchen", "--bundle", second) == 0
    assert has(kitchen, second) and has(kitchen, first, "tiny.previous")
    assert deploy("kitchen", "--bundle", second, "--rollback") == 0
    assert has(kitchen, first) and has(kitchen, second, "tiny.previous")
    assert deploy("kitchen", "--bundle", first, "--rollback") == 0
    assert has(kitchen, second)


def test_a_shipped_bundle_is_checked_and_not_copied(deploy: Deploy, kitchen: Sshd) -> None:
    installed(kitchen)
    assert deploy("kitchen", "--bundle", "sensors") == 0
    assert asked(kitchen) == [["1.0", "check", "sensors", "--json", "-"]]
    assert not (kitchen.home / "edgefold").exists()


@pytest.mark.parametrize("code", [5, 6])
def test_a_bundle_that_fails_its_check_does_not_replace_the_former_one(
    code: int, deploy: Deploy, kitchen: Sshd, tmp_path: Path, capsys: Text
) -> None:
    installed(kitchen)
    first = copy_of_bundle(tmp_path / "1" / "tiny")
    second = change(copy_of_bundle(tmp_path / "2" / "tiny"))
    assert deploy("kitchen", "--bundle", first) == 0
    (kitchen.home / "check-code").write_text(str(code))
    capsys.readouterr()
    assert deploy("kitchen", "--bundle", second) == code
    assert has(kitchen, first)
    assert os.listdir(kitchen.home / "edgefold" / "bundles") == ["tiny"]
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1 and shown.err.startswith("edgefold: error: kitchen: ")
    assert "the former one stays" in shown.out


def test_a_dry_run_changes_nothing(
    deploy: Deploy, kitchen: Sshd, tmp_path: Path, capsys: Text
) -> None:
    wheel, bundle = make_wheel(tmp_path / "wheels", "1.0"), copy_of_bundle(tmp_path / "tiny")
    assert deploy("kitchen", "--wheel", wheel, "--bundle", bundle, "--dry-run") == 0
    assert [*kitchen.home.iterdir()] == []
    shown = capsys.readouterr().out
    assert "would be installed" in shown and "would copy" in shown


@pytest.mark.long
def test_every_path_may_hold_blanks_and_quotes(
    deploy: Deploy, kitchen: Sshd, tmp_path: Path
) -> None:
    odd = 'it\'s a "folder" of $HOME `rm x` \\ ;&'
    wheel = make_wheel(tmp_path / odd, "1.0")
    bundle = copy_of_bundle(tmp_path / "bundles" / odd)
    library = tmp_path / f"{odd}.so"
    library.write_bytes(b"code")
    words = ["kitchen", "--wheel", wheel.parent, "--bundle", bundle, "--board-dir", odd]
    assert deploy(*words, "--library", library) == 0
    assert has(kitchen, bundle, folder=odd) and version_there(kitchen, odd) == "1.0"
    place = f"{kitchen.home}/{odd}"
    new = f"{place}/bundles/.{odd}.new"
    assert asked(kitchen) == [
        ["1.0", "build", new, "--library", f"{place}/.library/{odd}.so"],
        ["1.0", "check", new, "--json", "-"],
    ]
    assert {path.name for path in kitchen.home.iterdir()} == {odd, "asked"}


@pytest.mark.long
def test_a_python_without_ensurepip_gets_the_pip_of_here(
    deploy: Deploy, pc: Pc, kitchen: Sshd, tmp_path: Path
) -> None:
    real = f'"{pc.python}/python3" "$@"'
    hide = f"if [ \"$1\" = -c ]; then {real} | sed 's/^ensurepip .*/ensurepip no/'; exit; fi"
    kitchen.program("python3", f"{hide}\nexec {real}")
    assert deploy("kitchen", "--wheel", make_wheel(tmp_path / "wheels", "1.0").parent) == 0
    assert version_there(kitchen) == "1.0"
    assert [*kitchen.home.glob("edgefold/environments/*/bin/pip")]


def test_a_library_that_is_not_proved_leaves_the_former_bundle(
    deploy: Deploy, kitchen: Sshd, tmp_path: Path
) -> None:
    installed(kitchen)
    bundle, library = copy_of_bundle(tmp_path / "tiny"), tmp_path / "library.so"
    library.write_bytes(b"code")
    (kitchen.home / "build-code").write_text("5")
    assert deploy("kitchen", "--bundle", bundle, "--library", library) == 5
    assert os.listdir(kitchen.home / "edgefold" / "bundles") == []


def test_a_copy_that_breaks_off_leaves_the_former_bundle_whole(
    deploy: Deploy,
    pc: Pc,
    kitchen: Sshd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Text,
) -> None:
    """The line is cut where the board has a part of the files: ssh is killed here."""
    installed(kitchen)
    first = copy_of_bundle(tmp_path / "1" / "tiny")
    second = change(copy_of_bundle(tmp_path / "2" / "tiny"))
    assert deploy("kitchen", "--bundle", first) == 0
    started, tools = tmp_path / "started", tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(
        f'#!/bin/sh\necho $$ >>"{started}"\nPATH={os.environ["PATH"]}\nexec ssh "$@"\n'
    )
    (tools / "ssh").chmod(0o755)
    cut = f'head -c 100000 | /bin/tar "$@" 2>/dev/null; kill -9 $(cat "{started}"); exit 1'
    kitchen.program("tar", cut)
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        assert deploy("kitchen", "--bundle", second) == 6
    shown = capsys.readouterr()
    assert "the line was lost while copying tiny" in shown.err
    assert has(kitchen, first)
    part = kitchen.home / "edgefold" / "bundles" / ".tiny.new"
    assert part.is_dir() and not has(kitchen, second, ".tiny.new")
    (kitchen.programs / "tar").unlink()
    assert deploy("kitchen", "--bundle", second) == 0
    assert has(kitchen, second) and has(kitchen, first, "tiny.previous")


def test_bytes_that_change_on_the_way_are_found(
    deploy: Deploy, kitchen: Sshd, tmp_path: Path, capsys: Text
) -> None:
    installed(kitchen)
    bundle = copy_of_bundle(tmp_path / "tiny")
    kitchen.program("tar", '/bin/tar "$@" && echo x >>manifest.json')
    assert deploy("kitchen", "--bundle", bundle) == 6
    assert "SHA-256" in capsys.readouterr().err
    assert asked(kitchen) == [] and not has(kitchen, bundle)


def test_a_bundle_with_another_hash_than_expected_is_not_copied(
    deploy: Deploy, kitchen: Sshd, tmp_path: Path
) -> None:
    installed(kitchen)
    bundle = copy_of_bundle(tmp_path / "tiny")
    assert deploy("kitchen", "--bundle", bundle, "--expect-hash", "0" * 64) == 1
    assert not (kitchen.home / "edgefold").exists()
    digits = sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    assert deploy("kitchen", "--bundle", bundle, "--expect-hash", digits) == 0
    assert f"--expect-hash={digits}" in asked(kitchen)[0]


def test_one_board_that_fails_does_not_stop_the_other(
    deploy: Deploy, kitchen: Sshd, roof: Sshd, tmp_path: Path, capsys: Text
) -> None:
    installed(roof)
    bundle = copy_of_bundle(tmp_path / "tiny")
    assert deploy("kitchen", "roof", "--bundle", bundle) == 6
    assert has(roof, bundle) and not (kitchen.home / "edgefold").exists()
    shown = capsys.readouterr()
    assert "FAILED, see below" in shown.out and "done" in shown.out
    assert "no edgefold is there" in shown.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--extra", "cpu", "--bundle", "sensors"],
        ["--library", "x.so", "--program", "x"],
        ["--rollback", "--dry-run"],
        ["kitchen", "--bundle", "sensors"],
        ["--bundle", "sensors", "--port", "70000"],
        ["--bundle", "sensors", "--board-dir", ""],
    ],
)
def test_what_makes_no_sense_is_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["deploy", "kitchen", *words])
