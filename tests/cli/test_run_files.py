"""`edgefold run` keeps its files apart: from each other, and from another run's."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from edgefold.cli.main import main

Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("case", ["output", "link", "symlink", "snapshot", "lock", "both"])
def test_files_that_are_the_same_are_refused_and_left_alone(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, case: str, force: list[str], capsys: Text
) -> None:
    output, snapshot = tmp_path / "p.csv", tmp_path / "s.npz"
    if case == "output":
        output = tmp_path / "." / points_csv.name
    elif case == "link":
        os.link(points_csv, output)
    elif case == "symlink":
        output.symlink_to(points_csv)
    elif case == "snapshot":
        snapshot = points_csv
    elif case == "both":
        snapshot = output
    else:
        output = tmp_path / f"s.npz.{case}"
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot, *force)
    assert run(tiny_bundle, *words) == 1
    error = capsys.readouterr().err
    assert "are the same file" in error and error.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_output_whose_name_a_snapshot_cannot_keep_is_wrong_usage(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output, snapshot = tmp_path / os.fsdecode(b"o\xff.csv"), tmp_path / "s.npz"
    words = ("--input", points_csv, "--output", output)
    with pytest.raises(SystemExit, match="2"):
        run(tiny_bundle, *words, "--snapshot", snapshot)
    assert "not UTF-8" in capsys.readouterr().err
    assert not output.exists() and not list(tmp_path.glob("s.npz*"))
    assert run(tiny_bundle, *words) == 0 and output.exists()


def test_devices_may_be_shared(tiny_bundle: Path, capsys: Text) -> None:
    assert run(tiny_bundle, "--input", "/dev/null", "--output", "/dev/null") == 1
    assert "holds no lines" in capsys.readouterr().err


@pytest.mark.parametrize("held", ["snapshot", "output", "output alone"])
def test_what_another_run_holds_is_refused_until_it_ends(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, held: str, capsys: Text
) -> None:
    output, snapshot = tmp_path / "p.csv", tmp_path / "s.npz"
    words: tuple[object, ...] = ("--input", points_csv, "--output", output)
    words += ("--force",) if held == "output alone" else ("--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 0
    before = output.read_bytes()
    capsys.readouterr()
    path = tmp_path / "s.npz.lock" if held == "snapshot" else output
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run(tiny_bundle, *words) == 1
        error = capsys.readouterr().err
        assert "another run" in error and error.count("\n") == 1
        assert output.read_bytes() == before
    assert run(tiny_bundle, *words) == 0  # a lock file that was left behind blocks nobody
    assert output.read_bytes() == before


def test_force_replaces_nothing_while_another_run_writes_the_output(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output, snapshot = tmp_path / "p.csv", tmp_path / "s.npz"
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 0
    before = output.read_bytes(), snapshot.read_bytes()
    with output.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run(tiny_bundle, *words, "--force") == 1
    assert "is being written by another run" in capsys.readouterr().err
    assert (output.read_bytes(), snapshot.read_bytes()) == before
    assert run(tiny_bundle, *words, "--force") == 0


def test_a_link_to_a_snapshot_is_the_same_snapshot(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    (tmp_path / "disk").mkdir()
    snapshot, link = tmp_path / "disk" / "s.npz", tmp_path / "link.npz"
    link.symlink_to(snapshot)
    assert run(tiny_bundle, "--input", points_csv, "--snapshot", link) == 0
    before = snapshot.read_bytes()
    with (tmp_path / "disk" / "s.npz.lock").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for name in (snapshot, link):
            assert run(tiny_bundle, "--input", points_csv, "--snapshot", name, "--force") == 1
            assert "another run" in capsys.readouterr().err
    assert link.is_symlink() and snapshot.read_bytes() == before


@pytest.mark.parametrize("is_there", [True, False])
def test_a_lock_that_cannot_be_had_is_explained(
    tiny_bundle: Path,
    points_csv: Path,
    tmp_path: Path,
    is_there: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Text,
) -> None:
    lock = tmp_path / "s.npz.lock"
    if is_there:
        lock.touch()
    real = os.open

    def refused(path: object, *words: int, **named: int) -> int:
        if str(path) == str(lock):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *words, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refused)
    assert run(tiny_bundle, "--input", points_csv, "--snapshot", tmp_path / "s.npz") == 1
    error = capsys.readouterr().err
    assert ("was made by user" in error) == is_there and error.count("\n") == 1
    assert not (tmp_path / "s.npz").exists()
