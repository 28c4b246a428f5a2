"""`edgefold run --candidate`: a better model takes over, a worse one leaves no trace."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.cli.loop.service_manager import ServiceManager
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.shipped_bundles import gp_tiny
from edgefold.runtime.stream.provenance import PROVENANCE
from edgefold.runtime.stream.snapshot import bundle_of
from tests.cli.conftest import Command

SHIPPED = Path(next(iter(gp_tiny.__path__)))
N_ROWS = 700


def variant(folder: Path, name: str, scale: float) -> Path:
    """The shipped bundle, which takes values to have this scale; it fits those of scale 1 best."""
    place = folder / name
    shutil.copytree(SHIPPED, place, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["points"]["y"]["scale"] = [scale]
    (place / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return place


def rows(n: int = N_ROWS, noise: float = 0.1, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    lines = []
    for _ in range(n):
        x = chance.uniform(-2, 2)
        lines.append(f"{x:.4f},{math.sin(3 * x) + chance.gauss(0, noise):.4f}")
    return lines


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["x1,y1", *rows()]) + "\n")
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return variant(tmp_path, "good", 1.0)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return variant(tmp_path, "bad", 30.0)


def words(bundle: Path, table: Path, folder: Path, name: str, *more: object) -> list[str]:
    files = ["--output", folder / f"{name}.csv", "--snapshot", folder / f"{name}.npz"]
    return [str(word) for word in ("run", bundle, "--input", table, *files, *more)]


def arrays(path: Path) -> dict[str, Any]:
    """The arrays of a snapshot, but for the records, which name the output's own file."""
    with np.load(path) as archive:
        return {
            name: archive[name] for name in archive if "record" not in name and "loop" not in name
        }


def same(first: Path, second: Path) -> bool:
    one, other = arrays(first), arrays(second)
    return one.keys() == other.keys() and all(
        one[name].tobytes() == other[name].tobytes() for name in one
    )


def predictions(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def test_a_better_candidate_speaks_then_takes_over_and_stays(
    edgefold: Command, table: Path, good: Path, bad: Path, tmp_path: Path
) -> None:
    edgefold(*words(bad, table, tmp_path, "bad"))
    edgefold(*words(good, table, tmp_path, "good"))
    trial = ["--candidate", good, "--probation", 50, "--every", 20]
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial", *trial))
    assert code == 0
    assert "the candidate speaks from now on" in error
    assert "the candidate has taken over after 50 rows of probation" in error
    old, new, tried = (predictions(tmp_path / f"{n}.csv") for n in ("bad", "good", "trial"))
    n_old = next(at for at, row in enumerate(tried) if row != old[at])
    assert 10 < n_old < N_ROWS - 50 and tried == [*old[:n_old], *new[n_old:]]
    assert same(tmp_path / "trial.npz", tmp_path / "good.npz")
    assert bundle_of(tmp_path / "trial.npz") == bundle_of(tmp_path / "good.npz")
    assert not [*tmp_path.glob("*.candidate.*")]
    with table.open("a") as file:
        file.write("\n".join(rows(20, seed=2)) + "\n")
    edgefold(*words(good, table, tmp_path, "good"))
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial", *trial))
    assert code == 0 and "has taken over before" in error
    assert predictions(tmp_path / "trial.csv")[-20:] == predictions(tmp_path / "good.csv")[-20:]


def test_a_worse_candidate_is_never_heard_and_leaves_no_trace(
    edgefold: Command, table: Path, good: Path, bad: Path, tmp_path: Path
) -> None:
    edgefold(*words(good, table, tmp_path, "alone"))
    code, _, error = edgefold(*words(good, table, tmp_path, "trial", "--candidate", bad))
    assert code == 0 and "candidate     not heard yet" in error
    assert predictions(tmp_path / "trial.csv") == predictions(tmp_path / "alone.csv")
    assert same(tmp_path / "trial.npz", tmp_path / "alone.npz")


def test_a_candidate_that_turns_out_worse_is_rolled_back_without_a_trace(
    edgefold: Command, good: Path, bad: Path, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    wild = [f"{line.partition(',')[0]},{40 * (-1) ** i}" for i, line in enumerate(rows(150))]
    table.write_text("\n".join(["x1,y1", *rows(400), *wild]) + "\n")
    edgefold(*words(bad, table, tmp_path, "alone"))
    trial = ["--candidate", good, "--probation", 5000, "--every", 10]
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial", *trial))
    assert code == 0 and "the candidate is given up: it scored" in error
    alone, tried = predictions(tmp_path / "alone.csv"), predictions(tmp_path / "trial.csv")
    assert tried[:5] == alone[:5] and tried[-5:] == alone[-5:] and tried != alone
    assert same(tmp_path / "trial.npz", tmp_path / "alone.npz")
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial", *trial))
    assert "the candidate was given up before" in error


def test_a_candidate_learns_the_rows_that_were_kept(
    edgefold: Command,
    table: Path,
    good: Path,
    bad: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = tmp_path / "first.csv"
    lines = table.read_text().splitlines(keepends=True)
    first.write_text("".join(lines[:401]))
    keep = ["--keep-rows", "1MB", "--every", 30]
    edgefold(*words(bad, first, tmp_path, "trial", *keep))
    first.write_text("".join(lines))
    more = [*keep, "--candidate", good, "--probation", 20]
    signs: list[ServiceManager] = []
    with monkeypatch.context() as patched:
        patched.setattr(ServiceManager, "idle", lambda service: signs.append(service))
        code, _, error = edgefold(*words(bad, first, tmp_path, "trial", *more))
    assert code == 0 and "begins with 400 rows that were kept" in error
    assert len(signs) == 400  # systemd must not take thousands of rows for a hang
    edgefold(*words(good, table, tmp_path, "good"))
    assert predictions(tmp_path / "trial.csv")[-5:] == predictions(tmp_path / "good.csv")[-5:]
    tried, alone = (arrays(tmp_path / f"{name}.npz") for name in ("trial", "good"))
    stated = [each.pop(f"extra.{PROVENANCE}").tobytes() for each in (tried, alone)]
    # The numbers of kept rows are unknown: what the candidate has learned of them is not stated.
    assert [json.loads(text)[0][0][2] for text in stated] == [400, 0]
    assert all(tried[name].tobytes() == alone[name].tobytes() for name in alone)


def test_a_run_without_the_candidate_says_what_it_ends_and_goes_on_with_the_old_model(
    edgefold: Command, table: Path, good: Path, bad: Path, tmp_path: Path
) -> None:
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:300]))
    trial = ["--candidate", good, "--probation", 5000]
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial", *trial))
    assert code == 0 and "candidate     speaks, on probation" in error
    spoken = predictions(tmp_path / "trial.csv")
    # A run that gets no row ends nothing, since the candidate has missed none.
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial"))
    assert code == 0 and f"the trial of {good} ends" in error
    assert "the candidate spoke, on probation over " in error
    assert "from this row on the old model speaks again" in error
    assert [*tmp_path.glob("trial.npz.candidate.*")]
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial", *trial))
    assert code == 0 and "candidate     speaks, on probation" in error
    # With a row it ends, and the old model has learned all that came in the meantime.
    table.write_text("".join(lines))
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial"))
    assert code == 0 and f"give --candidate {good} again" in error
    assert not [*tmp_path.glob("trial.npz.candidate.*")]
    edgefold(*words(bad, table, tmp_path, "alone"))
    alone = predictions(tmp_path / "alone.csv")
    assert predictions(tmp_path / "trial.csv") == [*spoken, *alone[len(spoken) :]]
    assert same(tmp_path / "trial.npz", tmp_path / "alone.npz")
    code, _, error = edgefold(*words(bad, table, tmp_path, "trial"))
    assert code == 0 and "the trial of" not in error


def test_the_old_command_names_the_bundle_that_took_over(
    edgefold: Command, table: Path, good: Path, bad: Path, tmp_path: Path
) -> None:
    trial = ["--candidate", good, "--probation", 50]
    edgefold(*words(bad, table, tmp_path, "trial", *trial))
    with table.open("a") as file:
        file.write("\n".join(rows(20, seed=2)) + "\n")
    for of in (bad, good, bad):  # a snapshot that the candidate writes later names it too
        code, _, error = edgefold(*words(of, table, tmp_path, "trial"))
        assert (code == 0) == (of == good)
        if of == bad:
            assert f"Run {good} with the same options" in error and "remove" not in error


KILLER = """
import os, signal, sys
from edgefold.runtime import files
from edgefold.runtime.sinks import output_file
from edgefold.cli.main import main

left = int(sys.argv[1])
for name in ("fsync", "fdatasync", "replace", "write", "pwrite", "unlink"):
    def killing(*args, _call=getattr(os, name), **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return _call(*args, **more)
    setattr(os, name, killing)
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("n_calls", [40, pytest.param(17, marks=pytest.mark.long)])
def test_kills_at_any_step_of_the_swap_change_nothing(
    edgefold: Command, table: Path, good: Path, bad: Path, tmp_path: Path, n_calls: int
) -> None:
    trial = ["--candidate", good, "--probation", 60, "--every", 25, "--keep-rows", "600kB"]
    edgefold(*words(bad, table, tmp_path, "whole", *trial))
    command = words(bad, table, tmp_path, "killed", *trial)
    for n_kills in range(200):
        done = subprocess.run(
            [sys.executable, "-c", KILLER, str(n_calls + n_kills % 13), *command],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != -signal.SIGKILL:
            break
    assert done.returncode == 0 and n_kills > 3, done.stderr
    assert predictions(tmp_path / "killed.csv") == predictions(tmp_path / "whole.csv")
    assert same(tmp_path / "killed.npz", tmp_path / "whole.npz")


def test_what_cannot_take_over_is_refused(
    edgefold: Command, table: Path, good: Path, tmp_path: Path, series_bundle: Path
) -> None:
    with pytest.raises(SystemExit):
        edgefold("run", good, "--input", table, "--candidate", good)
    code, _, error = edgefold(*words(good, table, tmp_path, "a", "--candidate", "sensors"))
    assert code != 0 and "Traceback" not in error
    code, _, error = edgefold(*words(good, table, tmp_path, "b", "--candidate", good))
    assert code == 0 and "is the bundle itself" in error
