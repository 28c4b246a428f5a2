"""SIGKILL at random moments of a loop that runs the general model of sensors: no byte differs."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest

from edgefold.cli.main import main
from tests.cli.test_kill import folder as folder
from tests.cli.test_kill import kept, killed_chains, seeds

pytestmark = pytest.mark.usefixtures("compiled_sensors")

N_KILLS = 10
N_ROWS = 300
FORMS = {"one": (), "wide": ("--value", "roof,cellar")}


def write_input(path: Path, form: str) -> None:
    """Hours with a season of a day, a gap, empty cells, late rows, a spike and a stuck sensor."""
    draw = random.Random(3)
    lines = ["time,value" if form == "one" else "time,roof,cellar"]
    for i in range(N_ROWS):
        value = 20 + 5 * math.sin(i * math.pi / 12) + draw.gauss(0, 0.3)
        value = {150: 90.0}.get(i, 12.5 if 200 <= i < 230 else value)
        cells = [f"{value:.3f}" * (i % 41 != 20), f"{0.5 * value - 3:.3f}" * (i % 37 != 20)]
        if not 100 <= i < 115:
            hour = i if i % 53 != 50 else i - 9  # late, and refused
            when = f"2024-03-{1 + hour // 24:02d}T{hour % 24:02d}:00:00"
            lines.append(",".join([when, *cells[: 1 if form == "one" else 2]]))
    path.write_text("\n".join(lines) + "\n")


def words_of(folder: Path, chain: str, form: str) -> list[str]:
    return [
        *("run", "sensors", "--input", str(folder / "in.csv"), *FORMS[form]),
        *("--output", str(folder / f"p{chain}.csv"), "--snapshot", str(folder / f"s{chain}.npz")),
        *("--every", "10", "--false-alarms", "1e-2", "--alarms", str(folder / f"a{chain}.jsonl")),
    ]


@pytest.mark.long
@seeds(3)
@pytest.mark.parametrize("form", FORMS)
def test_killed_at_10_moments(folder: Path, form: str, seed: int) -> None:
    write_input(folder / "in.csv", form)
    assert main(words_of(folder, "whole", form)) == 0
    whole = (folder / "pwhole.csv").read_text()
    alarms = (folder / "awhole.jsonl").read_text()
    assert alarms.count("\n") == sum(",1," in line for line in re.findall(",[01],.*", whole))
    assert all(f",1,{event}\n" in whole for event in ("value", "stuck", "gap"))
    for chain in killed_chains(words_of(folder, "CHAIN", form), N_KILLS, folder, seed):
        assert (folder / f"p{chain}.csv").read_text() == whole
        assert (folder / f"a{chain}.jsonl").read_text() == alarms
        assert kept(folder / f"s{chain}.npz") == kept(folder / "swhole.npz")
