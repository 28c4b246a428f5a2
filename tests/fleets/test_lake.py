"""Lakes of Parquet: which files and columns they have, and what is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.fleets.tables.batches import read_batches
from edgefold.fleets.tables.lake import Lake, open_lake
from edgefold.fleets.tables.places import find_files, near_names, partition_values
from edgefold.runtime.errors import DataError

pa = pytest.importorskip("pyarrow", reason="lakes need the parquet extra")
pq = pytest.importorskip("pyarrow.parquet")


def write(path: Path, columns: Mapping[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, **options)
    return path


def values_of(lake: Lake, name: str) -> list[Any]:
    """All values of a column, in the lake's order; None where one is missing."""
    values = []
    for file in lake.files:
        for batch in read_batches(lake, file):
            codes, different = batch.codes(name)
            values += [None if code < 0 else different[code] for code in codes]
    return values


def numbers_of(lake: Lake, name: str) -> list[float]:
    """All values of a column as numbers, in the lake's order; NaN where one is missing."""
    values: list[float] = []
    for file in lake.files:
        for batch in read_batches(lake, file):
            numbers, is_null = batch.numbers(name)
            values += np.where(False if is_null is None else is_null, np.nan, numbers).tolist()
    return values


@pytest.mark.parametrize("pattern", ["{}", "{}/", "{}/**", "{}/**/*.p*", "{}/*/*.p*", "{}/site=*"])
def test_files_are_found_and_sorted(pattern: str, tmp_path: Path) -> None:
    for name in ("site=b/2.parquet", "site=a/x.parquet", "site=b/1.pq"):
        write(tmp_path / name, {"a": [len(name) * 1.0]})
    (tmp_path / "site=a/_SUCCESS").touch()
    (tmp_path / "site=a/.hidden.parquet").touch()
    wanted = ["site=a/x.parquet", "site=b/1.pq", "site=b/2.parquet"]
    if pattern == "{}/**":
        (tmp_path / "site=a/_SUCCESS").unlink()  # a glob takes every file
    found = find_files([pattern.format(tmp_path), str(tmp_path / "site=b/2.parquet")])
    listed = [str(Path(path).relative_to(tmp_path)) for path in found]
    assert listed == wanted


def test_a_file_with_brackets_in_its_name_is_taken_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "[a].parquet", {"a": [1]})
    assert find_files([str(path)]) == [str(path)]


def test_a_pattern_without_files_is_refused_with_a_name_that_is_near(tmp_path: Path) -> None:
    write(tmp_path / "january.parquet", {"a": [1]})
    with pytest.raises(DataError, match=r"january\.parquet meant"):
        find_files([str(tmp_path / "januar.parquet")])
    with pytest.raises(DataError):
        find_files([str(tmp_path / "*.csv")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        find_files([str(tmp_path / "empty")])


def test_folders_name_values_of_columns() -> None:
    path = f"lake/site=a%2Fb/day={'__HIVE_DEFAULT_PARTITION__'}/=x/1=2.parquet"
    assert partition_values(path) == {"site": "a/b", "day": None}


def test_values_of_folders_are_numbers_where_all_are(tmp_path: Path) -> None:
    write(tmp_path / "site=3/day=07/a.parquet", {"a": [1.0]})
    write(tmp_path / "site=-12/day=8/a.parquet", {"a": [2.0, 3.0]})
    lake = open_lake([tmp_path], ["a", "site", "day"])
    assert values_of(lake, "site") == [-12, -12, 3]
    assert values_of(lake, "day") == ["8", "8", "07"]  # 07 is no number that is written so
    assert numbers_of(lake, "site") == [-12, -12, 3]
    assert lake.columns["site"].kind == "number" and lake.columns["day"].kind == "text"


def test_a_column_of_the_file_goes_before_that_of_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "site=3/a.parquet", {"site": [5]})
    assert values_of(open_lake([tmp_path], ["site"]), "site") == [5]


def test_numbers_of_all_types_become_floats(tmp_path: Path) -> None:
    columns = {
        "i": pa.array([1, None, 3], pa.int8()),
        "u": pa.array([1, 2**63, 3], pa.uint64()),
        "f": pa.array([0.5, None, 2], pa.float32()),
        "h": pa.array(np.array([0.5, 1, 2], np.float16)),
        "d": pa.array([Decimal("1.25"), None, Decimal("-3")], pa.decimal128(9, 2)),
        "b": pa.array([True, None, False]),
    }
    write(tmp_path / "a.parquet", columns)
    lake = open_lake([tmp_path], list(columns), numbers=list(columns))
    nan = float("nan")
    expected = {
        "i": [1, nan, 3],
        "u": [1, 2.0**63, 3],
        "f": [0.5, nan, 2],
        "h": [0.5, 1, 2],
        "d": [1.25, nan, -3],
        "b": [1, nan, 0],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(numbers_of(lake, name), values)


def test_times_become_seconds_and_are_written_back_in_their_type(tmp_path: Path) -> None:
    moments = [datetime(2024, 1, 1, 12), None, datetime(1969, 12, 31, 23, 59, 59, 500_000)]
    types = [
        *(pa.timestamp(unit) for unit in ("ms", "us", "ns")),
        pa.timestamp("us", "Europe/Vienna"),
    ]
    columns = {f"t{i}": pa.array(moments, type) for i, type in enumerate(types)}
    columns["day"] = pa.array([date(2024, 1, 1), None, date(1969, 12, 31)])
    write(tmp_path / "a.parquet", columns)
    lake = open_lake([tmp_path], list(columns))
    for name, array in columns.items():
        seconds = np.array(numbers_of(lake, name))
        expected = [19723 * 86400 + (43200 if name != "day" else 0), np.nan]
        np.testing.assert_array_equal(seconds, [*expected, -0.5 if name != "day" else -86400])
        assert lake.columns[name].array_of(seconds) == array


def test_types_of_all_files_are_unified(tmp_path: Path) -> None:
    stamp = pa.timestamp
    write(tmp_path / "a.parquet", {"n": pa.array([1], pa.int8()), "t": pa.array([1], stamp("s"))})
    write(tmp_path / "b.parquet", {"n": pa.array([2.5]), "t": pa.array([2500], stamp("ms"))})
    lake = open_lake([tmp_path], ["n", "t"])
    assert lake.columns["n"].type == pa.float64()
    assert lake.columns["t"].type == stamp("ms")
    assert numbers_of(lake, "n") == [1, 2.5] and numbers_of(lake, "t") == [1, 2.5]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1]), pa.array(["1"])),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("s", "UTC"))),
        (pa.array([1]), pa.array([1], pa.timestamp("s"))),
    ],
)
def test_types_that_differ_are_refused_with_both_files(
    first: Any, second: Any, tmp_path: Path
) -> None:
    write(tmp_path / "a.parquet", {"n": first})
    write(tmp_path / "b.parquet", {"n": second})
    with pytest.raises(DataError, match=r"a\.parquet .*b\.parquet"):
        open_lake([tmp_path], ["n"])


def test_dictionaries_and_missing_values_are_codes(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"s": pa.array(["x", None, "y"]).dictionary_encode()})
    write(tmp_path / "b.parquet", {"s": ["y", "", "x"]})
    write(tmp_path / "c.parquet", {"s": pa.array([None, "z"], pa.large_string())})
    lake = open_lake([tmp_path], ["s"])
    assert values_of(lake, "s") == ["x", None, "y", "y", "", "x", None, "z"]


def test_a_missing_column_is_refused_with_the_file_and_a_name_that_is_near(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"temperature": [1.0]})
    write(tmp_path / "b.parquet", {"Temperatur": [1.5]})
    with pytest.raises(DataError, match=r"b\.parquet has no column 'temperature'.*'Temperatur'"):
        open_lake([tmp_path], ["temperature"])
    assert near_names("zzz", ["a", "b"]) == "it has a, b."


def test_texts_and_lists_are_refused_where_numbers_are_needed(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"s": ["1"], "l": [[1]]})
    with pytest.raises(DataError, match="'s'"):
        open_lake([tmp_path], ["s"], numbers=["s"])
    with pytest.raises(DataError, match="'l'"):
        open_lake([tmp_path], ["l"])


def test_the_identity_survives_another_name_and_changes_with_the_content(tmp_path: Path) -> None:
    first = write(tmp_path / "one/a.parquet", {"a": np.arange(1000.0)})
    (file,) = open_lake([first], ["a"]).files
    moved = Path(shutil.copy(first, tmp_path / "b.parquet"))
    (other,) = open_lake([moved], ["a"]).files
    assert other.identity == file.identity and len(file.identity) == 16
    assert other.source == file.source == f"parquet#{file.identity}"
    # The ranges in the footer are the same: the rows differ in the middle.
    changed = np.arange(1000.0)
    changed[[1, 2]] = changed[[2, 1]]
    (third,) = open_lake([write(tmp_path / "c.parquet", {"a": changed})], ["a"]).files
    assert third.identity != file.identity
    with pytest.raises(DataError, match="twice"):
        open_lake([tmp_path], ["a"])


@pytest.mark.parametrize("keep", [0, 3, 10, -1, -200])
def test_a_file_that_is_cut_is_refused_by_its_name(keep: int, tmp_path: Path) -> None:
    path = write(tmp_path / "cut.parquet", {"a": np.arange(1000.0)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cut\.parquet"):
        open_lake([path], ["a"])


def test_damage_within_the_rows_is_reported_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": np.random.default_rng(0).normal(size=5000)})
    data = bytearray(path.read_bytes())
    data[4:60] = bytes(56)  # the header of the first page
    path.write_bytes(data)
    lake = open_lake([path], ["a"])
    with pytest.raises(DataError, match=r"a\.parquet"):
        numbers_of(lake, "a")


def test_a_file_that_changes_or_vanishes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": np.arange(100.0)})
    lake = open_lake([path], ["a"])
    os.utime(path, ns=(0, 0))  # written again with the same content
    assert len(numbers_of(lake, "a")) == 100
    write(path, {"a": np.arange(101.0)})
    with pytest.raises(DataError, match="changed"):
        numbers_of(lake, "a")
    path.unlink()
    with pytest.raises(DataError, match="any more"):
        numbers_of(lake, "a")


def test_rows_keep_their_numbers_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": np.arange(100) % 7}, row_group_size=30)
    lake = open_lake([path], ["a"], "a = 3")
    (file,) = lake.files
    assert file.row_groups == (30, 30, 30, 10) and file.first_row(2) == 60
    batches = list(read_batches(lake, file, [1, 2], batch_rows=20))
    assert [(batch.start, batch.stop) for batch in batches] == [
        *((30, 50), (50, 60)),
        *((60, 80), (80, 90)),
    ]
    rows = np.concatenate([batch.rows for batch in batches])
    assert rows.tolist() == [row for row in range(30, 90) if row % 7 == 3]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    empty = {"a": pa.array([], pa.float64())}
    write(tmp_path / "a.parquet", empty)
    write(tmp_path / "b.parquet", empty)
    lake = open_lake([tmp_path], ["a"])
    assert lake.n_rows == 0 and numbers_of(lake, "a") == []


def test_a_large_row_group_is_read_in_flat_memory(tmp_path: Path) -> None:
    n = 1 << 20
    values = np.random.default_rng(0).normal(size=n)
    path = write(tmp_path / "a.parquet", {"a": values, "b": values[::-1]})
    lake = open_lake([path], ["a", "b"])
    before = pa.total_allocated_bytes()
    most, total = 0, 0.0
    for batch in read_batches(lake, lake.files[0]):
        most = max(most, pa.total_allocated_bytes() - before)
        total += float(batch.numbers("a").values.sum() + batch.numbers("b").values.sum())
    assert total == pytest.approx(2 * values.sum(), abs=1e-6)
    # Two buffers of 1 MiB, some pages of 1 MiB and a batch: far from the 16 MiB of the columns.
    assert most < 8 << 20


def test_groups_are_told_apart_by_microseconds_and_decimals(tmp_path: Path) -> None:
    columns = {
        "t": pa.array([1_000, 2_000, None], pa.timestamp("ns")),
        "d": pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(9, 2)),
        "ok": [True, False, None],
    }
    lake = open_lake([write(tmp_path / "a.parquet", columns)], list(columns))
    assert values_of(lake, "t") == [datetime(1970, 1, 1, 0, 0, 0, n) for n in (1, 2)] + [None]
    assert values_of(lake, "d") == [Decimal("1.50"), None, Decimal("2.00")]
    assert values_of(lake, "ok") == [True, False, None]
    fine = write(tmp_path / "b.parquet", {"t": pa.array([1_001], pa.timestamp("ns"))})
    with pytest.raises(DataError, match="group"):
        values_of(open_lake([fine], ["t"]), "t")


def test_a_glob_that_names_no_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with pytest.raises(DataError, match="any number of folders"):
        open_lake([tmp_path / "lake" / "*.parquet"], ["x"])
    with pytest.raises(DataError, match=r"the folder .*lak does not exist"):
        open_lake([tmp_path / "lak" / "*.parquet"], ["x"])


def test_a_name_in_backticks_is_explained(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"wind speed": [1.0]})
    with pytest.raises(DataError, match="without backticks"):
        open_lake([tmp_path], ["`wind speed`"])
