"""The C program reads rows as Python's reader does, and writes numbers as Python writes them."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import PointColumns, Row
from edgefold.runtime.rows.csv_reader import CsvRows, MissingRow
from edgefold.runtime.rows.row_format import RowFormat
from tests.export.native.loop.program_rig import Program, echoing, written

N_FILES = 400
CELLS = (
    *("1", "2.5", "-3e2", "+.5", "5.", "1e400", "1e-400", "nan", "NA", "n/a", "", "-", "?", "inf"),
    *("1_000", "0x10", "1,5", "\u00a0 7", "\u3000", "\u0663", "'", '"3"', '"3""4"', '"', '""'),
    *('"1,2"', "\r", "\t", " ", "x1", "y1", "X1", " Y1 ", "a", "\x1c4", "4\x85", "\x00", "\xff"),
    *("1e9", "1e10", "0.1", "-0", "00012", "1e5 ", "é", "1e", "e5", ".", "+", "--1", "9" * 30),
    *("1e99", "1.0000001e100", "0." + "0" * 400 + "1"),
)
HEADERS = (
    *(["x1", "y1"], ["y1", "x1"], ["a", "b"], ["q", "x1", "y1"], ["X1", "Y1", "z"], ["x1", "x1"]),
    *(['"x1"', '"y1"'], ["x1 ", "\u00a0y1"]),
)
WORDS = {"\t": "tab", " ": "space"}
BLANK = ("", "  ", "\t", "\u3000", "\r", "\x00", '"', "x", "x" * 70_000)


@dataclass
class File:
    """An input and how it is read."""

    data: bytes
    format: dict[str, object] = field(default_factory=dict)
    columns: list[str] | None = None

    @property
    def words(self) -> list[str]:
        """The same as options."""
        listed = [f"--columns={','.join(self.columns)}"] if self.columns else []
        for name, value in self.format.items():
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            listed.append(f"--{name}={WORDS.get(text, text)}")
        return listed


def file_of(chance: random.Random) -> File:
    """Rows of which many are bad in one of many ways."""
    sign = chance.choice([",", ",", ",", ",", ";", "\t", "|", " "])
    names = chance.choice(HEADERS)
    lines = [sign.join(names)] if chance.random() < 0.75 else []
    for _ in range(chance.randrange(12)):
        n = len(names) if chance.random() < 0.9 else chance.randrange(1, 5)
        cells = [_cell(chance) if chance.random() < 0.6 else "7" for _ in range(n)]
        lines.append(chance.choice(BLANK) if chance.random() < 0.1 else sign.join(cells))
    end = chance.choice(["\n", "\r\n", "\r"]) if chance.random() < 0.3 else "\n"
    data = bytearray(end.join(lines), "utf-8") + end.encode() * (chance.random() < 0.7)
    if chance.random() < 0.1:
        data[:0] = b"\xef\xbb\xbf"
    for _ in range(3 if data and chance.random() < 0.1 else 0):
        data[chance.randrange(len(data))] = chance.randrange(256)
    found = File(bytes(data))
    if chance.random() < 0.2:
        found.format["decimal"] = ","
    if chance.random() < 0.15:
        found.format["delimiter"] = sign
    if chance.random() < 0.1:
        found.format["missing"] = ("7", "x")
    if chance.random() < 0.2:
        found.columns = chance.choice([["x1", "y1"], ["a", "b"], ["z", "X1"], ["", "y1"]])
    return found


def _cell(chance: random.Random) -> str:
    text = chance.choice(CELLS) if chance.random() < 0.5 else repr(chance.gauss(0, 1e3))
    return text + chance.choice(CELLS) * (chance.random() < 0.05)


def read_in_python(file: File) -> tuple[list[str], dict[str, int]] | None:
    """Rows as the echoing program writes them, and counts; None where the input is refused."""
    columns = PointColumns(1, 1, file.columns, RowFormat(**file.format))  # type: ignore[arg-type]
    good, counts = list[str](), dict.fromkeys(("rows", "malformed", "missing", "lines"), 0)
    try:
        for row in CsvRows(io.BytesIO(file.data), columns, "standard input"):
            name = "missing" if isinstance(row, MissingRow) else "malformed"
            if isinstance(row, Row) and all(abs(v) <= 1e9 for v in row.numbers):
                numbers = ",".join(f"{number:.9g}" for number in row.numbers)
                good.append(f"{row.line},{','.join(row.texts)},{numbers}")
                name = "rows"
            counts[name] += 1
            counts["lines"] = row.line
    except DataError:
        return None
    return (good, counts) if good else None


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return echoing(tmp_path_factory.mktemp("echo"))


@pytest.mark.long
def test_rough_files_are_read_as_python_reads_them(echo: Program, tmp_path: Path) -> None:
    n_read = 0
    for number in range(N_FILES):
        file = file_of(random.Random(number))
        if file.data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            continue
        output, snapshot = tmp_path / f"{number}.csv", tmp_path / f"{number}.s"
        words = ("--input", "-", "--output", output, "--snapshot", snapshot, *file.words)
        ended, expected = echo.run(*words, given=file.data), read_in_python(file)
        about = f"{file.data[:300]!r} {file.words} {ended.errors}"
        if expected is None:
            assert ended.code == 1, about
            continue
        rows, counts = expected
        written = output.read_text().splitlines()[1:]
        assert [",".join(line.split(",")[:5]) for line in written] == rows, about
        found = json.loads(snapshot.read_bytes()[16:])["counters"]
        assert {name: found[name] for name in counts} == counts, about
        n_read += 1
    assert n_read > N_FILES // 4


NUMBERS = """
#include <stdio.h>
#include "program.h"

int main(void)
{
    static char bytes[64];
    double number;
    while (fread(&number, sizeof number, 1, stdin) == 1) {
        struct text text = {bytes, 0, sizeof bytes, false};
        add_repr(&text, number);
        puts(bytes);
    }
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_loop_compiles_without_warnings(name: str, tmp_path: Path) -> None:
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    sources = written(tmp_path)
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([name, *flags, *sources, "-lm", "-o", tmp_path / "program"], check=True)


@pytest.mark.slow
def test_rough_files_do_no_harm_to_memory(tmp_path: Path) -> None:
    """Under the sanitizers of addresses and undefined behaviour, which end the program with 23."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    flags = ["-std=c99", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = Program(tmp_path / "program")
    subprocess.run(["gcc", *flags, *written(tmp_path), "-lm", "-o", program.path], check=True)
    sanitizers = {"ASAN_OPTIONS": "exitcode=23", "UBSAN_OPTIONS": "exitcode=23"}
    snapshot = tmp_path / "s"
    for number in range(N_FILES):
        file = file_of(random.Random(number))
        words = ("--input", "-", "--output", "-", "--snapshot", snapshot, *file.words)
        for _ in range(2):  # the second run resumes
            ended = program.run(*words, given=file.data, env={**os.environ, **sanitizers})
            assert ended.code in (0, 1), f"{number} {ended.errors}"
        record = bytearray(snapshot.read_bytes() if snapshot.exists() else b"")
        if record:  # the next run reads one that is damaged
            record[random.Random(number).randrange(len(record))] ^= 1 << number % 8
            snapshot.write_bytes(record)


@pytest.mark.long
def test_numbers_of_the_snapshot_are_those_of_repr(tmp_path: Path) -> None:
    chance = random.Random(0)
    powers = [2.0**k for k in range(-1074, 1024)]
    any_bits = struct.unpack("20000d", chance.randbytes(160_000))
    plain = [round(chance.random() * 1e4, chance.randrange(8)) for _ in range(10_000)]
    edges = [0.0, -0.0, 1e15, 1e16, 1e22, 1e23, 1e-4, 1e-5, 9007199254740993.0]
    numbers = [*edges, *powers, *plain, *(x for x in any_bits if abs(x) < float("inf"))]
    program = echoing(tmp_path, main=NUMBERS)
    packed = struct.pack(f"{len(numbers)}d", *numbers)
    done = subprocess.run([program.path], input=packed, capture_output=True, check=True)
    assert done.stdout.decode().split() == [repr(number) for number in numbers]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--input"),
        (("--input",), "needs a value"),
        (("--input", "-", "--nonsense"), "no option"),
        (("--input", "-", "--rotate", "day"), "`edgefold run` does"),
        (("--input", "-", "--every", "0"), "--every"),
        (("--input", "-", "--anomaly-z", "nan"), "--anomaly-z"),
        (("--input", "-", "--delimiter", "ab"), "--delimiter"),
        (("--input", "-", "--decimal", ";"), "--decimal"),
    ],
)
def test_wrong_options_end_with_the_code_of_usage(
    echo: Program, words: tuple[str, ...], told: str
) -> None:
    ended = echo.run(*words)
    assert ended.code == 2 and told in ended.errors
    assert ended.errors.startswith("edgefold: error: ")


def test_help_and_version_are_told_on_standard_output(echo: Program) -> None:
    for word, told in (("--help", b"--snapshot"), ("--version", b"echo")):
        done = subprocess.run([echo.path, word], capture_output=True, check=True)
        assert told in done.stdout


def test_what_only_python_reads_is_named(echo: Program, tmp_path: Path) -> None:
    ended = echo.run("--input", "-", given=b'{"x1": 1, "y1": 2}\n')
    assert ended.code == 1 and "JSON lines" in ended.errors
    ended = echo.run("--input", "-", "--seed", "3", given=b"x1,y1\n1,2\n")
    assert ended.code == 1 and "--seed" in ended.errors


def test_rows_of_which_all_are_refused_end_with_code_1(echo: Program) -> None:
    rows = b"x1,y1\n1,2\n" + b"oops,1\n" * 25
    ended = echo.run("--input", "-", given=rows)
    assert ended.code == 1 and "WARNING" in ended.errors
    assert ended.errors.count("; skipped\n") == 20
    assert echo.run("--input", "-", given=rows + b"1,2\n").code == 0


def test_strict_stops_at_the_first_bad_row_and_keeps_what_came_before(
    echo: Program, tmp_path: Path
) -> None:
    source, output, snapshot = (tmp_path / name for name in ("in", "out", "s"))
    source.write_text("x1,y1\n1,2\n2,3\nbad,4\n5,6\n")
    words = ("--input", source, "--output", output, "--snapshot", snapshot)
    assert echo.run(*words, "--strict").code == 1
    assert output.read_text().count("\n") == 3
    source.write_text("x1,y1\n1,2\n2,3\n4,4\n5,6\n")
    assert echo.run(*words, "--strict").code == 0
    assert output.read_text().count("\n") == 5
