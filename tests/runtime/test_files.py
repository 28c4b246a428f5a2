from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from edgefold.runtime.files import lock_file, replacing, write_atomic
from edgefold.runtime.stop_signal import StopSignal


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for data in (b"first", b"second"):
        write_atomic(link, data)
        assert link.is_symlink() and target.read_bytes() == data
    assert names(tmp_path) == ["link", "target"]


def test_new_files_have_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    write_atomic(tmp_path / "secret", b"", mode=0o600)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("shared", [False, True])
def test_a_full_disk_leaves_the_older_file_and_is_named(
    tmp_path: Path, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("older")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as refused:
        write_atomic(path, b"newer", shared=shared)
    assert refused.value.errno == 28 and refused.value.filename == str(path)
    assert path.read_text() == "older" and names(tmp_path) == ["file"]


def test_a_block_that_fails_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older")
    with pytest.raises(ZeroDivisionError), replacing(path) as beside:
        beside.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "older" and names(tmp_path) == ["file"]


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_text("half of something longer")
    write_atomic(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole" and names(tmp_path) == ["file"]


def test_two_processes_that_share_a_file_each_write_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    with replacing(path, shared=True) as ours:
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda: 1)
            write_atomic(path, b"theirs", shared=True)
        assert path.read_bytes() == b"theirs"
        ours.write_bytes(b"ours")
    assert path.read_bytes() == b"ours" and names(tmp_path) == ["file"]


def test_a_lock_is_held_once_until_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock_file(path) as first, lock_file(path) as second:
        assert first and not second
    with lock_file(path) as again:
        assert again


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_is_noted_and_a_second_ctrl_c_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        assert not stop()
        signal.raise_signal(number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
