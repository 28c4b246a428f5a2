"""The aggregate in a real PostgreSQL: its states are those of `Stream`, row for row."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.export.native.generator import generate
from edgefold.export.native.postgres.extension import extension_files
from edgefold.export.native.toolchain.compilers import compile_program
from edgefold.runtime import Stream
from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ValueRefusedError
from tests.export.native.packages.library_tools import write
from tests.export.native.postgres.learned import N_MANY, N_ROWS, Learned, equal
from tests.native_builds import QUICK, build, compiler_or_skip
from tests.postgres_server import PostgresServer, SqlError, make_extension

ORDERED = "(SELECT * FROM points WHERE row <= {n} ORDER BY row) AS rows"
PARALLEL = """
    SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
    SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2;
"""
CHUNK = 8
BOARD = """
#include <stdio.h>
#include "edgefold_cmanp.h"
static struct edgefold_cmanp stream;
static size_t read_file(void *from, void *bytes, size_t n) { return fread(bytes, 1, n, from); }
int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    double x, y;
    edgefold_cmanp_init(&stream);
    if (!file || edgefold_cmanp_load(&stream, read_file, file, NULL, 0) != EDGEFOLD_OK) return 1;
    while (scanf("%lf %lf", &x, &y) == 2) {
        if (edgefold_cmanp_query(&stream, 1, &x) != EDGEFOLD_OK) return 1;
        printf("%d %.17g %.17g\\n", (int)edgefold_cmanp_n_points(&stream),
               stream.prediction_mean[0], stream.prediction_std[0]);
        if (edgefold_cmanp_update(&stream, &x, &y) != EDGEFOLD_OK) return 1;
    }
    return 0;
}
"""
"""A board: it takes over the state of a file, predicts rows and learns them."""


@pytest.mark.parametrize("n", [1, 4, 5, CHUNK, CHUNK + 4, CHUNK + 5, 1000, N_ROWS])
@pytest.mark.parametrize("name", ["cmanp", "scaled"])
def test_rows_in_order_give_the_very_state_of_a_stream(
    name: str, n: int, learned: Learned, tmp_path: Path
) -> None:
    snapshot = learned.server.state(f"SELECT {name}(x, y) FROM {ORDERED.format(n=n)}")
    with learned.stream(name) as stream:
        stream.condition(learned.x[:n], learned.y[:n])
        stream.save(tmp_path / "stream.npz")
    expected = learned.state_of((tmp_path / "stream.npz").read_bytes(), tmp_path, name)
    assert expected["n_points"] == n
    assert equal(learned.state_of(snapshot, tmp_path, name), expected)
    sorted_here = learned.server.state(
        f"SELECT {name}(x, y ORDER BY row) FROM points WHERE row <= {n}"
    )
    arrays = learned.server.state(f"SELECT {name}(ARRAY[x], ARRAY[y]) FROM {ORDERED.format(n=n)}")
    assert sorted_here == arrays == snapshot


def near(learned: Learned, one: bytes, other: bytes, folder: Path) -> None:
    """Fail if two states are not one but for the order of their sums."""
    states, predictions = [], []
    for snapshot in (one, other):
        states.append(learned.state_of(snapshot, folder))
        with learned.stream() as stream:
            stream.restore(folder / "from_sql.npz")
            answer = stream.query(np.linspace(-2, 2, 8)[:, None])
            predictions.append(np.concatenate([answer.mean, answer.std]))
    n_points = [state.pop("n_points") for state in states]
    assert n_points[0] == n_points[1]
    for name, array in whole(states[0]).items():
        expected = whole(states[1])[name]
        assert np.max(np.abs(array - expected)) <= 1e-6 * np.max(np.abs(expected)), name
    np.testing.assert_allclose(predictions[0], predictions[1], rtol=0, atol=1e-5)


def whole(state: dict[str, Array]) -> dict[str, Array]:
    """Return what a state of CMANP has summed up, however it is parted into base, rest and recent.

    Each part is relative to exp(its peak); sums are given relative to that of both.
    """
    parts = [
        (state["base_peak"], state["base_sums"].astype(float) + state["base_rest"]),
        (state["recent_peak"], state["recent_sums"].astype(float)),
    ]
    peak = np.maximum(*(peak for peak, _ in parts))
    return {"peak": peak, "sums": sum(np.exp(own - peak) * sums for own, sums in parts)}


def test_parallel_workers_give_the_state_of_one(learned: Learned, tmp_path: Path) -> None:
    query = "SELECT cmanp(x, y) FROM many"
    plan = learned.server.sql(f"{PARALLEL} EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {query}")
    assert "Finalize Aggregate" in plan and "Partial Aggregate" in plan
    workers = re.search(r"Workers Launched: (\d+)", plan)
    assert workers and int(workers[1]) >= 1, plan
    one, several = (
        learned.server.state(f"{settings} {query}")
        for settings in ("SET max_parallel_workers_per_gather = 0;", PARALLEL)
    )
    near(learned, several, one, tmp_path)


def test_states_of_partitions_are_joined(learned: Learned, tmp_path: Path) -> None:
    """The leader takes the state of each partition as bytes, as it takes those of workers."""
    rows = "SELECT 7 AS site, row, x, y FROM points WHERE row <= 2005"
    learned.server.sql(
        "CREATE TABLE parted (site int, row int, x float8, y float8) PARTITION BY RANGE (row);\n"
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (1003);\n"
        "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (1003) TO (2003);\n"
        "CREATE TABLE last PARTITION OF parted FOR VALUES FROM (2003) TO (9000);\n"
        f"INSERT INTO parted {rows}; ANALYZE parted;"
    )
    settings = (
        "SET enable_partitionwise_aggregate = on; SET max_parallel_workers_per_gather = 0; "
        "SET cpu_tuple_cost = 10;"  # so that a plan which passes few rows on is the cheapest
    )
    query = "SELECT cmanp(x, y) FROM parted GROUP BY site"
    plan = learned.server.sql(f"{settings} EXPLAIN (COSTS OFF) {query}")
    assert "Finalize" in plan and plan.count("Partial ") == 3, plan
    joined = learned.server.state(f"{settings} {query}")
    one = learned.server.state(f"SELECT cmanp(x, y) FROM ({rows}) AS rows")
    near(learned, joined, one, tmp_path)


def test_a_thousand_groups_have_states_of_their_own(learned: Learned, tmp_path: Path) -> None:
    groups = "SELECT row % 1000 AS part, cmanp(x, y) AS state FROM points GROUP BY 1"
    plan = learned.server.sql(f"EXPLAIN SELECT count(*) FROM ({groups}) AS groups")
    assert "HashAggregate" in plan
    first, *others = (
        learned.server.sql(
            f"{settings} SELECT md5(string_agg(state, '' ORDER BY part)) FROM ({groups}) AS groups"
        )
        # The last one does not fit into memory, and puts rows on the disk.
        for settings in ("", "SET enable_hashagg = off; ", "SET work_mem = '1MB'; ")
    )
    # Rows of a group may be sorted in another order than they come.
    assert others[1] == first
    n = f"SELECT cmanp_points(state) AS n FROM ({groups}) AS groups"
    counts = learned.server.sql(f"SELECT count(*), min(n), max(n) FROM ({n}) AS counts")
    assert counts == "1000|4|4"
    snapshot = learned.server.state(f"SELECT state FROM ({groups}) AS groups WHERE part = 17")
    with learned.stream() as stream:
        stream.condition(learned.x[16::1000], learned.y[16::1000])
        assert equal(
            learned.state_of(snapshot, tmp_path),
            {**stream.state(), "n_points": np.array(4)},
        )


def test_groups_in_parallel_lose_no_row(learned: Learned) -> None:
    groups = "SELECT site, cmanp(x, y) AS state FROM many GROUP BY site"
    plan = learned.server.sql(f"{PARALLEL} EXPLAIN {groups}")
    assert "Partial HashAggregate" in plan and "Gather" in plan
    counts = "SELECT sum(cmanp_points(state)), count(*) FROM ({}) AS groups"
    assert learned.server.sql(f"{PARALLEL} {counts.format(groups)}") == f"{N_MANY}|40"


def test_rows_with_a_null_are_not_learned(learned: Learned) -> None:
    sql = learned.server.sql
    assert sql("SELECT cmanp(x, y) IS NULL FROM points WHERE false") == "t"
    assert sql("SELECT cmanp(x, NULL) IS NULL FROM points") == "t"
    assert sql("SELECT cmanp(NULL::float8[], ARRAY[y]) IS NULL FROM points") == "t"
    every = f"SELECT cmanp({{}}) FROM {ORDERED.format(n=100)}"
    for columns in (
        "CASE WHEN row % 3 > 0 THEN x END, y",
        "x, CASE WHEN row % 3 > 0 THEN y END",
        "CASE WHEN row % 3 > 0 THEN ARRAY[x] END, ARRAY[y]",
        "ARRAY[x], ARRAY[CASE WHEN row % 3 > 0 THEN y END]",
        "x, y) FILTER (WHERE row % 3 > 0",
    ):
        found = learned.server.state(every.format(columns))
        assert found == learned.server.state(f"{every.format('x, y')} WHERE row % 3 > 0")


def refuses(server: PostgresServer, text: str, code: str) -> str:
    """Run SQL that must fail with this code of SQLSTATE; returns the message."""
    with pytest.raises(SqlError) as raised:
        server.sql(text)
    assert f"ERROR:  {code}: " in str(raised.value), raised.value
    return str(raised.value)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300", "-3e10", "1e10", "1e6", "-0.0"])
@pytest.mark.parametrize("name", ["cmanp", "scaled"])
def test_numbers_are_refused_that_a_stream_refuses(name: str, value: str, learned: Learned) -> None:
    for column, row in (("x", (float(value), 1.0)), ("y", (1.0, float(value)))):
        text = ", ".join(f"'{number!r}'::float8" for number in row)
        with learned.stream(name) as stream:
            try:
                stream.update(np.array([row[:1]]), np.array([row[1:]]))
            except ValueRefusedError:
                message = refuses(learned.server, f"SELECT {name}({text})", "22003")
                assert f"{name}() got {column} = " in message
                assert "The row is x = " in message and ", y = " in message
            else:
                assert learned.server.sql(f"SELECT {name}_points({name}({text}))") == "1"


def test_arrays_of_another_length_are_refused(learned: Learned) -> None:
    for x in ("ARRAY[1, 2]::float8[]", "ARRAY[[1]]::float8[]", "ARRAY[]::float8[]"):
        refuses(learned.server, f"SELECT cmanp({x}, ARRAY[1]::float8[])", "2202E")
        refuses(learned.server, f"SELECT cmanp_query(cmanp(1, 2), {x})", "2202E")


def test_a_query_that_is_cancelled_leaves_the_session_sound(learned: Learned) -> None:
    found = learned.server.sql(
        "CREATE TABLE ended (how text);\n"
        "SET statement_timeout = 300;\n"
        "DO $$ BEGIN\n"
        "PERFORM cmanp(a.x, b.y) FROM points a, points b, points c;\n"
        "EXCEPTION WHEN query_canceled THEN INSERT INTO ended VALUES ('cancelled');\n"
        "END $$;\n"
        "SET statement_timeout = 0;\n"
        f"SELECT how, md5(cmanp(x, y)) FROM ended, {ORDERED.format(n=100)} GROUP BY how;"
    )
    again = learned.server.sql(f"SELECT md5(cmanp(x, y)) FROM {ORDERED.format(n=100)}")
    assert found == f"cancelled|{again}"


def test_a_window_shows_the_state_after_each_row(learned: Learned) -> None:
    states = learned.server.sql(
        "SELECT md5(cmanp(x, y) OVER (ORDER BY row)) FROM points WHERE row <= 30"
    ).splitlines()
    for n in (1, 12, 30):
        expected = learned.server.sql(f"SELECT md5(cmanp(x, y)) FROM {ORDERED.format(n=n)}")
        assert states[n - 1] == expected


def test_states_merge_and_predict_as_those_of_a_stream(learned: Learned, tmp_path: Path) -> None:
    learned.server.sql(
        "CREATE TABLE states AS SELECT row / 2000 AS part, cmanp(x, y ORDER BY row) AS state "
        "FROM points WHERE row < 4000 GROUP BY 1"
    )
    for part in (0, 1):
        snapshot = learned.server.state(f"SELECT state FROM states WHERE part = {part}")
        (tmp_path / f"{part}.npz").write_bytes(snapshot)
    with learned.stream() as stream:
        stream.restore(tmp_path / "0.npz")
        stream.merge(tmp_path / "1.npz", disjoint=True)
        expected = {**stream.state(), "n_points": np.array(3999)}
        answer = stream.query(np.array([[0.5]])).copy()
    merged = (
        "(SELECT cmanp_merge(a.state, b.state) AS state FROM states a, states b "
        "WHERE a.part = 0 AND b.part = 1) AS merged"
    )
    snapshot = learned.server.state(f"SELECT state FROM {merged}")
    assert equal(learned.state_of(snapshot, tmp_path), expected)
    assert (
        learned.server.state("SELECT cmanp_merge_all(state ORDER BY part) FROM states") == snapshot
    )
    for x in ("0.5", "ARRAY[0.5::float8]"):
        found = learned.server.sql(
            f"SELECT cmanp_points(state), mean, std FROM {merged}, "
            f"LATERAL cmanp_query(state, {x}) AS answer"
        )
        n, mean, std = found.split("|")
        assert (n, float(mean), float(std)) == ("3999", answer.mean.item(), answer.std.item())
    nothing = "SELECT cmanp_merge(NULL, state) IS NULL, cmanp_points(NULL) IS NULL FROM states"
    assert learned.server.sql(nothing) == "t|t\nt|t"
    assert learned.server.sql("SELECT cmanp_merge_all(NULL) IS NULL FROM states") == "t"
    many = (
        "SELECT sum(cmanp_points(s)) FROM (SELECT cmanp_merge_all(state) s FROM states) AS all_of"
    )
    assert learned.server.sql(f"{PARALLEL} {many}") == "3999"


def test_each_state_of_a_query_gives_its_own_prediction(learned: Learned) -> None:
    pairs = "(VALUES (1, cmanp_merge(a, a)), (2, b), (3, a), (4, b)) AS states (i, state)"
    made = "(SELECT cmanp(x, y) AS a, cmanp(x, -y) AS b FROM points) AS made"
    lines = learned.server.sql(
        f"SELECT i, mean FROM {made}, LATERAL {pairs}, LATERAL cmanp_query(state, 0.5) ORDER BY i"
    ).splitlines()
    means = [float(line.split("|")[1]) for line in lines]
    assert means[1] == means[3] != means[2] and abs(means[0] - means[2]) < 1e-4


def test_two_extensions_work_in_one_query(learned: Learned) -> None:
    one, other = (
        learned.server.state(f"SELECT {name}(x, y) FROM {ORDERED.format(n=50)}")
        for name in ("cmanp", "scaled")
    )
    both = learned.server.sql(f"SELECT cmanp(x, y), scaled(x, y) FROM {ORDERED.format(n=50)}")
    assert both == f"\\x{one.hex()}|\\x{other.hex()}" and one != other


def test_bytes_that_are_no_state_are_refused(learned: Learned) -> None:
    good = learned.server.state("SELECT cmanp(1, 2)")
    refuses(learned.server, "SELECT cmanp_points('')", "22023")
    refuses(learned.server, "SELECT cmanp_query('\\x00', 1::float8)", "22023")
    refuses(learned.server, "SELECT cmanp_merge(cmanp(1, 2), scaled(1, 2))", "22023")
    for damaged in (good[:-2000], good[:500], good[:3000] + b"\0\1" + good[3002:]):
        text = f"'\\x{damaged.hex()}'::bytea"
        refuses(learned.server, f"SELECT cmanp_points({text})", "XX001")
        refuses(
            learned.server, f"SELECT cmanp_merge_all(s) FROM (VALUES ({text})) AS t (s)", "XX001"
        )


def test_a_snapshot_of_a_loop_is_read(learned: Learned, tmp_path: Path) -> None:
    with learned.stream() as stream:
        stream.condition(learned.x[:10], learned.y[:10])
        stream.save(tmp_path / "loop.npz", {"large": np.arange(5000.0)})
    text = f"'\\x{(tmp_path / 'loop.npz').read_bytes().hex()}'::bytea"
    found = learned.server.sql(f"SELECT cmanp_points({text}), cmanp_points({text})")
    assert found == "10|10"


def test_a_stream_and_a_board_resume_a_state(learned: Learned, tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    state.write_bytes(learned.server.state(f"SELECT cmanp(x, y) FROM {ORDERED.format(n=1000)}"))
    later = [(learned.x[i].item(), learned.y[i].item()) for i in range(1000, 1020)]
    expected = []
    with learned.stream() as stream:
        stream.restore(state)
        for x, y in later:
            answer = stream.query(np.array([[x]]))
            expected.append([stream.n_points, answer.mean.item(), answer.std.item()])
            stream.update(np.array([[x]]), np.array([[y]]))
    bundle = learned.bundles["cmanp"]
    program = compile_program(
        {**generate(bundle).files, "main.c": BOARD}, compiler_or_skip(), tmp_path
    )
    rows = "".join(f"{x!r} {y!r}\n" for x, y in later)
    done = subprocess.run([program, state], input=rows, capture_output=True, text=True, check=True)
    found = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert found == expected
    (tmp_path / "rows.csv").write_text("x1,y1\n" + rows.replace(" ", ","))
    loop = ["run", str(bundle), "--snapshot", str(state), "--output", str(tmp_path / "out.csv")]
    assert main([*loop, "--input", str(tmp_path / "rows.csv")]) == ExitCode.DONE
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    means = [float(line.split(",")[3]) for line in lines]  # of onnxruntime, perhaps
    np.testing.assert_allclose(means, [row[1] for row in expected], rtol=0, atol=1e-5)


def test_an_extension_is_dropped_and_made_again(learned: Learned) -> None:
    sql = learned.server.sql
    version = sql("SELECT extversion FROM pg_extension WHERE extname = 'scaled'")
    assert version == "1.0"
    sql("DROP EXTENSION scaled; CREATE SCHEMA models; CREATE EXTENSION scaled SCHEMA models;")
    assert sql("SELECT models.scaled_points(models.scaled(x, y)) FROM points") == str(N_ROWS)
    sql("ALTER EXTENSION scaled SET SCHEMA public")


def test_the_page_on_postgres_works_line_by_line(learned: Learned, tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "postgres.md").read_text()
    first, *blocks = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    back = next(block for block in blocks if "north.npz" in block)
    script = "\n".join(
        [
            "CREATE SCHEMA page; SET search_path = page, public;",
            *(block for block in blocks if block is not back),
            first,
            "SELECT 'whole', site, cmanp_points(state) FROM states ORDER BY site;",
        ]
    )
    lines = learned.server.sql(script).splitlines()
    assert {line.rpartition("|")[0] for line in lines[:2]} == {"north|401", "south|401"}
    # The rows of today are learned twice, as all of the page's rows are of today.
    assert lines[-2:] == ["whole|north|802", "whole|south|802"]
    (tmp_path / "north.npz").write_bytes(learned.server.state("SELECT cmanp(1, 2)"))
    found = learned.server.sql(
        f"SET search_path = page, public;\n\\cd {tmp_path}\n{back}\n"
        "SELECT cmanp_points(state) FROM states ORDER BY site;"
    )
    assert found == "1\n802"


def test_the_readme_of_an_extension_works_line_by_line(learned: Learned) -> None:
    bundle = learned.bundles["scaled"]
    readme = extension_files(load_manifest(bundle), generate(bundle, "scaled"))["README.md"]
    blocks = re.findall(r"(?:^    .*\n)+", readme, re.MULTILINE)
    sql = [block for block in blocks if re.match(r"    (CREATE|UPDATE|SELECT) ", block)]
    rows = (
        "INSERT INTO readings SELECT site, now(), i, sin(i) "
        "FROM (VALUES ('north'), ('south')) AS sites (site), generate_series(1, 20) AS i;"
    )
    table, learning = sql[0].splitlines()
    found = learned.server.sql(
        "\n".join(
            [
                "CREATE SCHEMA readme; SET search_path = readme, public;",
                table,
                rows,
                learning,
                *sql[1:],
            ]
        )
    ).splitlines()
    assert len(sql) == 3 and found[0] == "80"  # the rows are of today, and were learned twice
    assert [line.split("|")[0] for line in found[1:]] == ["north", "south"]


@pytest.mark.long
def test_same_bits_come_from_other_flags(learned: Learned, tmp_path: Path) -> None:
    same, bundle = "-DEDGEFOLD_SAME_BITS", learned.bundles["cmanp"]
    files = extension_files(load_manifest(bundle), generate(bundle, "same"))
    source = write(files, tmp_path / "same")
    make_extension(source, learned.server.folder, f"PROCESSOR={same}")
    learned.server.sql("CREATE EXTENSION same")
    engine = build(bundle, tmp_path / "native", compiler_or_skip(flags=(*QUICK, same)))
    with Stream.open(bundle, "native", engine=engine) as stream:
        stream.condition(learned.x[:1000], learned.y[:1000])
        expected = {**stream.state(), "n_points": np.array(1000)}
    snapshot = learned.server.state(f"SELECT same(x, y) FROM {ORDERED.format(n=1000)}")
    assert equal(learned.state_of(snapshot, tmp_path), expected)
