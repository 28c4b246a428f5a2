"""`edgefold deploy --program`: a board with a shell and seven programs, and no Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.cli.remote.program import processors_of
from edgefold.runtime.errors import BoardError
from tests.cli.remote.boards import Pc, Sshd, copy_of_bundle, find_sshd, key_pair

Text = pytest.CaptureFixture[str]
ASSUMED = ("sh", "cat", "mkdir", "mv", "rm", "uname", "df", "tar")
CHECKED = {
    "passed": True,
    "worst": 1e-7,
    "tolerance": 1e-5,
    "backend": {"name": "script", "version": "1"},
}
SOURCE = r"""
#include <stdio.h>
int main(void) { puts("edgefold-run %s of tiny, bundle 12"); return 0; }
"""


@pytest.fixture(scope="module", params=["system", "busybox"])
def bare(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Pc, Sshd]]:
    """A board with no other programs than those that every board has, as Debian or Alpine."""
    sshd, busybox = find_sshd(), shutil.which("busybox")
    if request.param == "busybox" and busybox is None:
        pytest.skip("no busybox here")
    folder = tmp_path_factory.mktemp("bare")
    tools = folder / "tools"
    tools.mkdir()
    for tool in ASSUMED:
        place = busybox if request.param == "busybox" else shutil.which(tool, path="/usr/bin:/bin")
        assert place
        (tools / tool).symlink_to(place)
    pc = Pc(folder, sshd, key_pair(folder / "key"))
    try:
        board = pc.board("router", str(tools))
        pc.require_login(board)
        yield pc, board
    finally:
        pc.close()


def static_program(folder: Path, version: str) -> Path:
    """Compile a static program that shows a version; skips without a compiler or a static libc."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    source, program = folder / "main.c", folder / "edgefold-tiny-run"
    source.write_text(SOURCE % version)
    command = [compiler, "-static", str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no static C library: {done.stderr.splitlines()[-1]}")
    return program


def deploy(pc: Pc, *words: object) -> int:
    return main(["deploy", "router", *map(str, words), "--ssh-config", str(pc.config)])


def shown_there(board: Sshd, name: str = "edgefold-tiny-run") -> str:
    program = board.home / "edgefold" / "bin" / name
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()[1]


def test_a_program_is_copied_started_and_taken_back(
    bare: tuple[Pc, Sshd], tmp_path: Path, capsys: Text
) -> None:
    """The board has neither sha256sum nor Python: the bytes come back and are compared here."""
    pc, board = bare
    first, second = (static_program(tmp_path / version, version) for version in ("1.0", "1.1"))
    shutil.rmtree(board.home / "edgefold", ignore_errors=True)
    assert deploy(pc, "--program", first) == 0
    assert shown_there(board) == "1.0"
    assert "starts: edgefold-run 1.0 of tiny" in capsys.readouterr().out
    assert deploy(pc, "--program", first) == 0
    assert "unchanged" in capsys.readouterr().out
    assert os.listdir(board.home / "edgefold" / "bin") == ["edgefold-tiny-run"]
    assert deploy(pc, "--program", second) == 0
    assert shown_there(board) == "1.1"
    assert shown_there(board, "edgefold-tiny-run.previous") == "1.0"
    assert deploy(pc, "--program", second, "--rollback") == 0
    assert shown_there(board) == "1.0"
    assert sorted(os.listdir(board.home / "edgefold")) == ["bin"]


def test_a_bundle_needs_an_edgefold_there(
    bare: tuple[Pc, Sshd], tmp_path: Path, capsys: Text
) -> None:
    pc, _ = bare
    assert deploy(pc, "--bundle", copy_of_bundle(tmp_path / "tiny")) == 6
    assert "no edgefold is there" in capsys.readouterr().err


def test_a_bundle_comes_to_a_board_with_a_shell_only(
    bare: tuple[Pc, Sshd], tmp_path: Path, capsys: Text
) -> None:
    """An edgefold that is a script stands in for one that a packager made."""
    pc, board = bare
    edgefold = board.home / "edgefold" / "bin" / "edgefold"
    edgefold.parent.mkdir(parents=True, exist_ok=True)
    edgefold.write_text(f"#!{shutil.which('sh')}\necho '{json.dumps(CHECKED)}'\n")
    edgefold.chmod(0o755)
    bundle = copy_of_bundle(tmp_path / "tiny")
    for _ in range(2):
        assert deploy(pc, "--bundle", bundle) == 0
        assert "passed, error 1.0e-07" in capsys.readouterr().out
    there = board.home / "edgefold" / "bundles"
    assert os.listdir(there) == ["tiny"]
    for name in os.listdir(bundle):
        assert (there / "tiny" / name).read_bytes() == (bundle / name).read_bytes()
    shutil.rmtree(board.home / "edgefold")


def test_a_program_that_does_not_start_replaces_nothing(
    bare: tuple[Pc, Sshd], tmp_path: Path, capsys: Text
) -> None:
    pc, board = bare
    program = static_program(tmp_path / "1", "1.0")
    assert deploy(pc, "--program", program) == 0
    damaged = tmp_path / "2" / program.name
    damaged.parent.mkdir()
    damaged.write_bytes(program.read_bytes()[:4096])
    assert deploy(pc, "--program", damaged) == 6
    assert "starting" in capsys.readouterr().err
    assert shown_there(board) == "1.0"


def header(machine: int, kind: int = 1) -> bytes:
    """The first bytes of a program of 64 bits with one part."""
    part = kind.to_bytes(4, "little") + bytes(52)
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    head[18:20] = machine.to_bytes(2, "little")
    head[32:40] = (64).to_bytes(8, "little")
    head[54:58] = (56).to_bytes(2, "little") + (1).to_bytes(2, "little")
    return bytes(head) + part


def test_a_program_for_another_processor_is_refused(
    bare: tuple[Pc, Sshd], tmp_path: Path, capsys: Text
) -> None:
    pc, board = bare
    other = tmp_path / "program"
    other.write_bytes(header(183 if os.uname().machine == "x86_64" else 62))
    before = sorted(board.home.rglob("*"))
    assert deploy(pc, "--program", other) == 1
    assert os.uname().machine in capsys.readouterr().err
    assert sorted(board.home.rglob("*")) == before


@pytest.mark.parametrize("content", [b"#!/bin/sh\n", header(62, kind=3), header(20), b""])
def test_what_is_no_static_program_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(content)
    with pytest.raises(BoardError):
        processors_of(path)


@pytest.mark.parametrize(("number", "name"), [(62, "x86_64"), (183, "aarch64"), (243, "riscv64")])
def test_the_processor_is_read_from_the_header(number: int, name: str, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(header(number))
    assert name in processors_of(path)[1]
