from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefold.runtime import files
from edgefold.runtime.errors import OutputError
from edgefold.runtime.files import OTHER_HOST_S, lock_file, replacing, try_lock, write_atomic
from edgefold.runtime.loop.run_files import snapshot_lock
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


def test_replacing_a_file_adds_nothing_to_the_table_of_unique_strings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[str] = []
    own = sys.intern

    def intern(text: str) -> str:
        added.append(text)
        return own(text)

    monkeypatch.setattr(sys, "intern", intern)
    Path("seen/by/pathlib").as_posix()
    if not added:
        pytest.skip("this Python's pathlib does not use the table")
    path = tmp_path / "file"
    added.clear()
    for _ in range(3):
        write_atomic(path, b"state")
    assert added == []


def test_new_files_have_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    write_atomic(tmp_path / "secret", b"", mode=0o600)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_the_older_file_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("older")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as refused:
        write_atomic(path, b"newer")
    assert refused.value.errno == 28 and refused.value.filename == str(path)
    assert path.read_text() == "older" and names(tmp_path) == ["file"]


def test_a_block_that_fails_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older")
    with pytest.raises(ZeroDivisionError), replacing(path) as beside:
        beside.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "older" and names(tmp_path) == ["file"]


def test_a_file_keeps_its_mode_unless_another_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for mode, asked in ((0o600, None), (0o640, None), (0o644, 0o600)):
        path.touch()
        path.chmod(mode)
        write_atomic(path, b"", mode=asked)
        assert path.stat().st_mode & 0o777 == (asked or mode)


def test_any_number_of_writers_each_write_a_file_whole_and_the_last_wins(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as ours:
        with replacing(path) as theirs:
            assert ours != theirs
            theirs.write_bytes(b"theirs")
        assert path.read_bytes() == b"theirs" and ours.exists()
        ours.write_bytes(b"ours")
    assert path.read_bytes() == b"ours" and names(tmp_path) == ["file"]


def left_behind(path: Path, host: str | None = None) -> Path:
    """Kill a process while it replaces a file; returns the temporary file that it leaves."""
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom edgefold.runtime import files\n"
        f"files._host = lambda own=files._host: {host!r} or own()\n"
        f"with files.replacing(Path({str(path)!r})) as beside:\n"
        "    beside.write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = path.parent.glob("*.tmp")
    return left


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "file"
    left_behind(path)
    for name in ("file.tmp", "file.0123abcd-0123abcd.tmp.txt", "files.0123abcd-0123abcd.tmp"):
        (tmp_path / name).touch()
    (tmp_path / "file.0123abcd-0123abcd.tmp").symlink_to(tmp_path / "file.tmp")
    write_atomic(path, b"whole")
    assert names(tmp_path) == [
        *("file", "file.0123abcd-0123abcd.tmp", "file.0123abcd-0123abcd.tmp.txt", "file.tmp"),
        "files.0123abcd-0123abcd.tmp",
    ]


def test_another_machines_temporary_file_is_removed_once_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "file"
    left = left_behind(path, host="0123abcd")
    write_atomic(path, b"whole")
    assert left.exists()
    os.utime(left, (0, time.time() - 2 * OTHER_HOST_S))
    write_atomic(path, b"whole")
    assert names(tmp_path) == ["file"]


def test_a_temporary_file_that_was_taken_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour may look between the making of a temporary file and its lock."""
    looked: list[int] = []

    def neighbour_first(handle: int) -> bool:
        if not looked:
            looked.append(handle)
            monkeypatch.setattr(files, "try_lock", try_lock)
            files._remove_leftovers(str(tmp_path / "file"))
        return try_lock(handle)

    monkeypatch.setattr(files, "try_lock", neighbour_first)
    write_atomic(tmp_path / "file", b"whole")
    assert looked and (tmp_path / "file").read_bytes() == b"whole"
    assert names(tmp_path) == ["file"]


def test_a_file_system_without_locks_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(handle: int) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files, "try_lock", none)
    with replacing(tmp_path / "file") as ours:
        write_atomic(tmp_path / "file", b"theirs")
        ours.write_bytes(b"ours")
    assert (tmp_path / "file").read_bytes() == b"ours"
    with pytest.raises(OutputError) as refused, snapshot_lock(tmp_path / "s.npz"):
        pass
    assert "user" not in str(refused.value)  # nobody else made the lock


def test_a_link_at_a_temporary_name_is_never_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    monkeypatch.setattr(os, "urandom", lambda n: bytes(n))
    (tmp_path / f"file.{files._host()}-00000000.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "file", b"ours")
    assert victim.read_text() == "theirs" and not (tmp_path / "file").exists()


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


def test_a_file_that_need_not_be_durable_costs_no_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    path = tmp_path / "a"
    write_atomic(path, b"new", durable=False)
    assert path.read_bytes() == b"new" and [*tmp_path.iterdir()] == [path]
    with pytest.raises(OSError):
        write_atomic(path, b"newer")
    assert path.read_bytes() == b"new"
