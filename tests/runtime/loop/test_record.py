"""Whatever a snapshot's record holds, the loop reads it or refuses it as an error of the tree."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError, OutputError, SnapshotError
from edgefold.runtime.loop.adapters import SeriesRows
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
from edgefold.runtime.loop.record import RECORD, LoopRecord, read_record
from edgefold.runtime.rows.csv_columns import Layout, PointColumns, SeriesColumns
from edgefold.runtime.rows.sensor_columns import LongColumns
from edgefold.runtime.series.features import SeriesFeatures
from edgefold.runtime.series.spec import SeriesSpec
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sinks.rotation import Rotation
from edgefold.runtime.sources.input_file import InputFile
from edgefold.runtime.stream.stream import Stream
from tests.runtime.loop.test_loop import points

COUNTERS = {
    **{"lines": 7, "rows": 5, "predicted": 4, "malformed": 1, "refused_in_a_row": 1},
    **{"anomalies": 1, "within_90": 3, "squared_error": [2.5]},
}
LAYOUT = {
    **{"names": ["x1", "x2", "y1"], "positions": [0, 1, 2], "n_fields": 3},
    **{"delimiter": ",", "header": ["x1", "x2", "y1"]},
}
OUTPUT = {
    **{"name": "p.csv", "part": 1, "day": None, "ahead": None},
    **{"length": 10, "seam": "c"},
}
SINGLE = {
    "settings": {"input": ["x1", "x2", "y1"], "columns": "line\n", "anomaly_z": 4.0},
    "input": {"position": 90, "head": "a", "seam": "b"},
    "layout": LAYOUT,
    "output": OUTPUT,
    "counters": COUNTERS,
}
SEVERAL = {
    **SINGLE,
    "output": {
        **{"name": "p.csv", "part": 2, "day": 19_000, "length": 0, "seam": "c", "first": "1,2\n"},
        "finished": {"name": "p.csv", "part": 1, "day": 18_999, "length": 10, "seam": "d"},
    },
    "names": ["roof", "cellar"],
    "sensors": [COUNTERS, COUNTERS],
    "alarms": OUTPUT,
}
ODD = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-(2**70), 2**70),
    some.floats(),
    some.text(max_size=5),
    some.lists(some.integers(), max_size=3),
    some.dictionaries(some.text(max_size=3), some.integers(), max_size=2),
)


def as_array(form: Any) -> Array:
    return np.frombuffer(json.dumps(form).encode(), np.uint8)


def places(form: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of JSON, by its keys and indices."""
    found = [way]
    if isinstance(form, (dict, list)):
        for key, value in form.items() if isinstance(form, dict) else enumerate(form):
            found += places(value, (*way, key))
    return found


def changed(form: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    copy = dict(form) if isinstance(form, dict) else list(form)
    copy[way[0]] = changed(form[way[0]], way[1:], value)
    return copy


def read(form: Any) -> LoopRecord:
    return read_record(as_array(form), PointColumns(2, 1), 1)


def test_a_record_is_read_as_it_was_written() -> None:
    layout = Layout.from_json(LAYOUT)
    counters = Counters(**COUNTERS)  # type: ignore[arg-type]
    record = LoopRecord(
        SINGLE["settings"],
        SINGLE["input"],
        layout,
        SEVERAL["output"],  # type: ignore[arg-type]
        counters,
        ("a", "b"),
        (counters, Counters(squared_error=[0.0])),
        alarms=OUTPUT,
        known=("b",),
        successor="bundles/co2",
        row=17,
    )
    assert read_record(record.to_array(), PointColumns(2, 1), 1) == record


def test_a_record_of_one_sensor_is_read() -> None:
    record = read(SINGLE)
    assert record.names == () and record.output == OUTPUT
    assert record.counters == Counters(**COUNTERS)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [SINGLE, SEVERAL])
@pytest.mark.parametrize(
    "value", ["text", "\ud800", None, [1], -1, math.nan, 1e300, True, {}, 2**63]
)
def test_a_value_of_another_kind_anywhere_is_refused_or_understood(form: Any, value: Any) -> None:
    for way in places(form):
        try:
            record = read(changed(form, way, value))
        except SnapshotError:
            continue
        every = (record.counters, *record.sensors)
        counts = [n for one in every for n in (one.lines, one.rows, one.refused_in_a_row)]
        assert all(type(n) is int and n >= 0 for n in counts)
        assert all(math.isfinite(error) for one in every for error in one.squared_error)


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_a_record_without_a_part_is_refused(name: str) -> None:
    with pytest.raises(SnapshotError):
        read({key: value for key, value in SINGLE.items() if key != name})


def test_a_mark_of_the_output_needs_its_day_and_earlier_ones_have_no_ahead() -> None:
    for name, is_refused in (("day", True), ("ahead", False)):
        output = {key: value for key, value in OUTPUT.items() if key != name}
        with pytest.raises(SnapshotError) if is_refused else nullcontext():
            read({**SINGLE, "output": output})


def test_an_output_resumes_by_a_mark_without_ahead(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    output = OutputFile(str(path))
    output.begin("a\n", force=True)
    mark = output.sync()
    output.close()
    again = OutputFile(str(path))
    again.resume({key: value for key, value in mark.items() if key != "ahead"}, "a\n", False)
    again.close()
    assert path.read_text() == "a\n"


@pytest.mark.parametrize("raw", [b"", b"hello", b"[" * 5000, b"\xff", b"3"])
def test_what_is_no_record_is_refused(raw: bytes) -> None:
    with pytest.raises(SnapshotError):
        read_record(np.frombuffer(raw, np.uint8), PointColumns(2, 1), 1)


# A loop that resumes -----------------------------------------------------------------------------


def run(folder: Path, stream: Stream, kind: str) -> PredictionLoop:
    def series() -> RowAdapter:
        spec = SeriesSpec(clock="number", step=1.0, lags=1)
        return SeriesRows(SeriesFeatures(spec), SeriesColumns("x1", "y1", "number"))

    adapters = [series() if "series" in kind else points(2, 1) for _ in range(3)]
    named = kind.startswith("named")
    columns = LongColumns(adapters[0].columns, "s") if named else None
    output = OutputFile(str(folder / "p.csv"), rotation=Rotation(300))
    source = InputFile(str(folder / "in.csv"))
    loop = PredictionLoop(
        stream, adapters if named else adapters[:1], source, output, folder / "s.npz",
        LoopOptions(every=4), columns,
    )  # fmt: skip
    try:
        loop.run()
    finally:
        source.close()
    return loop


@pytest.fixture(params=["points", "series", "named points", "named series"])
def kept(request: Any, bundles: Path, tmp_path: Path) -> Any:
    """A folder with a loop's files, a stream, and what its rows are."""
    rows = [f"{n},0.{n % 7},0.{n % 5},{'ab'[n % 2]}" for n in range(30)]
    (tmp_path / "in.csv").write_text("x1,x2,y1,s\n" + "\n".join(rows) + "\n")
    with Stream.open(bundles / ("scaled" if "series" in request.param else "tiny")) as stream:
        run(tmp_path, stream, request.param)
        yield tmp_path, stream, request.param


@pytest.mark.one_case
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=some.data())
def test_a_loop_refuses_a_changed_record_in_a_known_way(kept: Any, data: Any) -> None:
    folder, stream, kind = kept
    files = {path: path.read_bytes() for path in folder.iterdir()}
    extra = stream.restore(folder / "s.npz")
    form = json.loads(extra[RECORD].tobytes())
    way = data.draw(some.sampled_from(places(form)))
    extra[RECORD] = as_array(changed(form, way, data.draw(ODD)))
    arrays = [name for name in extra if name != RECORD]
    if arrays and data.draw(some.booleans()):
        name = data.draw(some.sampled_from(arrays))
        shape = data.draw(some.sampled_from([(), (1,), extra[name].shape]))
        extra[name] = np.full(shape, data.draw(some.sampled_from([math.nan, -1, "a", 3])))
    stream.save(folder / "s.npz", extra)
    try:
        loop = run(folder, stream, kind)
        assert loop.counters.rows >= 0
    except (DataError, OutputError, SnapshotError):
        pass
    finally:
        for path in set(folder.iterdir()) - set(files):
            path.unlink()
        for path, content in files.items():
            path.write_bytes(content)
