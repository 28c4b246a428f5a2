"""The loop over streams of any kind, without a backend: what it writes, counts and resumes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefold.runtime.arrays import Array
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
from edgefold.runtime.predictions import (
    Categorical,
    Gaussian,
    Prediction,
    PredictionKind,
    Quantiles,
    Raw,
)
from edgefold.runtime.rows.csv_columns import PointColumns
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sources.input_file import InputFile


def points(n_inputs: int, n_outputs: int) -> RowAdapter:
    return RowAdapter(PointColumns(n_inputs, n_outputs), n_inputs)


class FakeStream:
    """Predicts 10 times the first x plus the number of its updates, in every element."""

    def __init__(self, kind: PredictionKind, n_outputs: int, is_filter: bool = False):
        tensors = kind.tensors(n_outputs)
        self.manifest = SimpleNamespace(
            prediction=kind, prediction_tensors=tensors, n_outputs=n_outputs, is_filter=is_filter
        )
        self.updates: list[tuple[list[float], list[float]]] = []
        self.room: int | None = None

    def query(self, x: Array) -> Prediction:
        value = 10 * x.sum() + len(self.updates)
        tensors = self.manifest.prediction_tensors
        return Prediction({t.name: np.full((1, *t.shape), value) for t in tensors})

    def update(self, x: Array, y: Array) -> None:
        self.updates.append((x[0].tolist(), y[0].tolist()))

    def step(self, x: Array) -> Prediction:
        found = self.query(x)
        self.update(x, np.zeros((1, 0)))
        return found

    def save(self, path: Path, extra: Mapping[str, Array]) -> None:
        np.savez(path, allow_pickle=False, updates=len(self.updates), **extra)

    def restore(self, path: Path) -> dict[str, Array]:
        with np.load(path) as archive:
            extra = {name: archive[name] for name in archive.files}
        self.updates = [([], [])] * int(extra.pop("updates"))
        return extra


def run(stream: Any, adapter: RowAdapter, folder: Path, snapshot: bool = False) -> PredictionLoop:
    source = InputFile(str(folder / "in.csv"))
    output = OutputFile(str(folder / "out.csv"))
    kept = folder / "s.npz" if snapshot else None
    loop = PredictionLoop(stream, [adapter], source, output, kept, LoopOptions(every=2))
    loop.run()
    source.close()
    return loop


def rows_of(folder: Path) -> list[list[str]]:
    return [line.split(",") for line in (folder / "out.csv").read_text().splitlines()]


def test_a_gaussian_row_has_mean_deviation_error_and_flag(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x1,y1,y2\n1,12,-200\n2,21,21\n")
    loop = run(FakeStream(Gaussian(), 2), points(1, 2), tmp_path)
    header, first, second = rows_of(tmp_path)
    assert header[4:] == [
        *("prediction1", "prediction2", "std1", "std2", "error1", "error2", "anomaly"),
    ]
    assert first[4:] == ["10", "10", "10", "10", "2", "-210", "1"]
    assert second[4:] == ["21", "21", "21", "21", "0", "0", "0"]
    assert loop.counters.rmse == pytest.approx([2**0.5, 210 / 2**0.5])
    assert loop.counters.coverage_90 == 0.75 and loop.counters.anomalies == 1


def test_quantiles_have_errors_and_no_band(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x1,y1\n1,12\n")
    loop = run(FakeStream(Quantiles((0.1, 0.5)), 1), points(1, 1), tmp_path)
    assert rows_of(tmp_path) == [
        ["line", "x1", "y1", "quantiles1", "quantiles2", "error"],
        ["2", "1", "12", "10", "10", "2"],
    ]
    assert loop.counters.rmse == [2.0] and not loop.sensors.first.columns.has_band


def test_a_class_has_its_number_or_name_its_probability_and_all_scores(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x1,y1\n1,2\n")
    adapter = points(1, 1)
    loop = run(FakeStream(Categorical(3), 1), adapter, tmp_path)
    header, row = rows_of(tmp_path)
    assert header[3:] == ["class", "probability", "scores1", "scores2", "scores3"]
    assert row[3:] == ["0", "0.333333333", "10", "10", "10"]
    assert loop.counters.predicted == 1 and loop.counters.rmse == []
    adapter.words = {"class": ["up, then down", "down", "still"]}
    (tmp_path / "out.csv").unlink()
    run(FakeStream(Categorical(3), 1), adapter, tmp_path)
    assert '2,1,2,"up, then down",0.333333333,10' in (tmp_path / "out.csv").read_text()


def test_a_filter_reads_x_alone_and_is_written_after_each_row(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("0.1,1\n0.2,2\n")
    stream = FakeStream(Raw({"speech": (1,), "pair": (2,)}), 1, is_filter=True)
    run(stream, points(2, 0), tmp_path)
    assert rows_of(tmp_path) == [
        ["line", "x1", "x2", "speech", "pair1", "pair2"],
        ["1", "0.1", "1", "11", "11", "11"],
        ["2", "0.2", "2", "23", "23", "23"],
    ]
    assert [x for x, _ in stream.updates] == [[0.1, 1], [0.2, 2]]


def test_rows_may_have_no_x(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("y1\n5\n7\n")
    stream = FakeStream(Gaussian(), 1)
    run(stream, points(0, 1), tmp_path)
    assert stream.updates == [([], [5]), ([], [7])]
    assert [row[2] for row in rows_of(tmp_path)] == ["prediction", "0", "1"]


@pytest.mark.parametrize("header", ["", "when,y1,x1\n"])
def test_a_loop_resumes_by_the_layout_of_its_snapshot(tmp_path: Path, header: str) -> None:
    lines = [f"{i};{10 * i};{i}" if header else f"{i},{10 * i}" for i in range(7)]
    header = header.replace(",", ";")
    adapter = points(1, 1)
    (tmp_path / "in.csv").write_text(header + "\n".join(lines[:5]) + "\n")
    run(FakeStream(Gaussian(), 1), adapter, tmp_path, snapshot=True)
    (tmp_path / "in.csv").write_text(header + "\n".join(lines) + "\n")
    loop = run(FakeStream(Gaussian(), 1), points(1, 1), tmp_path, snapshot=True)
    assert loop.resumed and loop.counters.rows == 7
    rows = rows_of(tmp_path)[1:]
    first = 2 if header else 1
    assert [row[0] for row in rows] == [str(n + first) for n in range(7)]
    assert [row[3] for row in rows] == [str(11 * n) for n in range(7)]
