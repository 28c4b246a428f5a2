"""The C program's files: links, locks, names that vanish, and what the system refuses."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from edgefold.export.native.toolchain.compilers import compile_program, find_compiler
from edgefold.export.native.toolchain.targets import TARGETS
from edgefold.runtime.files import OTHER_HOST_S
from tests.export.native.loop.program_rig import FAILS, Ended, Program, echoing

ROWS = "x1,y1\n" + "1,2\n" * 300


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return echoing(tmp_path_factory.mktemp("echo"), FAILS, "fail_at.c")


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Of a run in a folder of its own."""
    (tmp_path / "in.csv").write_text(ROWS)
    places = {"input": "in.csv", "output": "out.csv", "snapshot": "s"}
    return [word for name, file in places.items() for word in (f"--{name}", str(tmp_path / file))]


def run_with(program: Program, words: list[str], call: str, error: int, file: str) -> Ended:
    """Run it where the system refuses a call on a file."""
    return program.run(*words, env={**os.environ, "FAIL": f"{call} {error} {file}"})


@pytest.mark.long
@pytest.mark.parametrize(("link", "target"), [("out.csv", "s"), ("s", "out.csv"), ("s", "s")])
def test_a_link_to_a_file_that_does_not_exist_yet_is_followed(
    echo: Program, words: list[str], tmp_path: Path, link: str, target: str
) -> None:
    (tmp_path / link).symlink_to(target)
    ended = echo.run(*words, "--force")
    assert ended.code == 1
    assert ("same file" if link != target else "symbolic links") in ended.errors
    assert sorted(os.listdir(tmp_path)) == sorted({"in.csv", link})


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_snapshot_is_kept_and_locked_where_its_links_end(
    echo: Program, words: list[str], tmp_path: Path, is_absolute: bool
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (below / "second").symlink_to("kept")
    (tmp_path / "s").symlink_to(below / "second" if is_absolute else "below/second")
    assert echo.run(*words).code == 0
    assert (tmp_path / "s").is_symlink() and (below / "second").is_symlink()
    assert sorted(os.listdir(below)) == ["kept", "kept.lock", "second"]


def test_predictions_for_a_closed_standard_output_are_not_lost_silently(
    echo: Program, words: list[str]
) -> None:
    words[3] = "-"
    ended = echo.run(*words[:4], preexec_fn=lambda: os.close(1))
    assert ended.code == 6
    assert "Bad file descriptor" in ended.errors


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_output_that_loses_its_name_ends_the_run(
    echo: Program, words: list[str], tmp_path: Path, is_replaced: bool
) -> None:
    output, words[1] = tmp_path / "out.csv", "-"
    with subprocess.Popen(
        [echo.path, *words, "--every", "1"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stderr
        process.stdin.write(b"x1,y1\n1,2\n")
        process.stdin.flush()
        for _ in range(500):
            if output.exists() and output.read_text().count("\n") == 2:
                break
            time.sleep(0.02)
        output.rename(tmp_path / "moved.csv")
        if is_replaced:
            shutil.copy(tmp_path / "moved.csv", output)
        process.stdin.write(b"3,4\n")
        process.stdin.close()
        assert process.wait(timeout=20) == 1
        assert b"removed, renamed or replaced" in process.stderr.read()
    os.replace(tmp_path / "moved.csv", output)
    assert echo.run(*words, given=b"5,6\n").code == 0
    assert [line.split(",")[1] for line in output.read_text().splitlines()[1:]] == ["1", "5"]


@pytest.mark.parametrize(
    ("call", "file", "told"),
    [
        ("read", "/s", "cannot be read"),
        ("pread", "/out.csv", "cannot be read"),
        ("read", "/in.csv", "cannot read"),
        ("pread", "/in.csv", "cannot read"),
    ],
)
def test_a_disk_that_cannot_be_read_is_the_machines_failure(
    echo: Program, words: list[str], tmp_path: Path, call: str, file: str, told: str
) -> None:
    assert echo.run(*words).code == 0
    with (tmp_path / "in.csv").open("a") as source:
        source.write("3,4\n")
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    ended = run_with(echo, words, call, errno.EIO, file)
    assert ended.code == 6 and told in ended.errors
    assert os.strerror(errno.EIO) in ended.errors
    assert kept == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert echo.run(*words).code == 0


def test_the_name_of_a_new_output_is_brought_to_the_disk(
    echo: Program, words: list[str], tmp_path: Path
) -> None:
    """Else a snapshot could outlive, after a power cut, the output that it continues."""
    (tmp_path / "below").mkdir()
    words[words.index("--output") + 1] = str(tmp_path / "below" / "out.csv")
    ended = run_with(echo, words, "fsync", errno.EIO, "/below")
    assert ended.code == 6 and os.strerror(errno.EIO) in ended.errors


@pytest.mark.parametrize("file", ["/s.lock", "/out.csv"])
def test_a_file_system_without_locks_is_refused(echo: Program, words: list[str], file: str) -> None:
    ended = run_with(echo, words, "flock", errno.ENOLCK, file)
    assert ended.code == 6 and os.strerror(errno.ENOLCK) in ended.errors


@pytest.mark.parametrize(
    ("error", "code"), [(errno.EROFS, 6), (errno.ENOSPC, 6), (errno.EACCES, 1)]
)
def test_a_lock_that_cannot_be_made_is_the_machines_or_the_places_fault(
    echo: Program, words: list[str], error: int, code: int
) -> None:
    ended = run_with(echo, words, "open", error, "/s.lock")
    assert ended.code == code and "cannot be made" in ended.errors


def test_a_lock_of_another_user_names_the_owner(
    echo: Program, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "s.lock").touch()
    ended = run_with(echo, words, "open", errno.EACCES, "/s.lock")
    assert ended.code == 1 and f"user {os.geteuid()}" in ended.errors


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which Python ignores, and a shell does not


@pytest.mark.parametrize("file", ["--output", "--snapshot"])
def test_a_file_beyond_its_limit_is_told_and_leaves_no_temporary_file(
    echo: Program, words: list[str], tmp_path: Path, file: str
) -> None:
    at = words.index(file)
    chosen = [*words[:2], *words[at : at + 2]]
    if file == "--snapshot":  # its record holds the header
        (tmp_path / "in.csv").write_text(f"{'x' * 2000},y1\n1,2\n")
    ended = echo.run(*chosen, preexec_fn=limit_files)
    assert ended.code == 6 and os.strerror(errno.EFBIG) in ended.errors
    assert not list(tmp_path.glob("*.tmp"))


def test_an_output_that_is_a_socket_is_refused_at_once(
    echo: Program, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("out.csv")
        ended = echo.run(*words)
    assert ended.code == 1 and os.strerror(errno.ENXIO) in ended.errors


def test_temporary_files_of_other_machines_are_removed_once_they_are_old(
    echo: Program, words: list[str], tmp_path: Path
) -> None:
    names = ["s.12345678-0badcafe.tmp", "s.12345678-0badcaff.tmp", "s.1234567-0badcafe.tmp"]
    old_s = time.time() - OTHER_HOST_S - 60
    for name in names:
        (tmp_path / name).touch()
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, (old_s, old_s))
    assert echo.run(*words).code == 0
    assert sorted(path.name for path in tmp_path.glob("*.tmp")) == sorted(names[1:])


def test_a_program_for_32_bits_takes_large_files_and_late_dates(tmp_path: Path) -> None:
    target = TARGETS["arm-linux-gnueabihf"]
    if not shutil.which(target.compiler):
        pytest.skip(f"{target.compiler} is not installed")
    wide = "sizeof(off_t) == 8 && (sizeof(time_t) == 8 || !__GLIBC_PREREQ(2, 34)) ? 1 : -1"
    text = f"#include <sys/types.h>\n#include <time.h>\nchar wide[{wide}];\n"
    files = {"wide.c": f"{text}int main(void) {{ return 0; }}\n"}
    compile_program(files, find_compiler(target=target), tmp_path)
