"""Two worlds with the same events: in one `edgefold run` runs, in the other the C program.

The input grows, is cut, rewritten or has half a line at its end; runs resume, start over, read a
pipe. After each event both have ended with the same code and left the same rows and records.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.main import main
from tests.export.native.loop.program_rig import Program, exported, kept, of_bundle

N_WORLDS = 25
HEADS = ("x1,y1\n", "y1,x1\n", "", "a,b,x1,y1\n", "x1;y1\n", "\ufeffx1,y1\r\n")
ODD = (
    *("oops,1", "1", "", "  ", "NA,2", "1,2,3", '"', "\xff,1", "1e11,3", "x1,y1", "y1,x1", "0,\0"),
    "9" * 70_000,
)
END = b"1,2\n3,4\n"


def line_of(chance: random.Random) -> bytes:
    if chance.random() < 0.8:
        return f"{chance.gauss(0, 1):.4f},{chance.gauss(0, 1):.3f}".encode()
    return chance.choice(ODD).encode("latin-1" if chance.random() < 0.3 else "utf-8")


def changed(data: bytes, head: bytes, chance: random.Random) -> bytes:
    """The input after an event."""
    event = chance.random()
    if event < 0.7:
        for _ in range(chance.randrange(8)):
            data += line_of(chance) + (b"\r\n" if chance.random() < 0.2 else b"\n")
        return data + line_of(chance) * (chance.random() < 0.25)
    if event < 0.78 and data:
        at = chance.randrange(len(data))
        return data[:at] + chance.choice([b"1", b"7", b",", b"\n"]) + data[at + 1 :]
    if event < 0.84:
        return data[: chance.randrange(len(data) + 1)]
    return head + END if event < 0.9 else data


def words_of(chance: random.Random, every: int) -> list[str]:
    """Options of one run."""
    words = ["--every", str(every)]
    for share, more in (
        (0.1, ["--strict"]),
        (0.05, ["--force"]),
        (0.05, ["--anomaly-z", "2"]),
        (0.05, ["--columns", "y1,x1"]),
    ):
        words += more if chance.random() < share else []
    return words


def left_by(code: int, folder: Path) -> tuple[int, Any, Any]:
    """What a run has left: its code, the rows without numbers of the model, the record."""
    output, snapshot = folder / "out.csv", folder / "s.npz"
    rows = None
    if output.exists():
        rows = [line.split(",")[:3] for line in output.read_text().split("\n")]
    if not snapshot.exists():
        return code, rows, None
    record = kept(snapshot)[0]
    for name in ("length", "seam"):
        record["output"].pop(name, None)
    for name in ("squared_error", "within_90", "anomalies"):
        del record["counters"][name]
    return code, rows, record


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported("gru:Gru", tmp_path_factory.mktemp("gru") / "bundle")


@pytest.fixture(scope="module")
def program(bundle: Path) -> Program:
    return of_bundle(bundle, bundle.parent / "c")


def in_python(bundle: Path, words: list[str], given: bytes) -> int:
    command = ["run", str(bundle), *words, "--backend", "onnxruntime"]
    if not given:
        return main(command)
    process = [sys.executable, "-m", "edgefold.cli.main", *command]
    return subprocess.run(process, input=given, capture_output=True, check=False).returncode


@pytest.mark.long
def test_both_worlds_stay_alike(bundle: Path, program: Program, tmp_path: Path) -> None:
    ends = set()
    for number in range(N_WORLDS):
        chance = random.Random(number)
        head, data = chance.choice(HEADS).encode(), b""
        keeps, every = chance.random() < 0.85, chance.choice([1, 2, 5, 100])
        worlds = [tmp_path / f"{number}-{name}" for name in ("python", "c")]
        for _ in range(chance.randrange(1, 7)):
            data = changed(data or head, head, chance)
            words, given = words_of(chance, every), data if chance.random() < 0.05 else b""
            left = []
            for world in worlds:
                world.mkdir(exist_ok=True)
                (world / "in.csv").write_bytes(data)
                source = "-" if given else str(world / "in.csv")
                files = ["--input", source, "--output", str(world / "out.csv")]
                files += ["--snapshot", str(world / "s.npz")] * keeps
                if world is worlds[0]:
                    code = in_python(bundle, [*files, *words], given)
                else:
                    code = program.run(*files, *words, given=given).code
                left.append(left_by(code, world))
            assert left[0] == left[1], (number, words, data[-200:])
            ends.add((left[0][0], left[0][2] is not None))
    assert ends >= {(0, True), (1, True), (1, False)}
