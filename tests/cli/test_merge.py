"""`edgefold merge`: the loop that resumes its snapshot knows what all streams have learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.main import main
from edgefold.runtime import Stream

Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


def merge(bundle: Path, *words: object) -> int:
    return main(["merge", str(bundle), *(str(word) for word in words), "--disjoint"])


@pytest.fixture
def parts(points_csv: Path, tmp_path: Path) -> list[Path]:
    """The rows of a table in three tables."""
    header, *rows = points_csv.read_text().splitlines()
    paths = [tmp_path / f"{part}.csv" for part in range(3)]
    for part, path in enumerate(paths):
        path.write_text("\n".join([header, *rows[part::3]]) + "\n")
    return paths


@pytest.fixture
def snapshots(tiny_bundle: Path, parts: list[Path], tmp_path: Path) -> list[Path]:
    """A snapshot of a run over each of the tables."""
    paths = [part.with_suffix(".npz") for part in parts]
    for part, path in zip(parts, paths, strict=True):
        output = part.with_suffix(".out")
        assert run(tiny_bundle, "--input", part, "--output", output, "--snapshot", path) == 0
    return paths


def test_a_merged_snapshot_is_that_of_a_stream_that_learned_all_rows(
    tiny_bundle: Path, points_csv: Path, snapshots: list[Path], tmp_path: Path, capsys: Text
) -> None:
    merged, whole = tmp_path / "merged.npz", tmp_path / "whole.npz"
    assert merge(tiny_bundle, *snapshots, "--out", merged) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1].split() == ["60", str(merged)]
    run(tiny_bundle, "--input", points_csv, "--output", tmp_path / "p.csv", "--snapshot", whole)
    x = np.random.default_rng(0).uniform(-2, 2, (4, 2))
    means = []
    with Stream.open(tiny_bundle) as stream:
        for path in (merged, whole):
            stream.restore(path)
            assert stream.n_points == 60
            means.append(stream.query(x).mean.copy())
    np.testing.assert_allclose(means[0], means[1], rtol=0, atol=1e-5)


def test_the_first_snapshots_run_goes_on_where_it_stood(
    tiny_bundle: Path, snapshots: list[Path], parts: list[Path], tmp_path: Path, capsys: Text
) -> None:
    merged = tmp_path / "merged.npz"
    assert merge(tiny_bundle, *snapshots, "--out", merged) == 0
    output = parts[0].with_suffix(".out")
    before = output.read_text()
    with parts[0].open("a") as file:
        file.write("0.1,0.2,0.3\n")
    assert run(tiny_bundle, "--input", parts[0], "--output", output, "--snapshot", merged) == 0
    assert output.read_text().startswith(before)
    assert len(output.read_text().splitlines()) == len(before.splitlines()) + 1
    with Stream.open(tiny_bundle) as stream:
        stream.restore(merged)
        assert stream.n_points == 61


def test_nothing_is_written_unless_all_can_be_merged(
    tiny_bundle: Path, bundles: Path, snapshots: list[Path], tmp_path: Path, capsys: Text
) -> None:
    merged, foreign = tmp_path / "merged.npz", tmp_path / "foreign.npz"
    with Stream.open(bundles / "foreign") as stream:
        stream.save(foreign)
    assert merge(tiny_bundle, *snapshots, foreign, "--out", merged) == 1
    assert "belongs to another bundle" in capsys.readouterr().err
    assert not merged.exists()
    kept = snapshots[0].read_bytes()
    assert merge(tiny_bundle, *snapshots[1:], "--out", snapshots[0]) == 1
    assert snapshots[0].read_bytes() == kept
    assert merge(tiny_bundle, *snapshots[1:], "--out", snapshots[0], "--force") == 0
    assert snapshots[0].read_bytes() != kept


def test_a_snapshot_that_is_named_twice_is_wrong_usage(
    tiny_bundle: Path, snapshots: list[Path], tmp_path: Path
) -> None:
    again = snapshots[0].parent / "." / snapshots[0].name
    with pytest.raises(SystemExit) as left:
        merge(tiny_bundle, snapshots[0], again, "--out", tmp_path / "merged.npz")
    assert left.value.code == 2


def test_snapshots_of_several_sensors_are_refused(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    paths = [tmp_path / "one.npz", tmp_path / "two.npz"]
    for path in paths:
        table = path.with_suffix(".csv")
        rows = [f"{t},{400 + t % 7},{410 + t % 5}" for t in range(20)]
        table.write_text("\n".join(["time,roof,cellar", *rows]) + "\n")
        words = ["--value", "roof,cellar", "--output", path.with_suffix(".out")]
        assert run(series_bundle, "--input", table, *words, "--snapshot", path) == 0
    assert merge(series_bundle, *paths, "--out", tmp_path / "merged.npz") == 1
    assert "several sensors" in capsys.readouterr().err


def test_a_model_that_cannot_merge_is_refused(tmp_path: Path, capsys: Text) -> None:
    paths = [tmp_path / "one.npz", tmp_path / "two.npz"]
    with Stream.open(Path(__file__).parents[2] / "runtime" / "shipped_bundles" / "sensors") as s:
        for path in paths:
            s.save(path)
    assert main(["merge", "sensors", *map(str, paths), "--out", str(tmp_path / "m.npz")]) == 1
    assert "no graph merge" in capsys.readouterr().err
