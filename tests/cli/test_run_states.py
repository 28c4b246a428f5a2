"""`edgefold run` and the program in C begin with a state that no loop has written."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.runtime import Stream
from edgefold.runtime.arrays import Array
from tests.export.native.loop.program_rig import exported, of_bundle

Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *map(str, words)])


def means(path: Path, n_columns: int) -> list[float]:
    """The predicted means of an output, behind the line's number and the input's columns."""
    with path.open() as file:
        return [float(row[1 + n_columns]) for row in [*csv.reader(file)][1:]]


def learned(bundle: Path, n: int, path: Path) -> bytes:
    """A snapshot of a stream that has learned n points."""
    random = np.random.default_rng(1)
    with Stream.open(bundle) as stream:
        m = stream.manifest
        x, y = (random.normal(size=(n, columns)) for columns in (m.n_inputs, m.n_outputs))
        stream.condition(x, y)
        stream.save(path)
    return path.read_bytes()


def rows_of(path: Path) -> tuple[Array, Array]:
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, :2], table[:, 2:]


def test_a_loop_begins_with_a_state_and_goes_on_from_its_own_snapshots(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path
) -> None:
    state, output = tmp_path / "state.npz", tmp_path / "p.csv"
    before = learned(tiny_bundle, 100, state)
    x, y = rows_of(points_csv)
    expected = []
    with Stream.open(tiny_bundle) as stream:
        stream.restore(state)
        for row in range(len(x)):
            expected.append(stream.query(x[row : row + 1]).mean.item())
            stream.update(x[row : row + 1], y[row : row + 1])
    words = ("--input", points_csv, "--output", output, "--snapshot", state, "--every", 7)
    assert run(tiny_bundle, *words) == ExitCode.DONE
    np.testing.assert_allclose(means(output, 3), expected, rtol=1e-6, atol=1e-6)
    with Stream.open(tiny_bundle) as stream:
        stream.restore(state)
        assert stream.n_points == 160
    first = output.read_bytes()
    with points_csv.open("a") as file:
        file.write("0.1,0.2,0.3\n")
    assert run(tiny_bundle, *words) == ExitCode.DONE
    assert output.read_bytes().startswith(first) and len(means(output, 3)) == 61
    assert run(tiny_bundle, *words, "--force") == ExitCode.DONE
    assert means(output, 3)[0] != pytest.approx(expected[0])  # it knows nothing
    assert state.read_bytes() != before


def test_an_output_of_somebody_else_is_left_and_so_is_the_state(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path
) -> None:
    state, output = tmp_path / "state.npz", tmp_path / "p.csv"
    before = learned(tiny_bundle, 10, state)
    output.write_text("mine")
    words = ("--input", points_csv, "--output", output, "--snapshot", state)
    assert run(tiny_bundle, *words) == ExitCode.REFUSED
    assert output.read_text() == "mine" and state.read_bytes() == before


def test_rows_at_a_wrong_pace_leave_the_state(series_bundle: Path, tmp_path: Path) -> None:
    state, output, rows = (tmp_path / name for name in ("state.npz", "p.csv", "rows.csv"))
    before = learned(series_bundle, 10, state)
    rows.write_text("time,value\n" + "".join(f"{365.25 * i},{i}\n" for i in range(40)))
    words = ("--input", rows, "--output", output, "--snapshot", state)
    assert run(series_bundle, *words) == ExitCode.REFUSED
    assert not output.exists() and state.read_bytes() == before


def test_a_state_of_one_stream_is_no_beginning_for_several_sensors(
    series_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    state, rows = tmp_path / "state.npz", tmp_path / "rows.csv"
    before = learned(series_bundle, 10, state)
    rows.write_text("time,roof,cellar\n" + "".join(f"{i},{i % 7},{i % 5}\n" for i in range(40)))
    words = ("--input", rows, "--output", tmp_path / "p.csv", "--value", "roof,cellar")
    assert run(series_bundle, *words, "--snapshot", state) == ExitCode.REFUSED
    assert "did not write" in capsys.readouterr().err and state.read_bytes() == before


@pytest.mark.long
def test_the_program_in_c_begins_as_the_loop_does(tmp_path: Path) -> None:
    bundle = exported("cnp", tmp_path / "bundle", "--set", "width=16")
    program = of_bundle(bundle, tmp_path / "c")
    rows, state = tmp_path / "rows.csv", tmp_path / "state.npz"
    rows.write_text("x1,y1\n" + "".join(f"{0.1 * i},{0.01 * i * i}\n" for i in range(30)))
    found = {}
    for name in ("c", "python"):
        learned(bundle, 50, state)
        output = tmp_path / f"{name}.csv"
        words = ("--input", rows, "--output", output, "--snapshot", state)
        if name == "c":
            ended = program.run(*words)
            assert ended.code == 0, ended.errors
        else:
            assert run(bundle, *words) == ExitCode.DONE
        found[name] = means(output, 2)
        with Stream.open(bundle) as stream:
            stream.restore(state)
            assert stream.n_points == 80
        output.write_text("mine")
        before = learned(bundle, 5, state)
        if name == "c":
            assert program.run(*words).code == ExitCode.REFUSED
        else:
            assert run(bundle, *words) == ExitCode.REFUSED
        assert output.read_text() == "mine" and state.read_bytes() == before
    np.testing.assert_allclose(found["c"], found["python"], rtol=1e-5, atol=1e-5)
