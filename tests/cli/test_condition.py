"""`edgefold condition`: from a folder of Parquet to states that a loop and a merge take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefold.cli.commands.snapshots import condition
from edgefold.cli.main import build_parser
from edgefold.fleets.conditioning import condition as module
from edgefold.fleets.conditioning.condition import UNIT_ROWS
from edgefold.fleets.tables.batches import BATCH_ROWS
from tests.cli.conftest import Command
from tests.fleets.conftest import N_DAYS, N_ROWS, N_SITES, HereCrew, contents
from tests.fleets.conftest import gp_bundle as gp_bundle
from tests.fleets.conftest import lake_folder as lake_folder
from tests.fleets.conftest import one_process as one_process

pytest.importorskip("pyarrow", reason="lakes need the parquet extra")
XY = ("--x", "x", "--y", "y", "--backend", "onnxruntime")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run units in this process: a new one takes a second for its imports."""
    monkeypatch.setattr(module, "Crew", HereCrew)


@pytest.mark.usefixtures("here")
def test_a_loop_goes_on_from_a_state(edgefold: Command, lake_folder: Path, tmp_path: Path) -> None:
    states = tmp_path / "states"
    code, out, _ = edgefold(
        "condition", "gp-tiny", f"{lake_folder}/**/*.parquet", *XY, "--by", "site", "--out", states
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split() == ["1,800", "0", str(states / "site=0.npz")]
    n = N_SITES * N_DAYS * N_ROWS
    assert f"rows          {n:,} rows read, {n:,} points" in lines
    table = tmp_path / "rows.csv"
    table.write_text("x,y\n0.1,0.2\n0.3,0.5\n")
    words = ("--output", tmp_path / "p.csv", "--snapshot", states / "site=0.npz")
    code, _, said = edgefold("run", "gp-tiny", "--input", table, *words)
    assert code == 0, said
    mean = float((tmp_path / "p.csv").read_text().splitlines()[1].split(",")[3])
    assert mean == pytest.approx(0.2, abs=0.2)  # sin(0.2), from the first row on


@pytest.mark.usefixtures("here")
def test_states_of_the_same_rows_do_not_merge(
    edgefold: Command, lake_folder: Path, tmp_path: Path
) -> None:
    for name, words in (("one", ()), ("two", ("--filter", "x > 0"))):
        out = tmp_path / f"{name}.npz"
        assert edgefold("condition", "gp-tiny", lake_folder, *XY, "--out", out, *words)[0] == 0
    both = [tmp_path / "one.npz", tmp_path / "two.npz"]
    code, _, said = edgefold("merge", "gp-tiny", *both, "--out", tmp_path / "both.npz")
    assert code == 1 and "parquet#" in said and "twice" in said
    assert f"{both[0]} and {both[1]}: " in said and "with --filter" in said


@pytest.mark.usefixtures("here")
def test_very_many_groups_are_warned_of(
    edgefold: Command, lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "condition", "gp-tiny", lake_folder, *XY, "--by", "site", "--out", tmp_path / "out"
    monkeypatch.setattr(condition, "MANY_GROUPS", 1)
    for more in (["--dry-run"], []):
        code, printed, _ = edgefold(*words, *more)
        assert code == 0 and "warning       3 groups" in printed


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    edgefold: Command, lake_folder: Path, tmp_path: Path
) -> None:
    words = ("--by", "site,room", "--out", tmp_path / "out", "--filter", "x > 0", "--dry-run")
    code, out, _ = edgefold("condition", "gp-tiny", lake_folder, *XY, *words)
    assert code == 0 and not (tmp_path / "out").exists()
    heads = [line[:14].strip() for line in out.splitlines()]
    assert [head for head in heads if head] == [
        *("files", "x", "y", "by", "by", "filter", "units", "groups", "time")
    ]
    assert f"{N_SITES * N_DAYS} files, {N_SITES * N_DAYS * N_ROWS:,} rows" in out


def test_columns_must_be_named_once(edgefold: Command, lake_folder: Path) -> None:
    for words in ((), ("--x", "x", "--y", "x")):
        with pytest.raises(SystemExit) as ended:
            edgefold("condition", "gp-tiny", lake_folder, *words, "--out", "out.npz")
        assert ended.value.code == 2


def test_the_options_have_the_defaults_of_the_program() -> None:
    words = ["condition", "gp-tiny", "lake", "--out", "o.npz"]
    args = build_parser(words).parse_args(words)
    assert (args.unit_rows, args.batch_rows) == (UNIT_ROWS, BATCH_ROWS)


def test_a_missing_package_is_named_with_its_extra(
    edgefold: Command, lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = tmp_path / "o.npz"
    code, _, said = edgefold("condition", "gp-tiny", lake_folder, *XY, "--out", out)
    assert code == 6 and "edgefold[parquet]" in said
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "distributed", None)
    words = ("--out", out, "--scheduler", "tcp://127.0.0.1:1")
    code, _, said = edgefold("condition", "gp-tiny", lake_folder, *XY, *words)
    assert code == 6 and "edgefold[dask]" in said


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_same_command_goes_on_after_a_signal(
    number: signal.Signals, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("condition", "gp-tiny", str(lake_folder), *XY, "--by", "site", "--out", str(out))
    command = [sys.executable, "-m", "edgefold.cli.main", *words, "--unit-rows", "400"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not [*out.glob(".work/read-*[0-9]")]:
        time.sleep(0.001)
    process.send_signal(number)
    _, said = process.communicate()
    if process.returncode:  # a fast machine may have been done
        assert process.returncode == (-9 if number == signal.SIGKILL else 130)
        assert (out / ".work").is_dir() and "Traceback" not in said
        assert number == signal.SIGKILL or "the same command goes on" in said
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert contents(out) == contents(one_process)
