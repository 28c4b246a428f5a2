"""SIGKILL at every change of the disk, and at random moments: the next run loses nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.export.native.loop.program_rig import (
    KILLS,
    Program,
    echoing,
    exported,
    kept,
    of_bundle,
)

N_ROWS, N_KILLS = 30, 200
N_RANDOM_ROWS = 3000


def write_rows(path: Path, n: int) -> None:
    """Rows with a bad one now and then."""
    chance = random.Random(3)
    lines = ["x1,y1"]
    for i in range(n):
        lines.append(f"{chance.gauss(0, 1):.3f},{chance.gauss(0, 1):.3f}")
        if i % 17 == 9:
            lines.append("what,ever")
    path.write_text("\n".join(lines) + "\n")


def words_of(folder: Path, name: str, every: int) -> list[str]:
    return [
        *("--input", str(folder / "in.csv"), "--output", str(folder / f"{name}.csv")),
        *("--snapshot", str(folder / f"{name}.s"), "--every", str(every)),
    ]


def echoed(folder: Path, name: str) -> tuple[bytes, bytes, object]:
    """The output, the state and the counters of a run."""
    snapshot = (folder / f"{name}.s").read_bytes()
    counters = json.loads(snapshot[16:])["counters"]
    return (folder / f"{name}.csv").read_bytes(), snapshot[:16], counters


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return echoing(tmp_path_factory.mktemp("echo"), KILLS, "kill_at.c")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: a kill keeps the page cache, so fsync only costs time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.mark.long
@pytest.mark.parametrize("every", [1, 7])
def test_killed_at_every_change_of_the_disk(program: Program, folder: Path, every: int) -> None:
    write_rows(folder / "in.csv", N_ROWS)
    whole = program.run(*words_of(folder, "whole", every))
    n_changes = int(whole.errors.split("changes ")[1])
    assert whole.code == 0 and n_changes > 6 * N_ROWS / every
    for k in range(1, n_changes + 1):
        words = words_of(folder, str(k), every)
        killed = program.run(*words, env={**os.environ, "KILL_AT": str(k)})
        assert killed.code == -signal.SIGKILL
        again = program.run(*words)
        assert again.code == 0, again.errors
        assert echoed(folder, str(k)) == echoed(folder, "whole"), k
    assert not list(folder.glob("*.tmp"))


@pytest.mark.slow
def test_killed_200_times_at_random_moments(folder: Path, tmp_path: Path) -> None:
    """Of the program of a real bundle, whose snapshots are Python's."""
    program = of_bundle(exported("gru:Gru", tmp_path / "bundle"), tmp_path / "c")
    write_rows(folder / "in.csv", N_RANDOM_ROWS)
    words = [*words_of(folder, "whole", 50), "--snapshot", str(folder / "whole.npz")]
    start_s = time.monotonic()
    assert program.run(*words).code == 0
    whole_s = time.monotonic() - start_s
    chance, n_killed, chain = random.Random(0), 0, 0
    while n_killed < N_KILLS or chain == 0:
        words = [*words_of(folder, str(chain), 50), "--snapshot", str(folder / f"{chain}.npz")]
        with subprocess.Popen([program.path, *words], stderr=subprocess.DEVNULL) as process:
            time.sleep(chance.uniform(0, 0.7 * whole_s))
            process.kill()
        assert process.returncode in (0, -signal.SIGKILL)
        n_killed += process.returncode != 0
        chain += process.returncode == 0
    for name in map(str, range(chain)):
        assert (folder / f"{name}.csv").read_bytes() == (folder / "whole.csv").read_bytes()
        (mine, state), (whole, whole_state) = (kept(folder / f"{n}.npz") for n in (name, "whole"))
        assert mine == whole
        assert {n: a.tobytes() for n, a in state.items()} == {
            n: a.tobytes() for n, a in whole_state.items()
        }
