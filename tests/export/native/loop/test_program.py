"""The C program of a bundle does what `edgefold run` does: rows, counters, snapshots, ends."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.cli.main import main
from edgefold.export.native.loop_program import program_sources, require_rows_of_points
from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ExportError
from tests.export.native.loop.program_rig import TRAP, Program, exported, kept, of_bundle

N_ROWS = 2000
BAD = ("oops", "NA", "1e12", "inf", '"', "1_0", "", "1e200")
QUICK = ("gru:Gru", "keyword_spotter:KeywordSpotter")
SLOW = (
    *("kalman:Kalman", "lstm:Lstm", "rls:Rls", "ssm:Ssm", "tcn:Tcn", "transformer:Transformer"),
    "canp width=16 n_heads=2 capacity=12",  # is full soon
    "np width=16 n_samples=3",  # predicts a mixture, of a seed
    "thp width=16 n_heads=2 n_layers=2 feedforward=16 window=5",  # predicts the next event
    "window-transformer width=16 n_heads=2 n_inputs=3 n_classes=4 n_layers=2 window=12",
)
TOLERANCE = 2e-5  # float32 recurrences over 2000 rows; the program and onnxruntime round apart


@dataclass(frozen=True)
class Subject:
    """A bundle, its program, and rows of which some are bad."""

    bundle: Path
    program: Program
    rows: Path

    @property
    def manifest(self) -> Manifest:
        return load_manifest(self.bundle)

    def words(self, folder: Path, name: str, rows: Path | None = None) -> list[str]:
        return [
            *("--input", str(rows or self.rows), "--output", str(folder / f"{name}.csv")),
            *("--snapshot", str(folder / f"{name}.npz"), "--every", "70"),
        ]

    def in_python(self, words: list[str], backend: str = "onnxruntime") -> int:
        return main(["run", str(self.bundle), *words, "--backend", backend])


def write_rows(manifest: Manifest, path: Path) -> None:
    """Rows around the scaling of a bundle; one in twenty cannot be used."""
    chance = random.Random(5)
    y = () if manifest.is_filter else manifest.scaling_y.scale
    names = [f"x{i + 1}" for i in range(manifest.n_inputs)] + [f"y{i + 1}" for i in range(len(y))]
    shift = [*manifest.scaling_x.shift, *manifest.scaling_y.shift][: len(names)]
    scale = [*manifest.scaling_x.scale, *y]
    lines = [",".join(names)]
    for _ in range(N_ROWS):
        row = [f"{b + a * chance.gauss(0, 1):.6g}" for a, b in zip(scale, shift, strict=True)]
        kind = chance.randrange(60)
        if kind == 0:
            row[chance.randrange(len(row))] = chance.choice(BAD)
        elif kind == 1:
            row += ["7"]
        elif kind == 2:
            row[0] = f'" {row[0]} "'
        lines.append(",".join(row) + "\r" * (kind == 3) + "\n " * (kind == 4))
    path.write_text("\n".join(lines) + "\n")


def subject_of(model: str, folder: Path) -> Subject:
    """A model of the examples or of the registry, with settings behind its name."""
    name, *settings = model.split()
    words = [word for setting in settings for word in ("--set", setting)]
    bundle, rows = exported(name, folder / "bundle", *words), folder / "rows.csv"
    write_rows(load_manifest(bundle), rows)
    return Subject(bundle, of_bundle(bundle, folder / "c"), rows)


@pytest.fixture(scope="module")
def subject_named(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    """Subjects by model, each made once."""
    return functools.cache(lambda name: subject_of(name, tmp_path_factory.mktemp("subject")))


@pytest.fixture(params=[*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def subject(request: pytest.FixtureRequest, subject_named: Callable[[str], Subject]) -> Subject:
    return subject_named(request.param)


@pytest.fixture
def gru(subject_named: Callable[[str], Subject]) -> Subject:
    return subject_named(QUICK[0])


def assert_alike(subject: Subject, folder: Path, ours: str, theirs: str) -> None:
    """Rows and counts are equal; numbers of the model are near each other."""
    manifest = subject.manifest
    n = 1 + manifest.n_inputs + (0 if manifest.is_filter else manifest.n_outputs)
    mine, others = (table_of(folder / f"{name}.csv") for name in (ours, theirs))
    assert [row[:n] for row in mine] == [row[:n] for row in others]
    if not {"class", "next_mark"} & set(mine[0]):  # of untrained weights two may be alike
        assert_near(*(np.array([row[n:] for row in table[1:]], float) for table in (mine, others)))
    (form, state), (other_form, other_state) = (
        kept(folder / f"{name}.npz") for name in (ours, theirs)
    )
    assert state.keys() == other_state.keys()
    for name, array in state.items():
        assert_near(array, other_state[name])
    assert_near(squared_errors(form), squared_errors(other_form))
    for found in (form, other_form):
        del found["output"]["seam"], found["output"]["length"], found["counters"]["squared_error"]
    assert form == other_form


def table_of(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def squared_errors(record: dict[str, Any]) -> Array:
    return np.array(record["counters"]["squared_error"])


def assert_near(mine: Array, other: Array) -> None:
    np.testing.assert_allclose(mine, other, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.one_case
def test_rows_counts_and_snapshot_are_those_of_python(subject: Subject, tmp_path: Path) -> None:
    ended = subject.program.run(*subject.words(tmp_path, "c"))
    assert ended.code == subject.in_python(subject.words(tmp_path, "python")) == 0
    assert_alike(subject, tmp_path, "c", "python")


@pytest.mark.one_case
def test_a_snapshot_of_one_is_resumed_by_the_other(subject: Subject, tmp_path: Path) -> None:
    lines, growing = subject.rows.read_bytes().split(b"\n"), tmp_path / "in.csv"
    assert subject.program.run(*subject.words(tmp_path, "whole")).code == 0
    for name, order in (("c", "cp"), ("python", "pc"), ("turns", "cpcp")):
        for number, who in enumerate(order, 1):
            end = b"\n" * (number < len(order))
            growing.write_bytes(b"\n".join(lines[: len(lines) * number // len(order)]) + end)
            words = subject.words(tmp_path, name, growing)
            code = subject.program.run(*words).code if who == "c" else subject.in_python(words)
            assert code == 0
        assert_alike(subject, tmp_path, name, "whole")


@pytest.mark.slow
def test_bytes_are_those_of_the_backend_native(
    gru: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEFOLD_CACHE", str(tmp_path / "cache"))
    assert main(["build", str(gru.bundle), "--flags=-O1"]) == 0
    assert gru.program.run(*gru.words(tmp_path, "c")).code == 0
    assert gru.in_python(gru.words(tmp_path, "native"), "native") == 0
    assert (tmp_path / "c.csv").read_bytes() == (tmp_path / "native.csv").read_bytes()
    (mine, my_state), (other, other_state) = (kept(tmp_path / f"{n}.npz") for n in ("c", "native"))
    assert mine == other
    assert {name: array.tobytes() for name, array in my_state.items()} == {
        name: array.tobytes() for name, array in other_state.items()
    }


def test_a_pipe_is_answered_row_by_row_and_stops_with_a_signal(
    gru: Subject, tmp_path: Path
) -> None:
    output, snapshot = tmp_path / "out.csv", tmp_path / "s.npz"
    words = ["--input", "-", "--output", str(output), "--snapshot", str(snapshot)]
    with subprocess.Popen(
        [gru.program.path, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stderr
        process.stdin.write(b"x1,y1\n1,2\n")
        process.stdin.flush()
        for _ in range(500):
            if output.exists() and output.read_text().count("\n") == 2:
                break
            time.sleep(0.02)
        assert output.read_text().count("\n") == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert b"the same command resumes" in process.stderr.read()
    assert gru.program.run(*words, given=b"3,4\n").code == 0
    assert output.read_text().count("\n") == 3


@pytest.mark.long
def test_the_loop_asks_for_no_memory(gru: Subject, tmp_path: Path) -> None:
    trapped = of_bundle(gru.bundle, tmp_path / "c", TRAP, "malloc_trap.c")
    asking = trapped.run(
        *("--input", "-"), given=b"x1,y1\n1,2\n", env={**os.environ, "ASK_IN_THE_LOOP": "1"}
    )
    assert asking.code == 99  # the trap itself works
    for words in (gru.words(tmp_path, "out"), gru.words(tmp_path, "out")):  # begun, then resumed
        ended = trapped.run(*words)
        assert ended.code == 0 and "asked 0 times" in ended.errors
    assert "resumed from the snapshot" in ended.errors


def test_files_are_refused_as_in_python(gru: Subject, tmp_path: Path) -> None:
    words = gru.words(tmp_path, "out")
    same = ["--input", str(gru.rows), "--output", str(gru.rows)]
    assert gru.program.run(*same, "--force").code == 1 and gru.rows.stat().st_size > 1000
    assert gru.program.run("--input", tmp_path / "missing").code == 1
    (tmp_path / "out.csv").write_text("somebody's")
    assert "exists and there is no snapshot" in gru.program.run(*words).errors
    assert gru.program.run(*words, "--force").code == 0
    other = gru.program.run(*words, "--anomaly-z", "3")
    assert other.code == 1 and "--anomaly-z" in other.errors
    snapshot = tmp_path / "out.npz"
    damaged = bytearray(snapshot.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    snapshot.write_bytes(damaged)
    assert "damaged" in gru.program.run(*words).errors
    full = gru.program.run("--input", gru.rows, "--output", "/dev/full")
    assert full.code == 6 and "/dev/full" in full.errors


def test_an_input_that_was_changed_is_refused(gru: Subject, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("x1,y1\n1,2\n2,3\n")
    words = gru.words(tmp_path, "out", source)
    assert gru.program.run(*words).code == 0
    source.write_text("x1,y1\n1,2\n2,4\n5,6\n")
    ended = gru.program.run(*words)
    assert ended.code == 1 and "is not the input" in ended.errors


def test_what_the_program_cannot_serve_is_refused_when_it_is_written(
    gru: Subject, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="2 streams"):
        program_sources(exported("gru:Gru", tmp_path / "two", "--streams", "2"))
    for task, told in (({"name": "series"}, "features"), ({"rows": "events"}, "events")):
        with pytest.raises(ExportError, match=told):
            require_rows_of_points(replace(gru.manifest, task=task))
