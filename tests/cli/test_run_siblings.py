"""`edgefold run` and `edgefold forecast` with --siblings: new sensors start warm."""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.main import main
from edgefold.runtime import Sensors
from edgefold.runtime.sensors.warm.siblings import MOST
from edgefold.runtime.sensors.warm.warm_start import N_ROWS
from tests.cli.test_kill import folder as folder
from tests.cli.test_kill import kept, killed_chains

pytestmark = pytest.mark.usefixtures("compiled_sensors")

Text = pytest.CaptureFixture[str]
N_ALL = N_ROWS + 20
FORMS = {"one": (), "wide": ("--value", "roof,cellar")}


def write_input(path: Path, form: str, n: int, seed: int = 0) -> Path:
    """Hours with a season of a day, empty cells, a gap and a late row."""
    draw = random.Random(seed)
    lines = ["time,value" if form == "one" else "time,roof,cellar"]
    for i in range(n):
        value = 20 + 5 * math.sin(i * math.pi / 12) + draw.gauss(0, 0.3)
        cells = [f"{value:.2f}" * (i % 41 != 20), f"{0.5 * value - 3:.2f}" * (i % 37 != 20)]
        if not 70 <= i < 75:
            hour = i if i % 53 != 50 else i - 9
            when = f"2024-03-{1 + hour // 24:02d}T{hour % 24:02d}:00:00"
            lines.append(",".join([when, *cells[: 1 if form == "one" else 2]]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, compiled_sensors: None) -> Path:
    """Snapshots of a loop of one sensor and of a loop of two."""
    place = tmp_path_factory.mktemp("fleet")
    for seed, form in enumerate(FORMS):
        source = write_input(place / f"{form}.csv", form, N_ALL, seed + 10)
        words = ["--input", str(source), "--snapshot", str(place / f"{form}.npz"), *FORMS[form]]
        assert main(["run", "sensors", *words]) == 0
    return place


def words_of(place: Path, chain: str, form: str, fleet: Path) -> list[str]:
    return [
        *("run", "sensors", "--input", str(place / "in.csv"), *FORMS[form]),
        *("--output", str(place / f"p{chain}.csv"), "--snapshot", str(place / f"s{chain}.npz")),
        *("--alarms", str(place / f"a{chain}.jsonl"), "--every", "10", "--siblings", str(fleet)),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_stops_in_the_first_rows_resumes_to_the_same_bytes(
    fleet: Path, tmp_path: Path, form: str, capsys: Text
) -> None:
    source = write_input(tmp_path / "in.csv", form, 120)
    lines = source.read_text().splitlines(keepends=True)
    assert main(words_of(tmp_path, "whole", form, fleet)) == 0
    told = capsys.readouterr().err
    assert all(name in told for name in ("one.npz", "wide.npz roof", "wide.npz cellar"))
    for n in (5, 43, 78, len(lines)):
        source.write_text("".join(lines[:n]))
        assert main(words_of(tmp_path, "part", form, fleet)) == 0
    assert (tmp_path / "ppart.csv").read_bytes() == (tmp_path / "pwhole.csv").read_bytes()
    assert kept(tmp_path / "spart.npz") == kept(tmp_path / "swhole.npz")
    assert any(name.startswith("extra.warm.") for name in kept(tmp_path / "swhole.npz")[1])


def test_after_its_first_rows_a_sensor_needs_no_siblings(fleet: Path, tmp_path: Path) -> None:
    write_input(tmp_path / "in.csv", "one", N_ALL + 20)
    warm = words_of(tmp_path, "warm", "one", fleet)
    assert main(warm) == 0
    assert main(words_of(tmp_path, "cold", "one", fleet)[:-2]) == 0
    rows = {}
    for chain in ("warm", "cold"):
        with (tmp_path / f"p{chain}.csv").open(newline="") as file:
            rows[chain] = list(csv.DictReader(file))
    assert rows["warm"][100] != rows["cold"][100]
    assert rows["warm"][N_ROWS:] == rows["cold"][N_ROWS:]
    names = {chain: kept(tmp_path / f"s{chain}.npz")[1] for chain in rows}
    assert names["warm"] == names["cold"]
    assert main(warm[:-2]) == 0  # resumed without --siblings


def test_a_loop_forecasts_as_sensors_do(fleet: Path, tmp_path: Path) -> None:
    write_input(tmp_path / "in.csv", "one", 60)
    assert main(words_of(tmp_path, "run", "one", fleet)) == 0
    words = ["forecast", str(tmp_path / "in.csv"), "--siblings", str(fleet), "--out"]
    assert main([*words, str(tmp_path / "f.csv")]) == 0
    rows = []
    for name in ("prun.csv", "f.csv"):
        with (tmp_path / name).open(newline="") as file:
            rows.append([row["log_density"] for row in csv.DictReader(file)])
    assert rows[0] == rows[1] and any(rows[0])


def test_the_next_command_names_the_siblings(fleet: Path, tmp_path: Path, capsys: Text) -> None:
    source = write_input(tmp_path / "in.csv", "one", 30)
    assert main(["forecast", str(source), "--siblings", str(fleet)]) == 0
    assert f"--siblings {fleet}" in capsys.readouterr().out


def test_what_cannot_be_done_is_refused(fleet: Path, tmp_path: Path, capsys: Text) -> None:
    write_input(tmp_path / "in.csv", "one", 60)
    words = words_of(tmp_path, "run", "one", fleet)
    (tmp_path / "empty").mkdir()
    assert main([*words[:-1], str(tmp_path / "empty")]) == 1
    assert "holds no snapshots" in capsys.readouterr().err
    assert main(words) == 0
    capsys.readouterr()
    assert main(words[:-2]) == 1
    assert "give the siblings again" in capsys.readouterr().err


def test_other_models_learn_nothing_of_siblings(
    fleet: Path, tmp_path: Path, series_bundle: Path, capsys: Text
) -> None:
    write_input(tmp_path / "in.csv", "one", 60)
    words = ["run", str(series_bundle), "--input", str(tmp_path / "in.csv")]
    assert main([*words, "--siblings", str(fleet)]) == 1
    assert "--siblings" in capsys.readouterr().err


def test_a_snapshot_that_could_not_hold_all_siblings_is_refused(
    fleet: Path, tmp_path: Path, capsys: Text
) -> None:
    source = tmp_path / "long.csv"
    source.write_text("time,value,sensor\n2024-01-01T00:00:00,1,a\n2024-01-01T01:00:00,2,b\n")
    words = ["run", "sensors", "--input", str(source), "--snapshot", str(tmp_path / "s.npz")]
    words += ["--stream", "sensor", "--streams", "4000"]
    assert main([*words, "--siblings", str(fleet)]) == 1
    assert "a snapshot of this run may need" in capsys.readouterr().err


def test_the_memory_of_new_sensors_counts_their_siblings(
    fleet: Path, tmp_path: Path, capsys: Text
) -> None:
    source = write_input(tmp_path / "in.csv", "wide", 20)
    limit = ["--memory-limit", "1MB"]
    assert main(["forecast", str(source), *limit]) == 0
    assert main(["forecast", str(source), *limit, "--force", "--siblings", str(fleet)]) == 3
    assert "series need some" in capsys.readouterr().err


def test_the_estimate_of_a_sensor_with_siblings_is_not_below_what_they_take(fleet: Path) -> None:
    from edgefold.cli.forecasting import WARM_BYTES

    with Sensors.open(siblings=[fleet / "one.npz"]) as sensors:
        assert sensors._fleet is not None
        assert 0.7 * WARM_BYTES < MOST * sensors._fleet.n_bytes < WARM_BYTES


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_killed_in_the_first_rows_no_byte_differs(fleet: Path, folder: Path, form: str) -> None:
    write_input(folder / "in.csv", form, 120)
    assert main(words_of(folder, "whole", form, fleet)) == 0
    whole = (folder / "pwhole.csv").read_text()
    for chain in killed_chains(words_of(folder, "CHAIN", form, fleet), 6, folder, 0):
        assert (folder / f"p{chain}.csv").read_text() == whole
        assert kept(folder / f"s{chain}.npz") == kept(folder / "swhole.npz")


def test_the_record_of_what_siblings_know_has_finite_numbers(fleet: Path, tmp_path: Path) -> None:
    write_input(tmp_path / "in.csv", "wide", 60)
    assert main(words_of(tmp_path, "run", "wide", fleet)) == 0
    with np.load(tmp_path / "srun.npz") as archive:
        assert archive["extra.warm.sensors"].tolist() == [0, 1]
        assert archive["extra.warm.weights"].shape == (2 * 4,)
        assert np.isfinite(archive["extra.warm.weights"]).all()
