"""What the C program says, and which options and names it takes, is what Python says and takes."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from edgefold.runtime.rows.csv_fields import plain, shown
from tests.export.native.loop.program_rig import Program, echoing


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return echoing(tmp_path_factory.mktemp("echo"))


NAMES = """
#include <stdio.h>
#include "program.h"

int main(void)
{
    static char line[LINE_BYTES], bytes[LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        struct slice name = slice_of(line);
        struct text text = {bytes, 0, sizeof bytes, false};
        name.n--;
        add_plain(&text, name);
        add(&text, " ");
        add_shown(&text, name);
        puts(bytes);
    }
    return 0;
}
"""


@pytest.mark.long
def test_characters_that_command_a_terminal_are_escaped_as_in_python(tmp_path: Path) -> None:
    """All that Unicode had given out when this Python was made, and texts of several."""
    program = echoing(tmp_path, main=NAMES)
    given = (chr(code) for code in range(1, sys.maxunicode + 1) if code != 10)
    texts = [c for c in given if unicodedata.category(c) not in ("Cn", "Cs")]
    texts += ["", "it's", "a\\b\u200b", '"\u200e', "'\"\u202e", "tab\there", "50 \u00b5"]
    lines = "".join(f"{text}\n" for text in texts).encode()
    done = subprocess.run([program.path], input=lines, capture_output=True, check=True)
    expected = [f"{plain(text)} {shown(text)}" for text in texts]
    assert done.stdout.decode().split("\n")[:-1] == expected


@pytest.mark.long
def test_what_a_terminal_would_obey_is_not_printed(echo: Program, tmp_path: Path) -> None:
    ended = echo.run("--input", tmp_path / "a\u202e\u200b\x1b\x9bb\u00b5")
    assert "a????b\u00b5" in ended.errors


def test_the_reason_of_a_bad_row_stands_behind_a_long_name(echo: Program) -> None:
    for name in ("a" * 6000, "\u00e9" * 3000, "\u0007" * 6000):
        ended = echo.run("--input", "-", given=f"{name},y1\n1,2\nx,2\n".encode())
        assert ended.code == 0 and "... is 'x', not a number; skipped" in ended.errors
    rows = f"{'a' * 150},y1\n1,2\nx,2\n".encode()
    assert f"column {'a' * 150} is 'x'" in echo.run("--input", "-", given=rows).errors


@pytest.mark.parametrize("sign", ["\x01", "\u200b", "'"])
def test_a_snapshot_holds_the_longest_header(echo: Program, tmp_path: Path, sign: str) -> None:
    name = sign * ((65_000 - 8) // len(sign.encode()))
    rows, snapshot = f"{name},y1\n1,2\n3,4\n".encode(), tmp_path / "s"
    words = ("--input", "-", "--snapshot", snapshot, "--every", "1")
    assert echo.run(*words, given=rows).code == 0
    resumed = echo.run(*words, given=b"5,6\n")
    assert resumed.code == 0 and "resumed" in resumed.errors


def test_a_quiet_run_says_why_it_ends_with_code_1(echo: Program) -> None:
    rows = b"x1,y1\n1,2\n" + b"oops,1\n" * 25
    ended = echo.run("--input", "-", "--quiet", given=rows)
    assert ended.code == 1 and ended.errors.count("\n") == 1
    assert "25 rows were all refused" in ended.errors
    assert echo.run("--input", "-", "--quiet", given=rows + b"1,2\n").errors == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--output", "--strict"), "--output"),
        (("--snapshot", "--force"), "--snapshot"),
        (("--anomaly-z", "0x10"), "--anomaly-z"),
        (("--anomaly-z", "1e400"), "--anomaly-z"),
        (("--output", os.fsdecode(b"o\xff.csv"), "--snapshot", "s"), "--output"),
    ],
)
def test_values_that_make_no_sense_are_wrong_usage(
    echo: Program, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    ended = echo.run("--input", "-", *words, given=b"x1,y1\n1,2\n", cwd=tmp_path)
    assert ended.code == 2 and told in ended.errors
    assert not list(tmp_path.iterdir())


def test_a_value_behind_a_sign_of_equality_may_look_like_an_option(
    echo: Program, tmp_path: Path
) -> None:
    rows = b"x1,y1\n1,2\n--,3\n"
    ended = echo.run("--input", "-", "--missing=--", given=rows)
    assert ended.code == 0 and "1 without a value" in ended.errors
    name = os.fsdecode(b"o\xff.csv")  # harmless where no snapshot has to keep it
    assert echo.run("--input", "-", "--output", name, given=rows, cwd=tmp_path).code == 0


def test_a_snapshot_without_a_name_is_refused_and_leaves_no_lock(
    echo: Program, tmp_path: Path
) -> None:
    ended = echo.run("--input", "-", "--snapshot", "", given=b"x1,y1\n1,2\n", cwd=tmp_path)
    assert ended.code == 1 and "no name" in ended.errors
    assert not list(tmp_path.iterdir())


def test_a_long_first_line_behind_a_byte_order_mark_is_one_line(echo: Program) -> None:
    rows = b"\xef\xbb\xbf" + b"x" * 70_000 + b"\nx1,y1\nz,2\n3,4\n"
    ended = echo.run("--input", "-", given=rows)
    assert ended.code == 0 and "line 1: the line is longer" in ended.errors
    assert "line 3: column x1 is 'z'" in ended.errors


def test_a_first_line_that_only_looks_like_json_is_a_bad_row(echo: Program) -> None:
    ended = echo.run("--input", "-", given=b"{a comment}\nx1,y1\n1,2\n")
    assert ended.code == 0 and "line 1: the line begins with { and is not JSON" in ended.errors
    assert "JSON lines" in echo.run("--input", "-", given=b'{"x1": [1, {}], "y1": 2}\n').errors
