"""A source of rows enters by one file and one line: here it is one that this test adds."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.main import main
from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows
from edgefold.runtime.sources.input_file import InputFile
from edgefold.runtime.sources.row_source import SOURCES, RowSource, SourceOptions, open_row_source

PREFIX = "messages://"


class Messages(RowSource):
    """Gives the lines of a file as messages: acknowledged ones do not come again."""

    def __init__(self, path: str, options: SourceOptions):
        self.name = path
        self._lines = Path(path.removeprefix(PREFIX)).read_bytes().splitlines(keepends=True)
        self._rows: CsvRows | None = None
        self._n_read = self._n_kept = self._start = 0

    @property
    def layout(self) -> Layout | None:
        return self._rows.layout if self._rows else None

    @property
    def is_live(self) -> bool:
        return True

    @property
    def holds_row(self) -> bool:
        return False

    def rows(
        self, columns: Columns, layout: Layout | None = None, n_lines: int = 0
    ) -> Iterator[Row | BadRow]:
        rest = io.BytesIO(b"".join(self._lines[self._start :]))
        self._rows = CsvRows(rest, columns, self.name, layout, n_lines, is_new=not self._start)
        for row in self._rows:
            self._n_read = row.line
            yield row

    def keep(self) -> None:
        self._n_kept = self._n_read

    def mark(self) -> dict[str, Any]:
        return {"position": self._n_kept}

    def resume(self, mark: dict[str, Any], next_file: bool = False) -> None:
        self._start = self._n_kept = mark["position"]

    def close(self) -> None:
        self._lines = []


def test_a_source_of_its_own_prefix_runs_and_resumes_as_a_file_does(
    series_bundle: Path, series_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, PREFIX, f"{__name__}:{Messages.__name__}")
    lines = series_csv.read_text().splitlines(keepends=True)
    part = tmp_path / "part.csv"
    expected, output, snapshot = (tmp_path / name for name in ("file.csv", "own.csv", "own.npz"))
    bundle = str(series_bundle)
    assert main(["run", bundle, "--input", str(series_csv), "--output", str(expected)]) == 0
    for n_lines in (len(lines) // 2, len(lines)):
        part.write_text("".join(lines[:n_lines]))
        command = ["run", bundle, "--input", f"{PREFIX}{part}", "--output", str(output)]
        assert main([*command, "--snapshot", str(snapshot)]) == 0
    assert output.read_bytes() == expected.read_bytes()


def test_an_input_without_a_known_prefix_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("time,value\n0,1\n")
    source = open_row_source(str(path))
    assert isinstance(source, InputFile)
    assert source.progress() == "0%"
    assert source.notes() == []
    source.close()
