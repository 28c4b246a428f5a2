from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.main import main
from edgefold.cli.text.forecasts import band_line, beside_error, binomial_p, verdict
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.series.features import SeriesFeatures
from edgefold.runtime.series.scores import Scores, SeriesForecast
from edgefold.runtime.series.spec import SeriesSpec

NAMES = {"series", "persistence", "least squares"}


@pytest.fixture
def long_csv(tmp_path: Path) -> Path:
    """200 rows of a series, one a unit of time."""
    random = np.random.default_rng(0)
    values = 400 + np.cumsum(random.normal(size=200)) + np.sin(np.arange(200) / 3)
    path = tmp_path / "sensor.csv"
    rows = [f"{i},{value:.3f}" for i, value in enumerate(values)]
    path.write_text("\n".join(["time,value", *rows]) + "\n")
    return path


def evaluate(*words: object) -> int:
    return main(["evaluate", *map(str, words)])


def test_a_bundle_is_scored_as_it_streams(
    series_bundle: Path, long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "scores.json"
    assert evaluate(series_bundle, "--csv", long_csv, "--json", record) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in NAMES)
    assert "lowest RMSE: " in out and "highest log-likelihood: " in out
    scores = json.loads(record.read_text())["scores"]
    assert set(scores) == NAMES

    rows = [tuple(map(float, line.split(","))) for line in long_csv.read_text().split()[1:]]
    errors, inside = [], 0
    with Stream.open(series_bundle) as stream:
        features = SeriesFeatures(SeriesSpec.from_json(stream.manifest.task["features"]))
        for row, (time, value) in enumerate(rows):
            if features.ready:
                x = features.features(time)
                prediction = stream.query(x)
                if row >= 160:
                    error = value - features.last_value - prediction.mean.item()
                    errors.append(error)
                    inside += abs(error) <= 1.6448536 * prediction.std.item()
                stream.update(x, features.target(value))
            features.push(time, value)
    found = scores["series"]
    assert found["n"] == len(errors) == 40
    rmse = math.sqrt(np.mean(np.square(errors)))
    assert found["rmse"] == pytest.approx(rmse, rel=1e-4)  # chunks sum in another order
    assert found["coverage_90"] == pytest.approx(inside / 40)


def test_the_table_lists_the_best_first(
    series_bundle: Path, long_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(series_bundle, "--csv", long_csv) == 0
    lines = capsys.readouterr().out.splitlines()[2:5]
    errors = [float(line[16:].split()[0]) for line in lines]
    assert errors == sorted(errors)


def test_a_bundle_needs_no_torch(series_bundle: Path, long_csv: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'onnx', 'matplotlib', 'safetensors', 'tqdm'):\n"
        "    sys.modules[name] = None\n"
        "from edgefold.cli.main import main\n"
        f"sys.exit(main(['evaluate', {str(series_bundle)!r}, '--csv', {str(long_csv)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "persistence" in done.stdout


@pytest.mark.parametrize("dated", [False, True])
def test_the_picture_is_drawn(
    dated: bool, series_bundle: Path, long_csv: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    bundle, csv = series_bundle, long_csv
    if dated:
        import shutil

        bundle = shutil.copytree(series_bundle, tmp_path / "dated")
        manifest = json.loads((bundle / "manifest.json").read_text())
        manifest["task"]["features"] = SeriesSpec("date", 3600.0, lags=1).to_json()
        (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
        values = [line.split(",")[1] for line in long_csv.read_text().split()[1:]]
        rows = [f"2024-01-{1 + i // 24:02}T{i % 24:02}:00,{v}" for i, v in enumerate(values)]
        csv = tmp_path / "dated.csv"
        csv.write_text("\n".join(["time,value", *rows]) + "\n")
    picture = tmp_path / "forecasts.png"
    assert evaluate(bundle, "--csv", csv, "--plot", picture) == 0
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["time,value"] + [f"2024-01-{d:02},1.5" for d in range(1, 31)], "times are dates"),
        (
            ["time,value"] + [f"{10 * i},{i % 7}" for i in range(90)],
            "a row comes every 10 in units",
        ),
        (["time,value", "0,1", "1,2", "2,x"], "line 4"),
        (["a,b,c", "0,1,2", "1,2,3", "2,3,4"], "--time, --value"),
        (["time,value", "0,1", "1,2", "2,4"], "features need"),
    ],
)
def test_a_series_of_another_kind_is_refused(
    lines: list[str],
    words: str,
    series_bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines) + "\n")
    spec = json.loads((series_bundle / "manifest.json").read_text())["task"]["features"]
    if words == "features need":
        spec |= {"season": 10.0, "season_lags": 0, "harmonics": 0}  # as many columns
        bundle = tmp_path / "seasonal"
        bundle.mkdir()
        for file in series_bundle.iterdir():
            (bundle / file.name).write_bytes(file.read_bytes())
        manifest = json.loads((bundle / "manifest.json").read_text())
        manifest["task"]["features"] = spec
        (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
        series_bundle = bundle
    assert evaluate(series_bundle, "--csv", path) == 1
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_no_missing_row_is_scored_and_the_output_says_how_many_are_missing(
    series_bundle: Path, long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = long_csv.read_text().splitlines()
    kept = [line for row, line in enumerate(lines) if row % 10 not in (7, 8)]
    long_csv.write_text("\n".join(kept) + "\n")
    record = tmp_path / "scores.json"
    assert evaluate(series_bundle, "--csv", long_csv) == 1
    assert "--gaps interpolate" in capsys.readouterr().err
    assert evaluate(series_bundle, "--csv", long_csv, "--mend", "--json", record) == 0
    assert "20 gaps, 40 rows missing" in capsys.readouterr().out
    scores = json.loads(record.read_text())["scores"]
    assert {score["n"] for score in scores.values()} == {32}  # a fifth of 160 real rows


def test_a_bundle_whose_training_counted_filled_rows_scores_none_that_it_saw(
    series_bundle: Path, long_csv: Path, tmp_path: Path
) -> None:
    lines = long_csv.read_text().splitlines()
    long_csv.write_text("\n".join([*lines[:21], *lines[81:]]) + "\n")  # 60 early rows missing
    task = {"file": "sensor.csv", "n_training_rows": 160, "gaps": "interpolate"}
    manifest = json.loads((series_bundle / "manifest.json").read_text())
    manifest["task"] |= task
    bundle, record = tmp_path / "old", tmp_path / "scores.json"
    bundle.mkdir()
    for file in series_bundle.iterdir():
        (bundle / file.name).write_bytes(file.read_bytes())
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    assert evaluate(bundle, "--csv", long_csv, "--json", record) == 0
    scores = json.loads(record.read_text())["scores"]
    assert {score["n"] for score in scores.values()} == {28}  # of the last 40, a fifth of 140


def test_rows_that_training_saw_are_not_scored(
    series_bundle: Path, long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    bundle = shutil.copytree(series_bundle, tmp_path / "trained")
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["task"] |= {"file": "sensor.csv", "held_out": 0.2, "n_training_rows": 170}
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    assert evaluate(bundle, "--csv", long_csv) == 1
    assert "training saw 170 rows" in capsys.readouterr().err


def test_a_folder_that_is_neither_is_refused(
    tmp_path: Path, series_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(tmp_path) == 1
    assert "neither a bundle" in capsys.readouterr().err
    assert evaluate(series_bundle) == 1
    assert "--csv" in capsys.readouterr().err


def test_wrong_places_are_found_before_the_work(
    series_bundle: Path, long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        evaluate(series_bundle, "--csv", long_csv, "--plot", tmp_path / "a.bmp")
    assert evaluate(series_bundle, "--csv", long_csv, "--json", tmp_path / "no" / "a.json") == 1
    assert "No such folder" in capsys.readouterr().err


def test_the_verdict_says_whether_the_rows_settle_it() -> None:
    random = np.random.default_rng(0)
    came = random.normal(size=400)
    std = np.ones(400)
    forecasts = {
        "good": SeriesForecast(0.9 * came, std),
        "alike": SeriesForecast(0.9 * came + 1e-3 * random.normal(size=400), std),
        "poor": SeriesForecast(np.zeros(400), std),
    }
    close = verdict(came, forecasts)
    assert len(close) == 2 and "do not settle it" in close[0]
    clear = verdict(came, {"poor": forecasts["poor"], "good": forecasts["good"]})
    assert clear[0].startswith("lowest RMSE: good, 90.0 % below poor")
    assert "settle" not in clear[0]


@pytest.mark.long
def test_a_run_and_its_bundle_score_alike(
    tmp_path: Path, long_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    run, bundle = tmp_path / "model", tmp_path / "bundles" / "model"
    words = ["--steps", "20", "--batch", "2", "--threads", "1", "--out", str(run)]
    assert main(["train", "series", "--csv", str(long_csv), *words]) == 0
    assert main(["export", str(run), "--out", str(bundle), "--parity-steps", "128"]) == 0
    found = []
    for folder in (run, bundle):
        assert evaluate(folder, "--csv", long_csv, "--json", tmp_path / "s.json") == 0
        found.append(json.loads((tmp_path / "s.json").read_text())["scores"])
    assert found[0].keys() == found[1].keys()
    for name in found[0]:
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-4)  # float32 along 200 points


@pytest.mark.filterwarnings("error")
def test_a_constant_series_gives_no_nan(
    series_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "constant.csv"
    path.write_text("time,value\n" + "".join(f"{i},5\n" for i in range(200)))
    assert evaluate(series_bundle, "--csv", path) == 0
    out = capsys.readouterr().out
    assert "lowest RMSE: persistence and least squares alike" in out
    assert "nan" not in out and "inf" not in out


@pytest.mark.parametrize(("n", "words"), [(1, "one row does not"), (9, "the same in every row")])
def test_a_lead_without_spread_has_no_standard_errors(n: int, words: str) -> None:
    one, other = (SeriesForecast(np.full(n, mean), np.ones(n)) for mean in (0.0, 1.0))
    lines = verdict(np.zeros(n), {"one": one, "other": other})
    assert all(words in line and "inf" not in line for line in lines)


@pytest.mark.parametrize(
    ("k", "n", "p"),
    # By hand: 0.9^4; 4 x 0.9^3 x 0.1 is likelier than 0.9^4 is not; the rest is less likely.
    [(4, 4, 1.0), (3, 4, 1 - 0.9**4), (0, 4, 1e-4), (0, 1, 0.1), (1, 1, 1.0)],
)
def test_the_binomial_test_is_exact(k: int, n: int, p: float) -> None:
    assert binomial_p(k, n, 0.9) == pytest.approx(p, rel=1e-9)  # float64 sums of five terms


def of_band(coverage: float, n: int, rmse: float = 1.0, likelihood: float = 0.0) -> Scores:
    return Scores(rmse, 1.0, coverage, likelihood, n)


def test_a_band_is_named_where_chance_does_not_explain_it() -> None:
    assert "wider" in str(band_line(of_band(1.0, 276)))
    assert "narrower" in str(band_line(of_band(0.8, 276)))
    assert band_line(of_band(0.888, 457)) is None and band_line(of_band(1.0, 20)) is None
    assert band_line(of_band(0.88, 100_000)) is not None


def test_a_model_whose_error_is_not_the_lowest_is_shown_by_its_likelihood() -> None:
    model, other = of_band(0.9, 9, rmse=2.0, likelihood=1.5), of_band(0.9, 9, likelihood=1.25)
    line = str(beside_error({"model": model, "other": other}, "model"))
    assert "model 1.500, other 1.250" in line
    assert beside_error({"model": other, "other": model}, "model") is None


def test_evaluate_says_that_a_band_is_off(
    series_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calm.csv"  # an untrained model is far off
    path.write_text("time,value\n" + "".join(f"{i},{5 + i % 2 / 10}\n" for i in range(400)))
    assert evaluate(series_bundle, "--csv", path) == 0
    assert "the 90 % band holds 0.0 % of 80 rows: it is narrower" in capsys.readouterr().out


@pytest.mark.long
def test_a_model_that_refuses_more_points_is_scored_as_a_device_runs_it(
    long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run in PyTorch and its bundle learn what they have room for, predict on and say so."""
    pytest.importorskip("torch", reason="training needs the train extra")
    run, bundle = tmp_path / "run", tmp_path / "bundle"
    words = ["train", "series", "--csv", long_csv, "--model", "lbanp", "--steps", 2, "--batch", 2]
    words += ["--set", "capacity=120", "--set", "n_blocks=1", "--out", run]
    assert main([*map(str, words)]) == 0
    words = ["export", run, "--chunk", 8, "--targets", 4, "--parity-steps", 128, "--out", bundle]
    assert main([*map(str, words)]) == 0
    found = []
    for folder in (run, bundle):
        capsys.readouterr()
        record = tmp_path / f"{folder.name}.json"
        assert evaluate(folder, "--csv", long_csv, "--json", record) == 0
        assert f"{folder.name} had room for 120 of" in capsys.readouterr().out
        found.append(json.loads(record.read_text())["scores"][folder.name])
    assert found[0]["rmse"] == pytest.approx(found[1]["rmse"], rel=1e-4)
