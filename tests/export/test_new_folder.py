"""The folder in which a bundle is made, and what killed exports leave of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from edgefold.export import bundle_files
from edgefold.export.bundle_files import new_folder

MAKE = """
import os, signal, sys
from pathlib import Path
from edgefold.export import bundle_files

place, moment = Path(sys.argv[1]), sys.argv[2]
rename = Path.rename

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def killed(path, target):
    return die() if path.name == "new" else rename(path, target)

if moment == "swap":  # where two folders cannot change places
    bundle_files._exchange = lambda *_: False
    Path.rename = killed
if moment == "made":
    bundle_files.lock_file = die
if moment == "removal":
    bundle_files._remove = die
if moment == "rmdir":
    rmdir = os.rmdir
    os.rmdir = lambda path, **k: die() if Path(path).name[0] == "." else rmdir(path, **k)
with bundle_files.new_folder(place, force=True) as folder:
    (folder / "manifest.json").write_text("{}")
    if moment == "work":
        os.kill(os.getpid(), signal.SIGKILL)
    if moment == "wait":
        print("ready", flush=True)
        sys.stdin.read()
"""


def export(place: Path, moment: str) -> int:
    return subprocess.run([sys.executable, "-c", MAKE, place, moment], check=False).returncode


def make(place: Path, text: str) -> None:
    with new_folder(place, force=True) as folder:
        (folder / "manifest.json").write_text(text)


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["bundle", "b*[1]"])
@pytest.mark.parametrize("moment", ["made", "work", "removal", "rmdir"])
def test_the_next_export_removes_what_a_killed_one_left(
    tmp_path: Path, name: str, moment: str
) -> None:
    place = tmp_path / name
    make(place, "old")
    assert export(place, moment) == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    kept = (place / "manifest.json").read_text()
    assert kept == ("old" if moment in ("made", "work") else "{}")
    make(place, "mine")
    assert list(tmp_path.iterdir()) == [place]


def test_a_folder_that_is_taken_for_a_leftover_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, made = tmp_path / "bundle", tempfile.mkdtemp

    def swept(**words: Any) -> str:
        monkeypatch.undo()
        folder: str = made(**words)
        bundle_files._sweep(place)
        assert not Path(folder).exists()
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    make(place, "mine")
    assert (place / "manifest.json").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [place]


def test_a_reader_finds_the_old_or_the_new_bundle_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    if not bundle_files._exchange(one, other):
        pytest.skip("folders cannot change places on this file system")
    place = tmp_path / "bundle"
    make(place, "old")
    monkeypatch.setattr(Path, "rename", None)  # of which two would be needed
    make(place, "new")
    assert (place / "manifest.json").read_text() == "new"


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_bundle_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    place, done = tmp_path / "bundle", []
    make(place, "old")
    fsync, exchange, rename = os.fsync, bundle_files._exchange, Path.rename

    def noted_fsync(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def noted_exchange(one: Path, other: Path) -> bool:
        done.append("named")
        return can_exchange and exchange(one, other)

    def noted_rename(path: Path, target: Path) -> Path:
        done.append("named")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(bundle_files, "_exchange", noted_exchange)
    monkeypatch.setattr(Path, "rename", noted_rename)
    make(place, "new")
    first, last = done.index("named"), len(done) - done[::-1].index("named")
    assert set(done[:first]) == {"manifest.json", "new"}
    assert tmp_path.name in done[last:]


def test_a_bundle_that_a_killed_export_had_set_aside_is_put_back(tmp_path: Path) -> None:
    place = tmp_path / "bundle"
    make(place, "old")
    assert export(place, "swap") == -signal.SIGKILL
    assert not place.exists()
    with pytest.raises(KeyError), new_folder(place, force=True):
        assert (place / "manifest.json").read_text() == "old"
        raise KeyError  # this export fails as well: the old bundle stays
    assert (place / "manifest.json").read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]


def test_an_export_that_still_runs_keeps_its_folder(tmp_path: Path) -> None:
    place = tmp_path / "bundle"
    words = [sys.executable, "-c", MAKE, str(place), "wait"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin and running.stdout and running.stdout.readline()
        make(place, "mine")
        assert len(list(tmp_path.iterdir())) == 2
        running.stdin.close()
        assert running.wait() == 0  # it replaces the other one, as it was asked to
    assert (place / "manifest.json").read_text() == "{}"
    assert list(tmp_path.iterdir()) == [place]


def test_only_folders_that_an_export_made_are_removed(tmp_path: Path) -> None:
    place = tmp_path / "bundle"
    others = [tmp_path / name for name in (".bundle.export-mine", ".bundle.tmp", "elsewhere")]
    for folder in others:
        folder.mkdir()
        (folder / "precious").write_text("")
    (others[2] / "lock").write_text("")
    (tmp_path / ".bundle.export-link").symlink_to(others[2])
    make(place, "mine")
    assert all((folder / "precious").exists() for folder in others)


def test_a_signed_bundle_is_replaced_with_its_signature(tmp_path: Path) -> None:
    place = tmp_path / "bundle"
    make(place, "old")
    (place / "signature.json").write_text("{}")
    make(place, "new")
    assert os.listdir(place) == ["manifest.json"]
