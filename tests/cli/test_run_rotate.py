"""`edgefold run --rotate`: parts of an output, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.runtime.bundle.manifest_file import with_checksum

Text = pytest.CaptureFixture[str]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


@pytest.fixture
def dated_bundle(series_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The series bundle for rows of a date, one an hour."""
    folder = tmp_path_factory.mktemp("dated") / "dated"
    folder.mkdir()
    for path in series_bundle.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["task"]["features"] |= {"clock": "date", "step": 3600.0}
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return folder


@pytest.fixture
def dated_csv(tmp_path: Path) -> Path:
    """60 hours from noon of the last day of a month, with a row that comes late."""
    lines = [f"2024-0{3 + (n > 11)}-{(31, 1, 2, 3)[(n + 12) // 24]:02d}T{(n + 12) % 24:02d}:00"
             for n in range(60)]  # fmt: skip
    lines.insert(30, lines[2])
    path = tmp_path / "dated.csv"
    path.write_text("time,value\n" + "".join(f"{line},400\n" for line in lines))
    return path


def joined(parts: list[Path]) -> str:
    texts = [part.read_text().splitlines(keepends=True) for part in parts]
    assert len({text[0] for text in texts}) == 1
    return "".join(texts[0][:1] + [line for text in texts for line in text[1:]])


def test_each_day_has_a_file(dated_bundle: Path, dated_csv: Path, tmp_path: Path) -> None:
    output, whole = tmp_path / "p.csv", tmp_path / "whole.csv"
    words = ("--input", dated_csv, "--output")
    assert run(dated_bundle, *words, whole) == 0
    assert run(dated_bundle, *words, output, "--rotate", "day") == 0
    found = sorted(tmp_path.glob("p.*"))
    assert [path.name for path in found] == ["p.2024-03-31.csv", "p.2024-04-01.csv", "p.csv"]
    assert joined(found) == whole.read_text()


def test_parts_follow_each_other_over_restarts(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    """Finished parts are moved away in between, as a user may."""
    output, whole, away = tmp_path / "p.csv", tmp_path / "whole.csv", tmp_path / "away"
    away.mkdir()
    assert run(tiny_bundle, "--input", points_csv, "--output", whole) == 0
    lines = points_csv.read_text().splitlines(keepends=True)
    words = ("--input", points_csv, "--output", output, "--snapshot", tmp_path / "s.npz")
    for n in (3, 20, 40, 41, 61):
        points_csv.write_text("".join(lines[:n]))
        assert run(tiny_bundle, *words, "--rotate", "500B") == 0
        for part in tmp_path.glob("p.0*.csv"):
            part.rename(away / part.name)
    assert joined([*sorted(away.iterdir()), output]) == whole.read_text()
    assert all(part.stat().st_size <= 500 for part in away.iterdir())
    assert "finished in this run" in capsys.readouterr().err


def test_parts_that_exist_are_not_overwritten(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    old = tmp_path / "p.0001.csv"
    old.write_text("mine")
    words = ("--input", points_csv, "--output", tmp_path / "p.csv", "--rotate", "1KiB")
    assert run(tiny_bundle, *words, "--snapshot", tmp_path / "s.npz") == 1
    assert str(old) in capsys.readouterr().err
    assert run(tiny_bundle, *words, "--snapshot", tmp_path / "s.npz", "--force") == 0
    assert old.read_text() == "mine" and (tmp_path / "p.0001.2.csv").exists()


def test_days_need_dates(tiny_bundle: Path, series_bundle: Path, points_csv: Path) -> None:
    output = points_csv.with_name("p.csv")
    for bundle in (tiny_bundle, series_bundle):
        words = ("--input", points_csv, "--output", output, "--rotate", "day")
        assert run(bundle, *words) == 1 and not output.exists()


@pytest.mark.parametrize("words", [("--output", "-"), (), ("--output", "p.csv", "--rotate", "5")])
def test_what_cannot_rotate_is_wrong_usage(
    tiny_bundle: Path, points_csv: Path, words: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(tiny_bundle, "--input", points_csv, "--rotate", "1MB", *words)
    assert stopped.value.code == 2


def test_a_second_output_for_a_snapshot_is_told_whose_it_is(
    tiny_bundle: Path, points_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    words = ("--input", points_csv, "--snapshot", tmp_path / "s.npz", "--output")
    assert run(tiny_bundle, *words, tmp_path / "p.csv") == 0
    capsys.readouterr()
    assert run(tiny_bundle, *words, tmp_path / "p2.csv") == 1
    error = capsys.readouterr().err
    assert f"continues {tmp_path / 'p.csv'}" in error and "--rotate" in error
    assert not (tmp_path / "p2.csv").exists()
