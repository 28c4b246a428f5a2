"""The program of docs/microcontroller.md compiles, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from edgefold.export.native.generator import generate
from edgefold.export.shorter_seasons import shorten_seasons
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.native_builds import compiler_or_skip

PAGE = (Path(__file__).parents[1] / "docs" / "microcontroller.md").read_text()


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    compiler_or_skip("gcc")
    program = re.search(r"```c\n(.*?)```", PAGE, re.DOTALL)
    command = re.search(r"```\n(gcc .*?)\n\./demo\n```", PAGE, re.DOTALL)
    assert program is not None and command is not None
    shorten_seasons(shipped_bundle(), 168, tmp_path / "bundle")
    (tmp_path / "model").mkdir()
    for name, text in generate(tmp_path / "bundle", "sensors").files.items():
        (tmp_path / "model" / name).write_text(text)
    (tmp_path / "main.c").write_text(program[1])
    line = f"{command[1]} -Wall -Wextra -Werror && ./demo"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    alarm, season = done.stdout.splitlines()
    assert alarm.startswith("hour 400: value, 60.0 instead of ")
    assert season == "a season of 24 rows"


def test_the_memory_of_the_page_is_that_of_the_headers(tmp_path: Path) -> None:
    for longest, snapshot in ((24, 59), (168, 67), (1440, 122)):
        bundle = shipped_bundle()
        if longest < 1440:
            bundle = tmp_path / str(longest)
            shorten_seasons(shipped_bundle(), longest, bundle)
        header = generate(bundle, "sensors").header
        sizes = [int(n) for n in re.findall(r"SNAPSHOT_BYTES (?:\(\w+ \+ )?(\d+)", header)]
        assert round(sum(sizes) / 1000) == snapshot
        assert f"| {snapshot} kB |" in PAGE
