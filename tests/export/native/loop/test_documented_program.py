"""The program that docs/native.md shows compiles as shown, and runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from edgefold.export.native.generator import generate
from tests.export.native.c_streams import FLAGS, compiler

PAGE = Path(__file__).parents[4] / "docs" / "native.md"


@pytest.mark.long
def test_the_program_of_the_page_compiles_and_predicts(bundles: Path, tmp_path: Path) -> None:
    compiler("gcc")
    section = PAGE.read_text().split("## The C interface\n", 1)[1].split("\n## ", 1)[0]
    code = re.search(r"^```c\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    command = re.search(r"^gcc .*\\\n.*$", section, re.MULTILINE)
    assert code is not None and command is not None
    (tmp_path / "main.c").write_text(code[1])
    (tmp_path / "model").mkdir()
    for name, text in generate(bundles / "scaled", "cmanp").files.items():  # one x and one y
        (tmp_path / "model" / name).write_text(text)
    given = shlex.join(FLAGS[1:])
    subprocess.run(f"{command[0]} {given}", shell=True, cwd=tmp_path, check=True)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
    assert len(re.findall(r"^-?[\d.]+ \+- [\d.]+$", done.stdout, re.MULTILINE)) == 100
