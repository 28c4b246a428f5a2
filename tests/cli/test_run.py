from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.main import main
from edgefold.runtime import Stream

Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


def rows_of(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def test_each_row_is_predicted_before_it_is_learned(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output = tmp_path / "p.csv"
    assert run(tiny_bundle, "--input", points_csv, "--output", output) == 0
    header, *rows = rows_of(output)
    assert header == ["line", "x1", "x2", "y1", "prediction", "std", "error", "anomaly"]
    assert [row[0] for row in rows] == [str(n) for n in range(2, 62)]
    errors = []
    with Stream.open(tiny_bundle) as stream:
        for row in rows:
            x = np.array([[float(row[1]), float(row[2])]])
            y = float(row[3])
            prediction = stream.query(x)
            mean, std = prediction.mean.item(), prediction.std.item()
            stream.update(x, np.array([[y]]))
            assert row[4:6] == [f"{mean:.9g}", f"{std:.9g}"]
            assert float(row[6]) == pytest.approx(y - mean, rel=1e-8)
            assert row[7] == str(int(abs(y - mean) > 4 * std))
            errors.append(y - mean)
    rmse = float(np.sqrt(np.mean(np.square(errors))))
    assert f"RMSE          {rmse:.4g}" in capsys.readouterr().err


def test_a_series_is_predicted_in_its_own_units(
    series_bundle: Path, series_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output = tmp_path / "p.csv"
    assert run(series_bundle, "--input", series_csv, "--output", output) == 0
    header, *rows = rows_of(output)
    assert header == ["line", "time", "value", "prediction", "std", "error", "anomaly"]
    assert [row[3:] for row in rows[:6]] == [["", "", "", ""]] * 6  # the pace is known at the 7th
    assert all(len(row) == 7 and row[3] for row in rows[6:])
    assert "60 updates, 54 predictions" in capsys.readouterr().err


def test_far_values_are_flagged(tiny_bundle: Path, points_csv: Path, tmp_path: Path) -> None:
    with points_csv.open("a") as file:
        file.write("0.1,0.2,1e6\n0.1,0.2,0.0\n")
    output = tmp_path / "p.csv"
    assert run(tiny_bundle, "--input", points_csv, "--output", output, "--anomaly-z", 50) == 0
    assert [row[0] for row in rows_of(output) if row[-1] == "1"] == ["62"]


def test_bad_rows_are_reported_counted_and_skipped(
    series_bundle: Path, series_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    lines = series_csv.read_text().splitlines()
    mixed = [*lines[:20], "19,abc", "19", "5,400", "19,nan", "19,4,4", *lines[20:]]
    series_csv.write_text("\n".join(mixed) + "\n")
    assert run(series_bundle, "--input", series_csv, "--output", bad) == 0
    error = capsys.readouterr().err
    for line in (21, 22, 23, 25):
        assert f"line {line}:" in error
    assert "line 24:" not in error  # nan: a row without a value
    assert "4 malformed, 1 without a value" in error
    series_csv.write_text("\n".join(lines) + "\n")
    assert run(series_bundle, "--input", series_csv, "--output", good) == 0
    assert [row[1:] for row in rows_of(bad)] == [row[1:] for row in rows_of(good)]


@pytest.mark.one_case
@pytest.mark.parametrize("at", [1, 10, 60])
@pytest.mark.parametrize("row", ["1e12,400", "{},1e30", "{},-1e99\n{},1e99"])
def test_one_absurd_row_does_not_end_the_learning(
    series_bundle: Path, series_csv: Path, tmp_path: Path, at: int, row: str, capsys: Text
) -> None:
    lines = series_csv.read_text().splitlines()
    lines[at:at] = row.format(at - 1.5, at - 1.2).split("\n")
    series_csv.write_text("\n".join([*lines, "60,401", "61,402"]) + "\n")
    words = ("--input", series_csv, "--output", tmp_path / "p.csv", "--snapshot", tmp_path / "s")
    assert run(series_bundle, *words) == 0
    assert rows_of(tmp_path / "p.csv")[-1][3]  # the last row was predicted
    assert run(series_bundle, *words) == 0  # and what was kept can be read


def test_after_a_long_pause_the_loop_goes_on(
    series_bundle: Path, series_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    with series_csv.open("a") as file:
        file.writelines(f"{50_000 + i},{400 + i}\n" for i in range(10))
    assert run(series_bundle, "--input", series_csv, "--output", tmp_path / "p.csv") == 0
    rows = rows_of(tmp_path / "p.csv")
    assert [row[1] for row in rows[-9:]] == [str(50_001 + i) for i in range(9)]
    assert not rows[-9][3] and all(row[3] for row in rows[-8:])
    assert "history starts over" in capsys.readouterr().err


def test_many_refused_rows_at_the_end_are_an_alarm(
    series_bundle: Path, series_csv: Path, capsys: Text
) -> None:
    text = series_csv.read_text()
    rows = [f"{line}\n" for line in text.splitlines()[1:21]]  # learned before
    for n_bad, code in ((19, 0), (20, 1)):
        series_csv.write_text(text + "".join(rows[:n_bad]))
        assert run(series_bundle, "--input", series_csv) == code
        assert ("WARNING" in capsys.readouterr().err) == bool(code)


def test_strict_stops_before_the_bad_row_and_goes_on_when_it_is_mended(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    lines = points_csv.read_text().splitlines()
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    assert run(tiny_bundle, "--input", points_csv, "--output", whole) == 0
    points_csv.write_text("\n".join([*lines[:30], "oops", *lines[31:]]) + "\n")
    words = ("--input", points_csv, "--output", parts, "--snapshot", tmp_path / "s.npz", "--strict")
    capsys.readouterr()
    assert run(tiny_bundle, *words) == 1
    error = capsys.readouterr().err
    assert "line 31" in error and error.count("\n") == 1
    points_csv.write_text("\n".join(lines) + "\n")
    assert run(tiny_bundle, *words) == 0
    assert parts.read_bytes() == whole.read_bytes()


def test_an_output_without_snapshot_is_left_alone(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output = tmp_path / "p.csv"
    output.write_text("mine")
    snapshot = tmp_path / "s.npz"
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 1
    assert "--force" in capsys.readouterr().err
    assert output.read_text() == "mine" and not snapshot.exists()
    assert run(tiny_bundle, *words, "--force") == 0
    assert len(rows_of(output)) == 61


def test_lines_written_after_the_snapshot_are_removed_and_counted(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output = tmp_path / "p.csv"
    words = ("--input", points_csv, "--output", output, "--snapshot", tmp_path / "s.npz")
    assert run(tiny_bundle, *words) == 0
    whole = output.read_text()
    output.write_text(whole + whole.splitlines(keepends=True)[-1] * 3)  # as after a kill
    capsys.readouterr()
    assert run(tiny_bundle, *words) == 0
    assert output.read_text() == whole
    assert f"removed       3 lines of {output}, written after" in capsys.readouterr().err


def test_a_finished_run_does_nothing_more_and_a_longer_input_is_read_on(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output, whole = tmp_path / "p.csv", tmp_path / "whole.csv"
    lines = points_csv.read_text().splitlines()
    points_csv.write_text("\n".join(lines[:41]))  # no newline behind the last row
    words = ("--input", points_csv, "--output", output, "--snapshot", tmp_path / "s.npz")
    assert run(tiny_bundle, *words) == 0
    first = output.read_bytes()
    assert run(tiny_bundle, *words) == 0
    assert output.read_bytes() == first
    assert "resumed from the snapshot" in capsys.readouterr().err
    points_csv.write_text("\n".join(lines) + "\n")
    assert run(tiny_bundle, *words) == 0
    assert run(tiny_bundle, "--input", points_csv, "--output", whole) == 0
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("cut", [0, 3])
def test_a_last_line_that_is_still_written_is_left_to_the_next_run(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, cut: int, capsys: Text
) -> None:
    output, whole = tmp_path / "p.csv", tmp_path / "whole.csv"
    text = points_csv.read_text()
    assert run(tiny_bundle, "--input", points_csv, "--output", whole) == 0
    points_csv.write_text(text[: text.index("\n", 500) - cut])
    words = ("--input", points_csv, "--output", output, "--snapshot", tmp_path / "s.npz")
    for _ in range(2):
        capsys.readouterr()
        assert run(tiny_bundle, *words) == 0
        assert "the last line has no end yet" in capsys.readouterr().err
    points_csv.write_text(text)
    assert run(tiny_bundle, *words) == 0
    assert output.read_bytes() == whole.read_bytes()
    assert "no end" not in capsys.readouterr().err


@pytest.mark.parametrize("change", ["head", "shorter"])
def test_another_input_is_refused(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, change: str, capsys: Text
) -> None:
    output, snapshot = tmp_path / "p.csv", tmp_path / "s.npz"
    text = points_csv.read_text()
    points_csv.write_text(text.rstrip("\n"))
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 0
    kept = output.read_bytes(), snapshot.read_bytes()
    changed = {
        "head": text.replace("0.0000", "9.0000", 1),
        "shorter": text[:200],
    }
    points_csv.write_text(changed[change])
    capsys.readouterr()
    assert run(tiny_bundle, *words) == 1
    error = capsys.readouterr().err
    assert "--force" in error and error.count("\n") == 1
    assert (output.read_bytes(), snapshot.read_bytes()) == kept


def test_an_output_that_was_changed_or_lost_is_refused(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    output, snapshot = tmp_path / "p.csv", tmp_path / "s.npz"
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(tiny_bundle, *words) == 0
    raw = output.read_bytes()
    output.write_bytes(raw[:-5] + b"XXXX\n")
    assert run(tiny_bundle, *words) == 1
    assert output.read_bytes().endswith(b"XXXX\n")
    output.unlink()
    assert run(tiny_bundle, *words) == 1
    assert not output.exists()
    assert "is gone" in capsys.readouterr().err
    assert run(tiny_bundle, "--input", points_csv, "--snapshot", snapshot) == 1
    assert "--output" in capsys.readouterr().err


def test_other_options_than_the_snapshot_are_refused(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    words = ("--input", points_csv, "--output", tmp_path / "p.csv", "--snapshot", tmp_path / "s")
    assert run(tiny_bundle, *words) == 0
    assert run(tiny_bundle, *words, "--anomaly-z", 3) == 1
    assert "same options" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["", "5,6,7\n"])
def test_other_columns_than_the_snapshot_are_refused(
    series_bundle: Path, tmp_path: Path, end: str, capsys: Text
) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "p.csv"
    source.write_text("time,east,west\n1,2,3\n2,3,4\n3,4,5\n")
    words = ("--input", source, "--output", output, "--snapshot", tmp_path / "s.npz")
    assert run(series_bundle, *words, "--value", "east") == 0
    before = output.read_bytes()
    with source.open("a") as file:
        file.write(end)
    assert run(series_bundle, *words, "--value", "west") == 1
    error = capsys.readouterr().err
    assert "'east'" in error and "'west'" in error and "same options" in error
    assert output.read_bytes() == before
    assert run(series_bundle, *words, "--value", "east") == 0


@pytest.mark.parametrize("kind", ["foreign", "damaged", "text"])
def test_a_snapshot_of_another_kind_is_refused_and_kept(
    bundles: Path, points_csv: Path, tmp_path: Path, kind: str, capsys: Text
) -> None:
    snapshot, output = tmp_path / "s.npz", tmp_path / "p.csv"
    if kind == "text":
        snapshot.write_text("hello")
    else:
        maker = bundles / ("foreign" if kind == "foreign" else "tiny")
        assert run(maker, "--input", points_csv, "--snapshot", snapshot) == 0
        if kind == "damaged":
            raw = bytearray(snapshot.read_bytes())
            raw[len(raw) // 2] ^= 1
            snapshot.write_bytes(raw)
    before = snapshot.read_bytes()
    capsys.readouterr()
    words = ("--input", points_csv, "--output", output, "--snapshot", snapshot)
    assert run(bundles / "tiny", *words) == 1
    error = capsys.readouterr().err
    assert str(snapshot) in error and error.count("\n") == 1
    assert snapshot.read_bytes() == before and not output.exists()


@pytest.mark.parametrize(
    "data",
    [
        os.urandom(20_000).replace(b"\n", b""),
        os.urandom(20_000),
        bytes(range(256)) * 50,
        b"",
        b"x1,x2,y1\n",
        b"a,b,c,d\n1,2,3,4\n",
        b"1,2\n3,4\n",
        b"x1,x2,y1\nred,green,blue\n" * 30,
        "x1,x2,y1\n1,2,3\n".encode("utf-16"),
    ],
)
def test_a_file_without_rows_is_one_line_and_writes_nothing(
    tiny_bundle: Path, tmp_path: Path, data: bytes, capsys: Text
) -> None:
    source, output, snapshot = tmp_path / "in.csv", tmp_path / "p.csv", tmp_path / "s.npz"
    source.write_bytes(data)
    code = run(tiny_bundle, "--input", source, "--output", output, "--snapshot", snapshot)
    error = capsys.readouterr().err
    assert code == 1 and error.startswith("edgefold: error: ") and error.count("\n") == 1
    assert error[:-1].isprintable()
    assert ("holds a header and no rows yet" in error) == (data == b"x1,x2,y1\n")
    assert not output.exists() and not snapshot.exists()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("x1,x2,y", "no whole line yet, but 7 bytes"),
        ("x1,x2,y1\r1,2,3\r", "ends its lines with CR alone, as old Macs did; convert it"),
    ],
)
def test_an_input_without_a_whole_line_says_so(
    tiny_bundle: Path, tmp_path: Path, data: str, told: str, capsys: Text
) -> None:
    (tmp_path / "in.csv").write_text(data)
    words = ("--input", tmp_path / "in.csv", "--snapshot", tmp_path / "s.npz")
    assert run(tiny_bundle, *words) == 1
    assert told in capsys.readouterr().err


def test_why_no_row_is_usable_reads_as_a_sentence(
    tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    (tmp_path / "in.csv").write_text("x1,x2,y1\nred,2,3\n")
    assert run(tiny_bundle, "--input", tmp_path / "in.csv") == 1
    assert "line 2: column x1 is 'red', not a" in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_huge_numbers_are_refused_without_warnings(
    tiny_bundle: Path, points_csv: Path, capsys: Text
) -> None:
    with points_csv.open("a") as file:
        file.write("1e308,1,1\n1,1,-1e308\n1e99,1,1\n1,1,1e99\n")
    assert run(tiny_bundle, "--input", points_csv) == 0
    assert "60 updates, 60 predictions, 4 malformed" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--input", "/none.csv"), ("--input", "/tmp")])
def test_an_input_that_cannot_be_read_is_named(
    tiny_bundle: Path, words: tuple[str, ...], capsys: Text
) -> None:
    assert run(tiny_bundle, *words) == 1
    error = capsys.readouterr().err
    assert words[1] in error and error.count("\n") == 1


def test_bundles_of_the_wrong_shape_are_refused(
    bundles: Path, series_bundle: Path, points_csv: Path, capsys: Text
) -> None:
    assert run(bundles / "streams", "--input", points_csv) == 1
    assert "--streams 1" in capsys.readouterr().err
    assert run(bundles / "tiny", "--input", points_csv, "--time", "t") == 1
    assert "not a series" in capsys.readouterr().err
    assert run(series_bundle, "--input", points_csv, "--columns", "a,b") == 1
    assert "is a series" in capsys.readouterr().err


def test_columns_are_chosen_by_name(tiny_bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "p.csv"
    source.write_text("out,note,east,north\n1,a,2,3\n4,b,5,6\n")
    words = ("--input", source, "--output", output, "--columns", "east,north,out")
    assert run(tiny_bundle, *words) == 0
    assert [row[:4] for row in rows_of(output)[1:]] == [["2", "2", "3", "1"], ["3", "5", "6", "4"]]


def test_buffered_points_change_nothing(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    assert run(tiny_bundle, "--input", points_csv, "--output", one) == 0
    assert run(tiny_bundle, "--input", points_csv, "--output", two, "--buffered") == 0
    assert one.read_bytes() == two.read_bytes()


def test_a_changed_bundle_does_not_run(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))
    raw = bytearray((bundle / "weights.bin").read_bytes())
    raw[100] ^= 1
    (bundle / "weights.bin").write_bytes(raw)
    assert run(bundle, "--input", points_csv, "--output", tmp_path / "p.csv") == 1
    assert "weights.bin was changed" in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("options", [[], ["--value", "roof"]])
def test_columns_that_only_their_order_names_are_told(
    series_bundle: Path, tmp_path: Path, capsys: Text, options: list[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("when,roof\n" + "".join(f"{n},{n}\n" for n in range(20)))
    if options:
        options += ["--time", "when"]
    assert run(series_bundle, "--input", table, "--output", tmp_path / "p.csv", *options) == 0
    told = "columns       read by their order, since no name was given: when, roof as time, value"
    assert (told in capsys.readouterr().err) == (not options)
