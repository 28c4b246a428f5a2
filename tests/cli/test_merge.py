"""`edgefold merge`: the loop that resumes its snapshot knows what all streams have learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.commands.snapshots.sensor_states import SensorStates
from edgefold.cli.main import main
from edgefold.runtime import Piece, Stream
from edgefold.runtime.sources.row_source import source_name

Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


def merge(bundle: Path, *words: object) -> int:
    return main(["merge", str(bundle), *(str(word) for word in words)])


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
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["60", str(merged)] in said
    assert said[-3:] == [["20", f"{part}.csv,", "rows", "0", "to", "19"] for part in range(3)]
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


def test_snapshots_that_have_a_row_in_common_are_refused(
    tiny_bundle: Path, parts: list[Path], snapshots: list[Path], tmp_path: Path, capsys: Text
) -> None:
    """The run with another name and folder has learned the same file."""
    again, merged = tmp_path / "again" / parts[0].name, tmp_path / "merged.npz"
    again.parent.mkdir()
    again.write_text("".join(parts[0].read_text().splitlines(True)[:6]))
    snapshot = tmp_path / "again.npz"
    assert run(tiny_bundle, "--input", again, "--snapshot", snapshot) == 0
    for vouched in ([], ["--disjoint"]):
        capsys.readouterr()
        assert merge(tiny_bundle, *snapshots, snapshot, "--out", merged, *vouched) == 1
        report = capsys.readouterr().err
        assert f"{snapshots[0]} and {snapshot}: rows 0 to 4 of 0.csv would count twice" in report
    assert not merged.exists()
    snapshot.unlink()
    words = ("--input", again, "--snapshot", snapshot, "--source", "cellar")
    assert run(tiny_bundle, *words) == 0
    assert merge(tiny_bundle, *snapshots, snapshot, "--out", merged) == 0
    assert "cellar, rows 0 to 4" in capsys.readouterr().out


def test_points_of_unknown_rows_need_the_callers_word(
    tiny_bundle: Path, snapshots: list[Path], tmp_path: Path, capsys: Text
) -> None:
    merged = tmp_path / "merged.npz"
    with Stream.open(tiny_bundle) as stream:
        stream.update(np.ones((7, 2)), np.ones((7, 1)))
        stream.save(tmp_path / "board.npz")
    assert merge(tiny_bundle, snapshots[0], tmp_path / "board.npz", "--out", merged) == 1
    assert "--disjoint" in capsys.readouterr().err
    words = ("--out", merged, "--disjoint")
    assert merge(tiny_bundle, snapshots[0], tmp_path / "board.npz", *words) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["7", "of", "unknown", "rows"]
    assert main(["snapshot", str(merged)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split() == ["points", "27"] and shown[-1].split()[0] == "7"
    assert shown[-2].split() == ["20", "0.csv,", "rows", "0", "to", "19"]


def test_a_file_that_is_no_snapshot_is_not_shown(tmp_path: Path, capsys: Text) -> None:
    (tmp_path / "s.npz").write_text("no")
    assert main(["snapshot", str(tmp_path / "s.npz")]) == 1
    assert "is not a snapshot" in capsys.readouterr().err


# Several sensors ----------------------------------------------------------------------------------


def table(path: Path, names: str, n: int, shift: int = 0) -> Path:
    """A wide table of n rows with a sensor for each letter."""
    values = ",".join(f"{{{name}}}" for name in names)
    rows = [
        f"{t}," + values.format(**{name: 400 + (t * (1 + ord(name)) + shift) % 7 for name in names})
        for t in range(n)
    ]
    path.write_text("\n".join([f"time,{','.join(names)}", *rows]) + "\n")
    return path


def run_table(bundle: Path, path: Path, names: str, *words: object) -> int:
    of_sensors = ["--value", ",".join(names)] if len(names) > 1 else ["--value", names]
    output = path.with_suffix(".out")
    snapshot = path.with_suffix(".npz")
    return run(
        bundle, "--input", path, *of_sensors, "--output", output, "--snapshot", snapshot, *words
    )


def states_of(bundle: Path, path: Path) -> dict[str, tuple[int, list[str]]]:
    """The number of points of each sensor in a snapshot, and the origins of its pieces."""
    with Stream.open(bundle) as stream:
        sensors = SensorStates(stream, path, stream.restore(path))
    n_points = sensors.states.n_points
    return {
        name: (int(n_points[i]), [piece.origin for piece in sensors.provenances[i].pieces])
        for i, name in enumerate(sensors.names)
    }


def test_sensors_join_those_of_the_same_name(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    one, two = table(tmp_path / "one.csv", "ab", 20), table(tmp_path / "two.csv", "bc", 30, 3)
    merged = tmp_path / "merged.npz"
    for path, names in ((one, "ab"), (two, "bc")):
        assert run_table(series_bundle, path, names) == 0
    snapshots = [path.with_suffix(".npz") for path in (one, two)]
    n = [states_of(series_bundle, path)["b"][0] for path in snapshots]
    assert merge(series_bundle, *snapshots, "--out", merged) == 0
    said = capsys.readouterr().out
    assert "two.csv (column=c), rows 0 to 29" in said
    assert states_of(series_bundle, merged) == {
        "a": (n[0], ["one.csv (column=a)"]),
        "b": (sum(n), ["one.csv (column=b)", "two.csv (column=b)"]),
        "c": (n[1], ["two.csv (column=c)"]),
    }
    assert main(["snapshot", str(merged)]) == 0
    assert "3: a, b, c" in capsys.readouterr().out


def test_a_loop_goes_on_from_the_merged_states_of_its_sensors(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    one, two = table(tmp_path / "one.csv", "ab", 20), table(tmp_path / "two.csv", "ab", 30, 3)
    merged = tmp_path / "merged.npz"
    for path in (one, two):
        assert run_table(series_bundle, path, "ab") == 0
    snapshots = [path.with_suffix(".npz") for path in (one, two)]
    assert merge(series_bundle, *snapshots, "--out", merged) == 0
    merged.replace(snapshots[0])
    with one.open("a") as file:
        file.write("20,401,402\n")
    before = states_of(series_bundle, snapshots[0])
    assert run_table(series_bundle, one, "ab") == 0
    after = states_of(series_bundle, snapshots[0])
    assert {name: n for name, (n, _) in after.items()} == {
        name: n + 1 for name, (n, _) in before.items()
    }
    assert len(one.with_suffix(".out").read_text().splitlines()) == 1 + 2 * 21
    capsys.readouterr()
    assert merge(series_bundle, *snapshots, "--out", tmp_path / "again.npz") == 1
    assert "rows 0 to 29 of two.csv (column=a)" in capsys.readouterr().err


def test_one_state_does_not_join_those_of_several_sensors(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    one, two = table(tmp_path / "one.csv", "ab", 20), table(tmp_path / "two.csv", "a", 30, 3)
    for path, names in ((one, "ab"), (two, "a")):
        assert run_table(series_bundle, path, names) == 0
    snapshots = [path.with_suffix(".npz") for path in (one, two)]
    for paths in (snapshots, snapshots[::-1]):
        assert merge(series_bundle, *paths, "--out", tmp_path / "merged.npz", "--disjoint") == 1
        assert "several sensors" in capsys.readouterr().err


# A loop that goes on from a state that no loop has written ----------------------------------------


def test_a_loop_goes_on_from_the_snapshot_of_a_program(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    snapshot, output = tmp_path / "s.npz", tmp_path / "p.csv"
    random = np.random.default_rng(0)
    x, y = random.uniform(-2, 2, (40, 2)), random.normal(size=(40, 1))
    with Stream.open(tiny_bundle, source="lab") as stream:
        stream.update(x, y)
        stream.save(snapshot)
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 0
    assert len(output.read_text().splitlines()) == 61
    with Stream.open(tiny_bundle) as stream:
        assert "loop" in stream.restore(snapshot)
        assert [piece.origin for piece in stream.provenance.pieces] == ["lab", points_csv.name]
        assert stream.n_points == stream.provenance.n_points == 100
        found = stream.query(x[:4]).mean.copy()
        stream.reset()
        stream.update(x, y)
        table = np.loadtxt(points_csv, delimiter=",", skiprows=1)
        stream.update(table[:, :2], table[:, 2:])
        np.testing.assert_allclose(found, stream.query(x[:4]).mean, rtol=0, atol=1e-5)
    assert run(tiny_bundle, *words) == 0  # and resumes as ever
    assert len(output.read_text().splitlines()) == 61


def test_a_state_that_knows_the_input_already_does_not_learn_it_again(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    snapshot, output = tmp_path / "s.npz", tmp_path / "p.csv"
    with Stream.open(tiny_bundle, source=points_csv.name) as stream:
        stream.update(np.ones((7, 2)), np.ones((7, 1)))
        stream.save(snapshot)
    before = snapshot.read_bytes()
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 1
    assert f"rows 0 to 6 of {points_csv.name}" in capsys.readouterr().err
    assert snapshot.read_bytes() == before and not output.exists()
    assert run(tiny_bundle, *words, "--source", "another table") == 0


def test_an_output_of_another_run_is_left_as_it_is(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    snapshot, output = tmp_path / "s.npz", tmp_path / "p.csv"
    with Stream.open(tiny_bundle) as stream:
        stream.save(snapshot)
    output.write_text("mine")
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 1
    assert output.read_text() == "mine"


def test_several_sensors_do_not_go_on_from_the_state_of_one(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    path = table(tmp_path / "one.csv", "ab", 20)
    with Stream.open(series_bundle) as stream:
        stream.save(path.with_suffix(".npz"))
    assert run_table(series_bundle, path, "ab") == 1
    assert "the state of one stream" in capsys.readouterr().err


# The rows that a loop states ----------------------------------------------------------------------


def test_rows_are_numbered_from_the_first_row_and_go_on_after_a_stop(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path
) -> None:
    header, *rows = points_csv.read_text().splitlines()
    path, snapshot = tmp_path / "rows.csv", tmp_path / "s.npz"
    words = ("--input", path, "--output", tmp_path / "p.csv", "--snapshot", snapshot)
    for n_rows, n_points in ((10, 9), (30, 29)):
        path.write_text("\n".join([header, "1,x,2", *rows[1:n_rows]]) + "\n")
        assert run(tiny_bundle, *words, "--every", 4) == 0
        with Stream.open(tiny_bundle) as stream:
            stream.restore(snapshot)
            assert stream.provenance.pieces == (Piece("rows.csv", 0, n_rows, n_points),)
            assert stream.n_points == n_points


def test_a_long_table_states_the_column_that_names_its_sensors(
    series_bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "long.csv"
    rows = [f"{t},{400 + t % 7},{name}" for t in range(20) for name in ("3", "4")]
    path.write_text("\n".join(["time,value,site", *rows]) + "\n")
    words = ("--stream", "site", "--streams", 4, "--output", path.with_suffix(".out"))
    assert run(series_bundle, "--input", path, *words, "--snapshot", tmp_path / "s.npz") == 0
    states = states_of(series_bundle, tmp_path / "s.npz")
    assert {name: origins for name, (_, origins) in states.items()} == {
        "3": ["long.csv (site=3)"],
        "4": ["long.csv (site=4)"],
    }


def test_a_bundle_whose_states_do_not_join_states_nothing_unless_asked(
    tmp_path: Path, capsys: Text
) -> None:
    path, snapshot = tmp_path / "t.csv", tmp_path / "s.npz"
    rows = [f"2026-01-01T00:{t:02}:00Z,{t % 7}" for t in range(40)]
    path.write_text("\n".join(["time,value", *rows]) + "\n")
    words = ("--input", path, "--output", tmp_path / "p.csv", "--snapshot", snapshot)
    assert main(["run", "sensors", *map(str, words)]) == 0
    assert main(["snapshot", str(snapshot)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-2:] == ["unknown", "rows"]
    assert main(["run", "sensors", *map(str, words), "--force", "--source", "roof"]) == 0
    assert main(["snapshot", str(snapshot)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-2:] == ["to", "39"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("-", "standard input"),
        ("data/roof.csv", "roof.csv"),
        ("/dev/ttyUSB0", "ttyUSB0"),
        ("mqtt://user:secret@broker:1883/home/+/temperature?ca=x", "home/+/temperature"),
        ("nats://127.0.0.1/rows", "rows"),
        ("caf\udce9.csv", "caf\ufffd.csv"),
    ],
)
def test_a_source_is_named_without_the_machine(path: str, name: str) -> None:
    assert source_name(path) == name


def test_a_model_that_cannot_merge_is_refused(tmp_path: Path, capsys: Text) -> None:
    paths = [tmp_path / "one.npz", tmp_path / "two.npz"]
    with Stream.open(Path(__file__).parents[2] / "runtime" / "shipped_bundles" / "sensors") as s:
        for path in paths:
            s.save(path)
    assert main(["merge", "sensors", *map(str, paths), "--out", str(tmp_path / "m.npz")]) == 1
    assert "no graph merge" in capsys.readouterr().err
