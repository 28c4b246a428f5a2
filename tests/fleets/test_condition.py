"""States conditioned on tables: the same to the bit however they came, and those of one pass."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.fleets import ConditionOptions, condition
from edgefold.fleets.conditioning import condition as module
from edgefold.fleets.conditioning import keys
from edgefold.fleets.conditioning.condition import (
    describe,
    plan_conditioning,
    run_conditioning,
)
from edgefold.fleets.conditioning.trial import try_plan
from edgefold.fleets.work.unit import WorkNews
from edgefold.runtime import (
    BundleError,
    CapacityError,
    DataError,
    MemoryLimitError,
    OutputError,
    OverlapError,
    Stream,
)
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.fleets.conftest import (
    N_DAYS,
    N_ROWS,
    N_SITES,
    HereCrew,
    conditioned,
    contents,
    write_table,
)

pa = pytest.importorskip("pyarrow", reason="lakes need the parquet extra")
pq = pytest.importorskip("pyarrow.parquet")


def rows_of(lake: Path, **where: object) -> tuple[Any, Any]:
    """x and y, (n, 1), of the rows of a lake in their order, as pyarrow reads them."""
    table = pq.read_table(lake, partitioning="hive")
    keep = np.ones(len(table), bool)
    for name, value in where.items():
        keep &= np.array(table[name].cast(pa.string()).to_pylist()) == str(value)
    return tuple(table[name].to_numpy()[keep, None] for name in ("x", "y"))


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run units in this process: a new one takes a second for its imports."""
    monkeypatch.setattr(module, "Crew", HereCrew)


def test_a_state_is_that_of_one_pass_over_the_rows_of_its_group(
    gp_bundle: Path, lake_folder: Path, one_process: Path
) -> None:
    targets = np.linspace(-2, 2, 4)[:, None]
    with Stream.open(gp_bundle, "onnxruntime") as stream:
        for site in range(N_SITES):
            stream.reset()
            stream.condition(*rows_of(lake_folder, site=site))
            expected = stream.query(targets).copy()
            stream.restore(one_process / f"site={site}.npz")
            assert stream.n_points == N_DAYS * N_ROWS
            found = stream.query(targets)
            for name in expected.tensors:  # sums in another order, in float32
                np.testing.assert_allclose(found.tensors[name], expected.tensors[name], atol=1e-5)


def test_the_table_lists_the_states(one_process: Path) -> None:
    with (one_process / "states.csv").open() as file:
        rows = list(csv.reader(file))
    n = N_DAYS * N_ROWS
    assert rows == [
        ["site", "file", "points", "rows_left_out"],
        *([str(site), f"site={site}.npz", str(n), "0"] for site in range(N_SITES)),
    ]


@pytest.mark.parametrize("left", [9, 1])
def test_an_interrupted_call_goes_on_when_it_is_called_again(
    left: int, gp_bundle: Path, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    def interrupt(news: WorkNews) -> None:
        heard.append(news)
        if news.n_left <= left:
            raise KeyboardInterrupt

    heard, again, out = list[WorkNews](), list[WorkNews](), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        conditioned(gp_bundle, lake_folder, out, hear=interrupt)
    assert (out / ".work").is_dir() and not (out / "states.csv").exists()
    conditioned(gp_bundle, lake_folder, out, hear=again.append)
    assert 0 < again[0].n_rows_before == heard[-1].n_rows
    assert contents(out) == contents(one_process)
    with pytest.raises(OutputError, match="exists"):
        conditioned(gp_bundle, lake_folder, out)


def test_unfinished_work_of_another_plan_is_refused_or_dropped(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    def interrupt(news: WorkNews) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conditioned(gp_bundle, lake_folder, tmp_path / "out", hear=interrupt)
    with pytest.raises(OutputError, match=r"differs in filter.*--restart"):
        conditioned(gp_bundle, lake_folder, tmp_path / "out", filter="x > 0")
    done = conditioned(gp_bundle, lake_folder, tmp_path / "out", filter="x > 0", restart=True)
    assert done.counts["filtered"] > 0


def test_a_call_that_fails_before_a_unit_is_done_leaves_nothing(tmp_path: Path) -> None:
    columns = {"x": [0.1, 0.2], "y": [float("nan"), 0.2], "site": ["a", "a"]}
    lake = write_table(tmp_path / "a.parquet", columns)
    words: dict[str, Any] = {
        "x": ["x"],
        "y": ["y"],
        "by": ["site"],
        "out": tmp_path / "new" / "out",
    }
    with pytest.raises(DataError, match="--skip-bad"):
        condition("gp-tiny", lake, **words)
    assert not (tmp_path / "new").exists()
    done = condition("gp-tiny", lake, **words, options=ConditionOptions(skip_bad=True))
    assert done.counts["bad"] == 1


def test_output_is_replaced_only_if_it_is_asked_for(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    conditioned(gp_bundle, lake_folder, out)
    (out / "notes.txt").touch()
    done = conditioned(gp_bundle, lake_folder, out, filter="site > 0", force=True)
    assert [state.values for state in done.states] == [{"site": "1"}, {"site": "2"}]
    names = sorted(path.name for path in out.iterdir())
    assert names == ["files.csv", "notes.txt", "site=1.npz", "site=2.npz", "states.csv"]


def test_one_state_of_all_rows_is_one_file(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "all.npz"
    done = conditioned(gp_bundle, lake_folder, out, by="", processes=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.files.csv", "all.npz"]
    assert len((tmp_path / "all.files.csv").read_text().splitlines()) == 1 + N_SITES * N_DAYS
    (state,) = done.states
    assert state == ({}, out, N_SITES * N_DAYS * N_ROWS, 0)
    with pytest.raises(OutputError, match=r"ends with \.npz"):
        conditioned(gp_bundle, lake_folder, tmp_path / "all", by="")
    with pytest.raises(OutputError, match="exists"):
        conditioned(gp_bundle, lake_folder, out, by="")
    with pytest.raises(OutputError, match="names a folder"):
        conditioned(gp_bundle, lake_folder, tmp_path / "all2.npz")


@pytest.mark.parametrize("most", [1 << 18, 0])
def test_groups_of_several_columns_hold_the_rows_with_both_values(
    most: int, gp_bundle: Path, lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few combinations of values are counted, many are sorted."""
    monkeypatch.setattr(keys, "MOST_COUNTED", most)
    done = conditioned(gp_bundle, lake_folder, tmp_path / "out", by="room site")
    assert len(done.states) == 2 * N_SITES
    for state in done.states:
        assert state.path is not None and state.n_points == len(
            rows_of(lake_folder, **state.values)[0]
        )
        assert state.path.name == f"room={state.values['room']},site={state.values['site']}.npz"


def test_a_snapshot_states_its_rows_so_that_none_counts_twice(
    gp_bundle: Path, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    conditioned(gp_bundle, lake_folder, tmp_path / "rooms", by="room")
    with Stream.open(gp_bundle, "onnxruntime") as stream:
        stream.restore(one_process / "site=0.npz")
        pieces = stream.provenance.pieces
        assert [(p.start, p.stop, p.n_points, p.where) for p in pieces] == [
            (0, N_ROWS, N_ROWS, ())
        ] * N_DAYS  # the folder chose no row of a file
        with (one_process / "files.csv").open() as file:
            sources = {source: place for source, _, place in csv.reader(file)}
        names = sorted(Path(sources[piece.source]).name for piece in pieces)
        assert names == ["day-0.parquet", "day-1.parquet"]
        stream.merge(one_process / "site=1.npz")
        with pytest.raises(OverlapError, match="twice"):
            stream.merge(one_process / "site=0.npz")
        with pytest.raises(OverlapError, match="room=a"):
            stream.merge(tmp_path / "rooms" / "room=a.npz")
        stream.restore(tmp_path / "rooms" / "room=a.npz")
        stream.merge(tmp_path / "rooms" / "room=b.npz")
        assert stream.n_points == N_SITES * N_DAYS * N_ROWS == stream.provenance.n_points


def test_filters_of_different_times_do_not_overlap(gp_bundle: Path, tmp_path: Path) -> None:
    lake = write_table(
        tmp_path / "a.parquet", {"x": np.arange(40.0) / 10, "y": np.zeros(40)}, row_group_size=7
    )
    for name, chosen in (("early", "x < 2"), ("late", "x >= 2")):
        conditioned(gp_bundle, lake, tmp_path / f"{name}.npz", by="", filter=chosen)
    with Stream.open(gp_bundle, "onnxruntime") as stream:
        stream.restore(tmp_path / "early.npz")
        stream.merge(tmp_path / "late.npz")
        (piece,) = stream.provenance.pieces
        assert (piece.start, piece.stop, piece.n_points) == (0, 40, 40)


def test_rows_with_missing_values_are_left_out_and_counted(gp_bundle: Path, tmp_path: Path) -> None:
    columns = {
        "x": [0.1, None, 0.3, 0.4, float("nan"), 0.6, 0.7],
        "y": [0.1, 0.2, None, 0.4, 0.5, float("inf"), 1e30],
        "site": ["a", "a", "b", None, "a", "b", "c"],
    }
    lake = write_table(tmp_path / "a.parquet", columns, row_group_size=3)
    with pytest.raises(DataError, match=r"a\.parquet: row 4 \(from 0\) holds nan in column 'x'"):
        conditioned(gp_bundle, lake, tmp_path / "refused")
    done = conditioned(gp_bundle, lake, tmp_path / "out", skip_bad=True)
    assert {name: n for name, n in done.counts.items() if n} == {
        "rows read": 7,
        "points": 1,
        "null": 2,
        "without a group": 1,
        "bad": 3,
    }
    assert [(s.values["site"], s.path and s.path.name, *s[2:]) for s in done.states] == [
        ("a", "site=a.npz", 1, 2),
        ("b", None, 0, 2),
        ("c", None, 0, 1),
    ]
    assert describe(done.counts) == (
        "7 rows read, 1 point; left out: 2 null, 1 without a group, 3 bad"
    )


def test_a_missing_value_of_a_column_that_also_forms_groups_is_a_null(
    gp_bundle: Path, tmp_path: Path
) -> None:
    lake = write_table(tmp_path / "a.parquet", {"x": [0.1, 0.2, 0.3], "y": [0.5, None, 0.5]})
    done = conditioned(gp_bundle, lake, tmp_path / "out", by="y")
    assert (done.counts["points"], done.counts["null"], done.counts["without a group"]) == (2, 1, 0)


def test_a_lake_without_points_is_refused(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"the filter 'x > 5' takes none of 5,400 rows"):
        conditioned(gp_bundle, lake_folder, tmp_path / "out", filter="x > 5")
    assert not (tmp_path / "out" / "states.csv").exists()
    lake = write_table(tmp_path / "a.parquet", {"x": pa.array([], "f8"), "y": pa.array([], "f8")})
    with pytest.raises(DataError, match=r"a\.parquet has no row"):
        conditioned(gp_bundle, lake, tmp_path / "out.npz", by="")


def test_a_model_whose_states_do_not_merge_learns_in_order_on_one_process(
    unmerged_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = conditioned(unmerged_bundle, lake_folder, out, by="room", processes=4)
    targets = np.linspace(-2, 2, 4)[:, None]
    with Stream.open(unmerged_bundle, "onnxruntime") as stream:
        for state in done.states:
            assert state.path is not None
            stream.reset()
            stream.condition(*rows_of(lake_folder, room=state.values["room"]))
            expected = stream.query(targets).copy()
            stream.restore(state.path)
            found = stream.query(targets)
            for name in expected.tensors:  # chunks end where units do
                np.testing.assert_allclose(found.tensors[name], expected.tensors[name], atol=1e-5)
    with pytest.raises(BundleError, match="do not merge"):
        conditioned(unmerged_bundle, lake_folder, tmp_path / "two", scheduler="tcp://127.0.0.1:1")


def test_a_state_without_room_is_refused_with_its_group(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    manifest = json.loads((gp_bundle / "manifest.json").read_text())
    for path in gp_bundle.iterdir():
        (folder / path.name).parent.mkdir(exist_ok=True)
        (folder / path.name).write_bytes(path.read_bytes())
    manifest |= {"capacity": 1000, "when_full": "refuse"}
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    with pytest.raises(CapacityError, match="site=0"):
        conditioned(folder, lake_folder, tmp_path / "out")


def test_bundles_that_do_not_fit_the_columns_are_refused(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="one step"):
        conditioned(Path(shipped_bundle("sensors")), lake_folder, tmp_path / "out")
    with pytest.raises(BundleError, match="--x names 2 columns"):
        condition(gp_bundle, lake_folder, x=["x", "y"], y=["y"], out=tmp_path / "out.npz")
    with pytest.raises(MemoryLimitError):
        conditioned(gp_bundle, lake_folder, tmp_path / "out", memory_limit=1 << 20)


def test_groups_of_any_value_get_files_of_their_own(gp_bundle: Path, tmp_path: Path) -> None:
    values = ["a/b", "..", "", "None", "é" * 300, "A", "a", "x\n\0y", "con.", "%2F", "b,c=d"]
    n = len(values)
    lake = write_table(
        tmp_path / "a.parquet", {"x": np.zeros(n), "y": np.arange(n) * 1.0, "site": values}
    )
    done = conditioned(gp_bundle, lake, tmp_path / "out")
    assert {state.values["site"] for state in done.states} == set(values)
    paths = [state.path for state in done.states if state.path]
    assert len({path.name.casefold() for path in paths}) == n
    assert all(path.parent == tmp_path / "out" and path.is_file() for path in paths)


def test_groups_of_times_and_numbers_have_names(gp_bundle: Path, tmp_path: Path) -> None:
    columns = {
        "x": [0.0, 0.1, 0.2],
        "y": [1.0, 2.0, 3.0],
        "day": pa.array([datetime(2024, 1, 1), datetime(2024, 1, 1), None], pa.timestamp("s")),
        "k": [0.0, -0.0, float("nan")],
        "ok": [True, True, False],
    }
    lake = write_table(tmp_path / "a.parquet", columns)
    done = conditioned(gp_bundle, lake, tmp_path / "out", by="day k ok")
    (state,) = done.states
    assert state.values == {"day": "2024-01-01T00:00:00", "k": "0.0", "ok": "true"}
    assert state.n_points == 2 and done.counts["without a group"] == 1
    assert state.path is not None
    assert state.path.name == "day=2024-01-01T00%3A00%3A00,k=0.0,ok=true.npz"


def test_more_points_than_a_window_holds_are_learned_in_order(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    options = ConditionOptions(backend="onnxruntime", unit_rows=2000)
    words = (["x"], ["y"], ["room"], tmp_path / "out")
    planned = plan_conditioning(gp_bundle, [str(lake_folder)], *words, options)
    done = run_conditioning(replace(planned, setup=replace(planned.setup, window_rows=100)))
    targets = np.linspace(-2, 2, 4)[:, None]
    with Stream.open(gp_bundle, "onnxruntime") as stream:
        stream.condition(*rows_of(lake_folder, room="a"))
        expected = stream.query(targets).mean.copy()
        assert done.states[0].path is not None
        stream.restore(done.states[0].path)
        np.testing.assert_allclose(stream.query(targets).mean, expected, atol=1e-5)


def test_a_group_that_comes_again_in_a_unit_goes_on_from_its_place(
    gp_bundle: Path, tmp_path: Path
) -> None:
    """Many states are never in memory together: one is read, goes on, and is written back."""
    n, n_groups = 4000, 50
    columns = {"x": np.linspace(-2, 2, n), "y": np.zeros(n), "k": np.arange(n) % n_groups}
    lake = write_table(tmp_path / "a.parquet", columns)
    options = ConditionOptions(backend="onnxruntime")
    planned = plan_conditioning(
        gp_bundle, [str(lake)], ["x"], ["y"], ["k"], tmp_path / "out", options
    )
    done = run_conditioning(replace(planned, setup=replace(planned.setup, window_rows=500)))
    assert [state.n_points for state in done.states] == [n // n_groups] * n_groups


def test_a_trial_says_how_long_rows_take(
    gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    planned = plan_conditioning(gp_bundle, [str(lake_folder)], ["x"], ["y"], ["room"], out)
    trial = try_plan(planned)
    assert trial.n_groups == 2 and 0 < trial.n_rows <= N_SITES * N_DAYS * N_ROWS
    assert trial.all_s(1000, 2) == pytest.approx(500 * (trial.reading_s + trial.learning_s))
    assert not out.exists()


@pytest.mark.parametrize("kind", ["pyarrow", "dataset", "polars", "lazy", "pandas"])
def test_a_table_in_memory_is_taken(kind: str, gp_bundle: Path, tmp_path: Path) -> None:
    columns = {"x": [0.1, 0.2, None, 0.4], "y": [1.0, 2.0, 3.0, 4.0], "site": ["a", "b", "a", "a"]}
    table: Any = pa.table(columns)
    if kind == "dataset":
        table = pytest.importorskip("pyarrow.dataset").dataset(table)
    elif kind in ("polars", "lazy"):
        table = pytest.importorskip("polars", reason="needs the polars extra").DataFrame(columns)
        table = table.lazy() if kind == "lazy" else table
    elif kind == "pandas":
        table = pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(columns)
    out = tmp_path / "out"
    words = {"x": ["x"], "y": ["y"], "by": ["site"]}
    done = condition(gp_bundle, table, **words, out=out)  # type: ignore[arg-type]
    points = {state.values["site"]: state.n_points for state in done.states}
    assert points == {"a": 2, "b": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_anything_else_is_no_table(gp_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="of type int"):
        condition(gp_bundle, 7, x=["x"], y=["y"], out=tmp_path / "out.npz")
