"""The program of docs/microcontroller.md compiles, and prints what the page says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from edgefold.export.native.generator import generate
from edgefold.export.shorter_seasons import shorten_seasons
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.native_builds import compiler_or_skip

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "microcontroller.md").read_text()


def written_model(folder: Path) -> None:
    """Write the model as the page does, into `folder`/model."""
    shorten_seasons(shipped_bundle(), 168, folder / "bundle")
    (folder / "model").mkdir()
    for name, text in generate(folder / "bundle", "sensors").files.items():
        (folder / "model" / name).write_text(text)


@pytest.mark.long
def test_the_program_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    compiler_or_skip("gcc")
    program = re.search(r"```c\n(.*?)```", PAGE, re.DOTALL)
    command = re.search(r"```\n(gcc .*?)\n\./demo\n```", PAGE, re.DOTALL)
    assert program is not None and command is not None
    written_model(tmp_path)
    (tmp_path / "main.c").write_text(program[1])
    line = f"{command[1]} -Wall -Wextra -Werror && ./demo"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    alarm, season = done.stdout.splitlines()
    assert alarm.startswith("hour 400: value, 60.0 instead of ")
    assert season == "a season of 24 rows"


SAVING = r"""
int main(void)
{
    FILE *file = fopen("snapshot", "w+b");
    if (!file) return 7;
    if (edgefold_sensors_load_sensor(&sensor, read_bytes, file) != EDGEFOLD_BAD_VALUE) return 1;
    if (start_and_load(file) != EDGEFOLD_NO_SNAPSHOT) return 2;
    for (int n = 0; n < 100; n++)
        if (edgefold_sensors_push(&sensor, 3600.0 * n, n % 24, 0, &row) != 0) return 3;
    if (save(file) != EDGEFOLD_OK) return 4;
    rewind(file);
    if (start_and_load(file) != EDGEFOLD_OK) return 5;
    return edgefold_sensors_newest_time(&sensor) == 3600.0 * 99 ? 0 : 6;
}
"""


@pytest.mark.long
def test_the_saving_and_loading_of_the_page_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    compiler_or_skip("gcc")
    program, snapshots = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    written_model(tmp_path)
    (tmp_path / "main.c").write_text(program[: program.index("int main")] + snapshots + SAVING)
    line = "gcc -std=c99 -O1 -Wall -Wextra -Werror -Imodel main.c model/*.c -lm -o demo && ./demo"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_rows_of_the_page_are_those_of_the_record() -> None:
    data = json.loads((ROOT / "benchmarks/records/sensor_firmware.json").read_text())["data"]
    counted = {
        (longest, replay["processor"]): replay["instructions"]
        for longest, of in data.items()
        for replay in of["replays"]
    }
    mean = {
        name: counted["1440, default", name]["rows"]["mean"] / 1e6
        for name in ("cortex-m4", "cortex-m55")
    }
    assert f"some {mean['cortex-m4']:.1f} million instructions on a Cortex-M4F" in PAGE
    assert f"{mean['cortex-m55']:.1f} million on an M55" in PAGE
    most = [
        counted[f"{n}, default", "cortex-m4"]["rows with a search"]["most"] / 1e6
        for n in ("1440", "168")
    ]
    assert f"in up to {most[0]:.0f} million" in PAGE and f"in up to {most[1]:.0f} million" in PAGE
    same = data["168, same bits"]["replays"]
    assert all(replay["largest"] == 0.0 for replay in same)
    times = [
        replay["instructions"]["rows"]["mean"]
        / counted["168, default", replay["processor"]]["rows"]["mean"]
        for replay in same
    ]
    assert 1.05 < max(times) < 1.15 and "a tenth longer on a microcontroller" in PAGE
    bytes_of = data["168, default"]["replays"]
    stacks = [replay["bytes"]["stack"] for replay in bytes_of]
    assert max(stacks) <= 4500 and "4.5 kB" in PAGE


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
