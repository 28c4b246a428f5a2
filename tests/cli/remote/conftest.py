"""Two boards on loopback for the tests of this folder, and a stand-in for the edgefold on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.remote.boards import Pc, Sshd, find_sshd, key_pair


@pytest.fixture(scope="module")
def pc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pc]:
    """The PC of a module's tests; the boards that it starts end with the module."""
    sshd = find_sshd()
    folder = tmp_path_factory.mktemp("boards")
    pc = Pc(folder, sshd, key_pair(folder / "key"))
    try:
        pc.require_login(pc.board("kitchen"))
        pc.board("roof")
        yield pc
    finally:
        pc.close()


@pytest.fixture
def kitchen(pc: Pc) -> Iterator[Sshd]:
    """The first board, with an empty home."""
    yield from clean(pc.boards[0])


@pytest.fixture
def roof(pc: Pc) -> Iterator[Sshd]:
    """The second board, with an empty home."""
    yield from clean(pc.boards[1])


def clean(board: Sshd) -> Iterator[Sshd]:
    import shutil

    for folder in (board.home, board.programs):
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir()
    yield board
