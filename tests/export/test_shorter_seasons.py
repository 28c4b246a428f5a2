"""The bundle sensors, written for shorter seasons: its forecasts are those of the whole bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgefold.export.native.generator import generate
from edgefold.export.shorter_seasons import RingLengths, shorten_seasons
from edgefold.runtime import Sensors, Stream, load_manifest
from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.checking.golden import check_bundle
from edgefold.runtime.errors import ExportError
from edgefold.runtime.hashing import sha256_of
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.c_streams import CStream, compiled, compiler

WHOLE = RingLengths(1440, 3072)


@pytest.fixture(scope="module")
def whole() -> Path:
    return shipped_bundle()


@pytest.fixture(scope="module")
def shorter(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Bundles by their longest season."""
    folder = tmp_path_factory.mktemp("seasons")
    bundles = {longest: folder / f"{longest}" for longest in (24, 168, 1440)}
    for longest, place in bundles.items():
        shorten_seasons(whole, longest, place)
    return bundles


def rows(season: int, n: int, seed: int = 0) -> Array:
    """Rows of the model's input, (n, 4): a wave of the season with noise, a twentieth missing."""
    draws, t = np.random.default_rng(seed), np.arange(n)
    values = 10 + 3 * np.sin(2 * np.pi * t / max(season, 7)) + 0.3 * draws.standard_normal(n)
    measured = (draws.random(n) > 0.05).astype(float)
    columns = [values * measured, measured, np.full(n, float(season)), t % max(season, 1)]
    return np.stack(columns, 1)


def answers(bundle: Path, x: Array) -> Iterator[dict[str, Array]]:
    with Stream.open(bundle, "onnxruntime") as stream:
        for row in x:
            yield {name: array.copy() for name, array in stream.step(row[None]).tensors.items()}


def differing(one: Path, other: Path, x: Array) -> set[str]:
    """The tensors in which two bundles differ in any bit along a stream."""
    pairs = zip(answers(one, x), answers(other, x), strict=True)
    return {n for a, b in pairs for n, array in a.items() if not np.array_equal(array, b[n])}


def test_rings_hold_all_that_forecasts_read() -> None:
    for longest in range(24, 1441):
        held = WHOLE.for_seasons(longest).values
        assert min(2 * longest + 33 + 48, 3072) <= held <= 3072
        assert held >= min(8 * longest + 48, 3072)  # the mean of 8 seasons
        assert held > 8 * 16  # and of what stands for them
        assert held > min(24 * longest, 24 * 58)  # `usual`
    assert [WHOLE.for_seasons(n).values for n in (24, 168, 1440)] == [640, 1408, 3072]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("season", "longest", "n"), [(24, 24, 700), (0, 24, 300), (6, 24, 300), (24, 168, 300)]
)
def test_every_answer_is_that_of_the_whole_bundle(
    season: int, longest: int, n: int, whole: Path, shorter: dict[int, Path]
) -> None:
    """The first stream has more rows than its ring of 640 values holds."""
    assert differing(whole, shorter[longest], rows(season, n)) == set()


@pytest.mark.long
def test_forecasts_of_a_week_of_hours_are_those_of_the_whole_bundle(
    whole: Path, shorter: dict[int, Path]
) -> None:
    x = rows(168, 1540)  # its ring holds 1408
    assert differing(whole, shorter[168], x) == {"usual"}  # of 8 seasons, not 9


@pytest.mark.long
def test_a_season_that_changes_is_followed_alike(whole: Path, shorter: dict[int, Path]) -> None:
    x = np.concatenate([rows(season, 100, seed=season) for season in (0, 24, 12, 24, 5, 0)])
    assert differing(whole, shorter[24], x) == set()


def test_a_longer_season_is_none_for_the_bundle(whole: Path, shorter: dict[int, Path]) -> None:
    x = rows(30, 100)
    without = x * [1, 1, 0, 0]
    pairs = zip(answers(shorter[24], x), answers(whole, without), strict=True)
    assert all(np.array_equal(a["quantiles"], b["quantiles"]) for a, b in pairs)


@pytest.mark.long
def test_compiled_c_of_it_stays_with_the_whole_bundle(
    whole: Path, shorter: dict[int, Path], tmp_path: Path
) -> None:
    compiler()
    library = compiled(generate(shorter[24], "model").files, tmp_path, "-O2")
    stream = CStream(shorter[24], library)
    x = rows(24, 700)
    worst = 0.0
    for row, expected in zip(x, answers(whole, x), strict=True):
        assert stream.step(row[None]) == "OK"
        found = stream.predictions(1)["ahead_quantiles"].reshape(8, 7)
        worst = max(worst, float(np.abs(found - expected["ahead_quantiles"].reshape(8, 7)).max()))
    assert worst < 1e-3  # values around 10: float32 sums in another order, through 700 rows


def test_its_golden_stream_holds_and_its_files_are_those_of_every_machine(
    whole: Path, shorter: dict[int, Path], tmp_path: Path
) -> None:
    assert check_bundle(shorter[24], "onnxruntime").passed
    shorten_seasons(whole, 24, tmp_path)
    assert load_manifest(tmp_path).bundle_hash == load_manifest(shorter[24]).bundle_hash
    shorten_seasons(shorter[168], 24, tmp_path / "again")
    assert load_manifest(tmp_path / "again").bundle_hash == load_manifest(shorter[24]).bundle_hash


def test_the_manifest_says_what_the_graph_does(whole: Path, shorter: dict[int, Path]) -> None:
    before, after = load_manifest(whole), load_manifest(shorter[24])
    assert after.prediction.settings()["longest_season"] == 24
    assert after.model["settings"] == {**before.model["settings"], "longest": 24, "values": 640}
    plans = before.memory_plan, after.memory_plan
    rings = 4 * ((3072 - 640) + 7 * (1440 - 24))
    assert plans[0]["state_bytes"] - plans[1]["state_bytes"] == rings
    same = json.loads((shorter[1440] / "manifest.json").read_text())
    old = json.loads((whole / "manifest.json").read_text())
    assert {name for name in old if old[name] != same.get(name)} == {"resumes", "sha256"}


def test_c_of_it_takes_less_memory(whole: Path, shorter: dict[int, Path]) -> None:
    small, large = generate(shorter[24]), generate(shorter[1440])
    assert small.arena_bytes == large.arena_bytes
    structs = [int(native.header.split("_RAM_BYTES (")[1].split()[0]) for native in (large, small)]
    assert structs[0] - structs[1] == 4 * ((3072 - 640) + 7 * (1440 - 24))


def test_the_clock_and_the_alarms_of_a_sensor_run_on_it(
    whole: Path, shorter: dict[int, Path]
) -> None:
    times = [1e9 + 21600 * slot for slot in range(120)]  # four in a day
    values = [float(slot % 4) for slot in range(119)] + [40.0]
    backend = "onnxruntime"
    with Sensors.open(shorter[24], backend) as one, Sensors.open(whole, backend) as other:
        seen = [(one.step(*row), other.step(*row)) for row in zip(times, values, strict=True)]
    assert [(a.mean, a.quantiles, a.alarm) for a, _ in seen] == [
        (b.mean, b.quantiles, b.alarm) for _, b in seen
    ]
    assert seen[-1][0].alarm and seen[-1][0].quantiles[0.05] > 2


@pytest.mark.parametrize("longest", [23, 1441, 0])
def test_a_season_too_short_or_too_long_is_refused(
    whole: Path, tmp_path: Path, longest: int
) -> None:
    with pytest.raises(ExportError, match="sensors can be written for 24 to 1440"):
        shorten_seasons(whole, longest, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bundle_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="a bundle of cmanp; only those of the general model"):
        shorten_seasons(shipped_bundle("gp-tiny"), 24, tmp_path / "out")


def test_a_graph_whose_lengths_are_not_known_for_sure_is_refused(
    whole: Path, tmp_path: Path
) -> None:
    """Another constant with the number, which the same kind of operator reads, makes it unsure."""
    bundle = tmp_path / "bundle"
    shutil.copytree(whole, bundle)
    model = onnx.load(bundle / "step.onnx", load_external_data=False)
    inline = [t for t in model.graph.initializer if t.data_location == t.DEFAULT]
    lengths = [t for t in inline if numpy_helper.to_array(t).tolist() == 3072]
    twin = onnx.TensorProto()
    twin.CopyFrom(lengths[0])
    twin.name = "twin"
    model.graph.initializer.append(twin)
    reader = next(n for n in model.graph.node if n.op_type == "Mod" and lengths[0].name in n.input)
    reader.input[1] = "twin"
    onnx.save(model, bundle / "step.onnx")
    form = json.loads((bundle / "manifest.json").read_text())
    form["graphs"]["step"]["sha256"] = sha256_of(bundle / "step.onnx")
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(form)))
    with pytest.raises(ExportError, match="must have one constant 3072, which Mod, Sub read"):
        shorten_seasons(bundle, 24, tmp_path / "out")
