"""SIGKILL at random moments: the next run goes on as if nothing had happened.

Most runs are forked from a process that has the libraries loaded, so that the kills fall into the
run itself instead of into a third of a second of imports; the last ones are whole processes.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

N_FORKED, N_SPAWNED = 30, 5
N_ROWS = 200
EVERY = 5

KILLER = """
import json, os, random, signal, sys, time
import numpy, onnxruntime
import edgefold.runtime.loop.loop, edgefold.runtime.loop.adapters
from edgefold.cli.main import main

argv, n_kills, chains, seed = json.loads(sys.argv[1])


def fork(chain):
    words = [word.replace("CHAIN", str(chain)) for word in argv]
    child = os.fork()
    if child:
        return child
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(f"{chains}/errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os._exit(main(words))


start_s = time.monotonic()
os.waitpid(fork(0), 0)
whole_s = time.monotonic() - start_s
chance, outcomes, kills, chain = random.Random(seed), [[0, 0]], 0, 1
while kills < n_kills or outcomes[-1][1] != 0:
    child = fork(chain)
    if kills < n_kills:
        time.sleep(chance.uniform(0, 0.7 * whole_s))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    outcomes.append([chain, code])
    if code == 0:
        chain += 1
    elif code == -signal.SIGKILL:
        kills += 1
    else:
        break
print(json.dumps(outcomes))
"""


def series(path: Path) -> None:
    """A series with a malformed line now and then."""
    lines = ["time,value"]
    for i in range(N_ROWS):
        lines.append(f"{i},{400 + 5 * math.sin(i / 3):.3f}")
        if i % 41 == 17:
            lines.append("what,ever")
    path.write_text("\n".join(lines) + "\n")


def words_of(bundle: Path, folder: Path, chain: str) -> list[str]:
    return [
        *("run", str(bundle), "--input", str(folder / "in.csv")),
        *("--output", str(folder / f"p{chain}.csv"), "--snapshot", str(folder / f"s{chain}.npz")),
        *("--every", str(EVERY)),
    ]


def kept(snapshot: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Counters, of each sensor too, and arrays of a snapshot."""
    with np.load(snapshot) as archive:
        record = json.loads(archive["extra.loop"].tobytes())
        counters = {n: record.get(n) for n in ("counters", "names", "sensors")}
        state = {
            n: archive[n].tobytes() for n in archive.files if n not in {"record", "extra.loop"}
        }
    return counters, state


def assert_same(folder: Path, chain: str) -> None:
    """Predictions, counters and state equal the uninterrupted run's, byte for byte."""
    whole = (folder / "pwhole.csv").read_bytes()
    assert whole.count(b"\n") == N_ROWS + 1
    assert (folder / f"p{chain}.csv").read_bytes() == whole
    assert kept(folder / f"s{chain}.npz") == kept(folder / "swhole.npz")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: a kill keeps the page cache, so fsync only costs time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture
def whole(series_bundle: Path, folder: Path) -> float:
    """The uninterrupted run, and how long the whole process took."""
    series(folder / "in.csv")
    start_s = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "edgefold.cli.main",
        *words_of(series_bundle, folder, "whole"),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return time.monotonic() - start_s


def seeds(n: int) -> pytest.MarkDecorator:
    """Draw the moments n times; `make test` kills at the first ones, `make test-all` at all."""
    others = [pytest.param(seed, marks=pytest.mark.product) for seed in range(1, n)]
    return pytest.mark.parametrize("seed", [0, *others])


def killed_chains(argv: list[str], n_kills: int, folder: Path, seed: int) -> list[str]:
    """Run chains of killed and resumed commands to their ends; returns the chains' names.

    CHAIN in the words stands for the name. The first chain is not killed.
    """
    asked = json.dumps([argv, n_kills, str(folder), seed])
    done = subprocess.run(
        [sys.executable, "-c", KILLER, asked],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    errors = (folder / "errors").read_text()
    assert {code for _, code in outcomes} == {0, -9}, errors
    assert sum(code == -9 for _, code in outcomes) == n_kills
    # Some run really was cut in the middle; how many depends on the machine.
    assert "resumed from the snapshot" in errors
    return [str(chain) for chain in range(outcomes[-1][0] + 1)]


@pytest.mark.long
@seeds(6)
def test_killed_at_30_moments_inside_the_run(
    series_bundle: Path, folder: Path, whole: float, seed: int
) -> None:
    argv = words_of(series_bundle, folder, "CHAIN")
    for chain in killed_chains(argv, N_FORKED, folder, seed):
        assert_same(folder, chain)


@seeds(4)
def test_killed_at_5_moments_of_the_whole_process(
    series_bundle: Path, folder: Path, whole: float, seed: int
) -> None:
    chance = random.Random(seed)
    command = [sys.executable, "-m", "edgefold.cli.main", *words_of(series_bundle, folder, "0")]
    for _ in range(N_SPAWNED):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        time.sleep(chance.uniform(0.2, 1.0) * whole)
        process.kill()
        _, error = process.communicate(timeout=60)
        assert process.returncode in (0, -9), error
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert_same(folder, "0")
