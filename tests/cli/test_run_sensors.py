"""`edgefold run` with the general model of sensors: rows of any sensor, without training."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.main import main
from edgefold.cli.options.bundle_options import bundle_of
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.sensors import shipped_bundle as shipped
from tests.cli.conftest import with_changed_graph as with_changed_graph

pytest.importorskip("torch", reason="the bundle is exported here")

pytestmark = pytest.mark.usefixtures("compiled_sensors")

Text = pytest.CaptureFixture[str]
QUANTILES = ["q05", "q10", "q25", "q50", "q75", "q90", "q95"]
HEADER = ["time", "value", "mean", *QUANTILES, "log_density", "p_value", "alarm", "event"]
N_ROWS = 108


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The general model, small and not trained."""
    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.models.sensors.model import Sensors, SensorsConfig

    folder = tmp_path_factory.mktemp("sensors") / "bundle"
    model = Sensors(SensorsConfig(longest=48, values=192)).eval()
    export_bundle(model, {"name": "untrained"}, folder, ExportConfig(chunk=8, parity_steps=32))
    return folder


def value_of(n: int, k: int = 0) -> str:
    return f"{20 + k + 5 * math.sin(n * math.pi / (12 + k)) + math.sin(n * n) / 4:.4f}"


def stamp(n: int) -> str:
    return f"2024-03-{1 + n // 24:02d}T{n % 24:02d}:00:00"


def write(path: Path, rows: list[list[str]], header: str = "time,value") -> Path:
    with path.open("w", newline="") as file:
        file.write(header + "\n")
        csv.writer(file, lineterminator="\n").writerows(rows)
    return path


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return list(rows.fieldnames or ()), list(rows)


def run(bundle: Path | str, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    """Rows of an hour; one of them is missing and one is late."""
    rows = [[stamp(n), value_of(n)] for n in range(N_ROWS) if n != 100]
    rows.insert(50, [stamp(20), "3"])
    return write(tmp_path / "in.csv", rows)


def test_rows_become_forecasts_and_verdicts(
    bundle: Path, hours: Path, tmp_path: Path, capsys: Text
) -> None:
    assert run(bundle, "--input", hours, "--output", tmp_path / "out.csv") == 0
    names, rows = read(tmp_path / "out.csv")
    assert names == HEADER
    assert len(rows) == N_ROWS - 1
    assert rows[0]["time"] == stamp(0) and rows[0]["value"] == value_of(0)
    assert set(rows[0].values()) == {stamp(0), value_of(0), "", "0"}
    quantiles = [[float(row[name]) for name in QUANTILES] for row in rows[20:]]
    assert (np.diff(quantiles) >= 0).all()
    assert all(0 < float(row["p_value"]) <= 1 and row["alarm"] in "01" for row in rows[20:])
    told = capsys.readouterr().err
    assert f"{N_ROWS - 1} updates" in told and "1 malformed" in told
    assert "1, with 1 row missing" in told and "24 rows, a day" in told
    assert "90 % band" in told and "persistence" in told and "alarms" in told


def test_the_missing_slots_of_a_gap_are_steps(bundle: Path, hours: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "s.npz"
    assert run(bundle, "--input", hours, "--snapshot", snapshot) == 0
    with np.load(snapshot) as archive:
        assert archive["state.slots"].tolist() == [N_ROWS]


def test_a_run_that_stops_anywhere_resumes_to_the_same_bytes(
    bundle: Path, hours: Path, tmp_path: Path
) -> None:
    lines = hours.read_text().splitlines(keepends=True)
    whole, part = tmp_path / "whole.csv", tmp_path / "part.csv"
    assert run(bundle, "--input", hours, "--output", whole, "--snapshot", tmp_path / "w.npz") == 0
    source = tmp_path / "growing.csv"
    for n in (5, 52, 102, len(lines)):
        source.write_text("".join(lines[:n]))
        words = ("--input", source, "--output", part, "--snapshot", tmp_path / "p.npz")
        assert run(bundle, *words, "--every", 7) == 0
    assert part.read_bytes() == whole.read_bytes()
    with np.load(tmp_path / "w.npz") as one, np.load(tmp_path / "p.npz") as other:
        names = [name for name in one.files if name not in ("record", "extra.loop")]
        assert all(one[name].tobytes() == other[name].tobytes() for name in names)


FORMS = ("wide", "long")


@pytest.mark.parametrize("form", FORMS)
def test_several_sensors_are_each_as_if_alone(
    bundle: Path, tmp_path: Path, form: str, capsys: Text
) -> None:
    names = ("roof", "cellar")
    pairs = [(n, k) for n in range(60) for k in (0, 1) if (n + 3 * k) % 17]
    if form == "wide":
        cells = {pair: value_of(*pair) for pair in pairs}
        rows = [[stamp(n), *(cells.get((n, k), "") for k in (0, 1))] for n in range(60)]
        source, words = write(tmp_path / "in.csv", rows, "time,roof,cellar"), ["--value"]
        words.append("roof,cellar")
    else:
        rows = [[stamp(n), value_of(n, k), names[k]] for n, k in pairs]
        source = write(tmp_path / "in.csv", rows, "time,value,sensor")
        words = ["--stream", "sensor", "--streams", "2"]
    snapshot, output = tmp_path / "s.npz", tmp_path / "out.csv"
    text = source.read_text()
    for n in (len(text) // 3, len(text)):  # the second run resumes
        whole = text[:n].rpartition("\n")[0] + "\n"
        source.write_text(whole)
        assert (
            run(bundle, "--input", source, "--output", output, "--snapshot", snapshot, *words) == 0
        )
    told = capsys.readouterr().err
    assert "persistence" in told and "cellar" in told
    header, found = read(output)
    assert header == ["series", *HEADER]
    for k, name in enumerate(names):
        alone = tmp_path / f"{k}.csv"
        own_rows = [[stamp(n), value_of(n, k)] for n, j in pairs if j == k]
        if form == "wide":  # an empty cell is a row without a value
            own_rows = [[time, cells[k]] for time, *cells in rows]
        own = write(tmp_path / "one.csv", own_rows)
        assert run(bundle, "--input", own, "--output", alone) == 0
        mine = [{n: row[n] for n in HEADER} for row in found if row["series"] == name]
        assert mine == read(alone)[1]


def test_json_lines_and_other_dates_give_the_same_forecasts(
    bundle: Path, hours: Path, tmp_path: Path
) -> None:
    rows = [[row["time"], row["value"]] for row in read(hours)[1] if row["value"] != "3"]
    outputs = []
    for name, text, words in (
        ("iso", "time,value\n" + "".join(f"{t}Z,{v}\n" for t, v in rows), ()),
        ("json", "".join(json.dumps({"value": float(v), "ts": t}) + "\n" for t, v in rows), ()),
        (
            "german",
            "Zeit;Wert\n"
            + "".join(
                f"{t[8:10]}.{t[5:7]}.{t[:4]} {t[11:16]};{v.replace('.', ',')}\n" for t, v in rows
            ),
            ("--decimal", ","),
        ),
    ):
        source, output = tmp_path / name, tmp_path / f"{name}.csv"
        source.write_text(text)
        assert run(bundle, "--input", source, "--output", output, *words) == 0
        outputs.append([[row[name] for name in HEADER[2:]] for row in read(output)[1]])
    assert outputs[0] == outputs[1] == outputs[2]


def test_the_rate_of_false_alarms_is_asked_for_and_kept(
    bundle: Path, hours: Path, tmp_path: Path
) -> None:
    output, snapshot = tmp_path / "out.csv", tmp_path / "s.npz"
    words = ("--input", hours, "--output", output, "--snapshot", snapshot)
    assert run(bundle, *words, "--false-alarms", "0.1") == 0
    rows = read(output)[1]
    assert sum(row["alarm"] == "1" for row in rows) > 0
    assert run(bundle, *words) == 1  # the snapshot is of another rate
    assert run(bundle, *words, "--force") == 0
    assert sum(row["alarm"] == "1" for row in read(output)[1]) == 0


def test_options_of_other_models_are_refused(
    bundle: Path, tiny_bundle: Path, hours: Path, points_csv: Path, capsys: Text
) -> None:
    assert run(bundle, "--input", hours, "--anomaly-z", 3) == 1
    assert "--false-alarms" in capsys.readouterr().err
    assert run(bundle, "--input", hours, "--columns", "time,value") == 1
    assert run(tiny_bundle, "--input", points_csv, "--false-alarms", "1e-3") == 1
    assert "--anomaly-z" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(bundle, "--input", hours, "--false-alarms", "2")


def test_times_that_are_numbers_have_no_days_to_rotate_by(
    bundle: Path, hours: Path, tmp_path: Path, capsys: Text
) -> None:
    words = ("--output", tmp_path / "out.csv", "--rotate", "day")
    assert run(bundle, "--input", hours, *words) == 0
    assert (tmp_path / "out.2024-03-01.csv").exists()
    numbers = write(tmp_path / "n.csv", [[str(n), value_of(n)] for n in range(30)])
    assert run(bundle, "--input", numbers, "--output", tmp_path / "n.out", "--rotate", "day") == 1
    assert "no dates" in capsys.readouterr().err


def test_hostile_lines_are_refused_one_by_one(bundle: Path, tmp_path: Path) -> None:
    rows = [[stamp(n), value_of(n)] for n in range(N_ROWS)]
    for at, row in (
        (30, ["9999-12-31T23:00:00", "1"]),
        (40, ["1970-01-01T00:00:00", "1"]),
        (50, [stamp(40), "1e99"]),
        (60, [stamp(59), "nan"]),
        (70, [stamp(70), "inf"]),
        (80, ["", "1"]),
        (90, [stamp(10), "1"]),
        (99, [stamp(99), "1e18"]),
    ):
        rows.insert(at, row)
    source, output = write(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    assert run(bundle, "--input", source, "--output", output) == 0
    found = read(output)[1]
    assert len(found) >= N_ROWS - 10
    assert all(math.isfinite(float(row["q50"])) for row in found[20:])


def test_the_word_sensors_is_the_bundle_that_is_shipped(
    bundle: Path, hours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bundle, tmp_path / "shipped" / "sensors")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "shipped")
    assert run("sensors", "--input", hours, "--output", "out.csv") == 0
    shutil.copytree(bundle, "sensors")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "nothing")
    assert run("sensors", "--input", hours, "--output", "own.csv") == 0
    shutil.rmtree("sensors")
    assert run("sensors", "--input", hours, "--output", "none.csv") == 1
    assert "not in this installation" in capsys.readouterr().err


def test_where_no_bundle_is_the_words_of_the_shipped_ones_are_named(capsys: Text) -> None:
    assert run("sensor", "--input", "in.csv") == 1
    assert f"the words {' and '.join(shipped.SHIPPED)} stand for" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [("check",), ("budget", "--device", "raspberry-pi-4"), ("build", "--source", "--out", "c")],
)
def test_the_word_is_known_to_every_command_of_bundles(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([words[0], "sensors", *words[1:]]) == 0
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "nothing")
    assert main([words[0], "sensors", *words[1:]]) == 1
    assert "not in this installation" in capsys.readouterr().err


def test_the_bundle_that_is_shipped_is_whole_and_of_sensors() -> None:
    manifest = load_manifest(shipped.shipped_bundle())
    assert isinstance(manifest.prediction, SensorForecast)
    assert manifest.n_inputs == 4 and manifest.n_streams == 1


def test_gp_tiny_is_shipped_whole_under_its_name() -> None:
    manifest = load_manifest(shipped.shipped_bundle("gp-tiny"))
    assert (manifest.n_inputs, manifest.chunk, manifest.targets) == (1, 8, 8)
    assert bundle_of("gp-tiny") == str(manifest.path)
