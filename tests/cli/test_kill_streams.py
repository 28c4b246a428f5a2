"""SIGKILL at random moments of a loop of three sensors whose output rotates: no byte differs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from edgefold.cli.main import main
from tests.cli.test_kill import folder as folder
from tests.cli.test_kill import kept, killed_chains, seeds

N_KILLS = 15
N_ROWS = 60
FORMS = {"wide": ("--value", "a,b,c"), "long": ("--stream", "name", "--streams", "3")}


def write_input(path: Path, form: str) -> None:
    """Three sensors with holes, a cell that is no number now and then, and a stranger."""
    lines = ["time,a,b,c" if form == "wide" else "time,value,name"]
    for i in range(N_ROWS):
        cells = [f"{400 + 5 * math.sin(i / (3 + k)):.3f}" for k in range(3)]
        cells[i % 3] = {3: "", 5: "oops"}.get(i % 7, cells[i % 3])
        if form == "wide":
            lines.append(f"{i},{','.join(cells)}")
        else:
            lines += [f"{i},{cell},{name}" for cell, name in zip(cells, "abc", strict=True)]
            lines += [f"{i},1,stranger"] * (i % 20 == 13)
    path.write_text("\n".join(lines) + "\n")


def words_of(bundle: Path, folder: Path, chain: str, form: str) -> list[str]:
    return [
        *("run", str(bundle), "--input", str(folder / "in.csv"), *FORMS[form]),
        *("--output", str(folder / f"{chain}-p.csv"), "--snapshot", str(folder / f"s{chain}.npz")),
        *("--every", "5", "--rotate", "1KiB"),
    ]


def parts(folder: Path, chain: str) -> dict[str, bytes]:
    """The output's files, by what follows the chain in their names."""
    found = folder.glob(f"{chain}-p*")
    return {path.name.removeprefix(chain): path.read_bytes() for path in found}


@pytest.mark.long
@seeds(4)
@pytest.mark.parametrize("form", FORMS)
def test_killed_at_15_moments(series_bundle: Path, folder: Path, form: str, seed: int) -> None:
    write_input(folder / "in.csv", form)
    assert main(words_of(series_bundle, folder, "whole", form)) == 0
    whole = parts(folder, "whole")
    assert len(whole) > 5 and all(len(text) <= 1024 for text in whole.values())
    argv = words_of(series_bundle, folder, "CHAIN", form)
    for chain in killed_chains(argv, N_KILLS, folder, seed):
        assert parts(folder, chain) == whole
        assert kept(folder / f"s{chain}.npz") == kept(folder / "swhole.npz")
