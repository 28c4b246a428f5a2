"""A bundle in a child process. A stand-in for the work lies in a folder of `sys.path`, so that the
child really imports it, crashes, hangs and is killed."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.cli import bundle_process
from edgefold.cli.bundle_process import TIME_LIMIT_MINUTES, Place, SharedPlace, crash, in_child
from edgefold.cli.exit_codes import ExitCode, code_of
from edgefold.cli.main import main
from edgefold.runtime.backends.onnxruntime_session import onnxruntime
from edgefold.runtime.child_process import Ending
from edgefold.runtime.errors import BackendError, BundleError, DataError, MemoryLimitError, Remedy
from tests.cli.conftest import with_changed_graph

HEAD = """
import ctypes, os, pathlib, signal, sys, time, warnings
from edgefold.runtime.errors import *

def work(args):
"""
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs some lines as the work in a child."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def run_lines(lines: str, **options: Any) -> Any:
        body = "\n".join(f"    {line}" for line in lines.split("\n"))
        (tmp_path / "stand_in.py").write_text(HEAD + body + "\n")
        sys.modules.pop("stand_in", None)
        importlib.invalidate_caches()
        named = {"bundle": "b", "trusted_key": None, "time_limit": TIME_LIMIT_MINUTES, **options}
        return in_child(importlib.import_module("stand_in").work, argparse.Namespace(**named))

    return run_lines


def test_work_gets_the_options_and_its_result_comes_back(run: Run, tmp_path: Path) -> None:
    lines = "return [type(args.cache).__name__, args.threads, float('inf')]"
    assert run(lines, cache=tmp_path, threads=2) == ["PosixPath", 2, float("inf")]


def test_what_libraries_print_is_not_taken_for_the_result(run: Run) -> None:
    assert run("print('{}'); os.write(1, b'x' * 100_000)\nreturn 7") == 7


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE"])
def test_a_crash_in_a_graph_is_the_bundles_and_names_the_graph(run: Run, name: str) -> None:
    with pytest.raises(BundleError) as ended:
        run(f"args.watch('open', 'refresh')\nos.kill(os.getpid(), signal.{name})")
    assert name in str(ended.value) and "refresh" in str(ended.value)
    assert code_of(ended.value) == ExitCode.REFUSED


def test_a_real_crash_of_native_code_is_told_like_a_signal(run: Run) -> None:
    with pytest.raises(BundleError, match="SIGSEGV"):
        run("args.watch('run', 'query')\nctypes.string_at(0)")


def test_a_crash_before_any_graph_is_the_machines(run: Run) -> None:
    with pytest.raises(BackendError) as ended:
        run("args.watch('load', 'onnxruntime')\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert "onnxruntime" in str(ended.value) and code_of(ended.value) == ExitCode.MACHINE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGILL])
def test_a_kill_and_a_missing_instruction_are_the_machines(number: signal.Signals) -> None:
    error = crash("b", Place("onnxruntime", "run", "query"), Ending(-number))
    assert code_of(error) == ExitCode.MACHINE and number.name in str(error)


def test_an_end_without_an_answer_is_told(run: Run) -> None:
    with pytest.raises(BackendError, match="code 3"):
        run("os._exit(3)")


def test_a_graph_that_never_ends_is_given_up_and_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands until the graph runs, however long a busy machine takes to get there."""
    place = tmp_path / "pid"
    late = count(1e6, 1e6)
    clock = SimpleNamespace(monotonic=lambda: next(late) if place.exists() else 0.0)
    monkeypatch.setattr(bundle_process, "time", clock)
    written = f"pathlib.Path({str(tmp_path / 'new')!r}).write_text(str(os.getpid()))"
    lines = f"args.watch('run', 'update')\n{written}\n"
    lines += f"os.rename({str(tmp_path / 'new')!r}, {str(place)!r})\ntime.sleep(600)"
    with pytest.raises(BundleError) as ended:
        run(lines)
    assert "update" in str(ended.value) and code_of(ended.value) == ExitCode.REFUSED
    assert is_gone(int(place.read_text()))


def test_the_limit_of_time_is_each_graphs_own() -> None:
    place = SharedPlace()
    other = SharedPlace(os.dup(place.handle))
    before = place.read()[0]
    other.tell("load", "onnxruntime")
    other.tell("run", "update")
    first, where = place.read()
    other.tell("run", "update")
    assert len({before, first, place.read()[0]}) == 3 and where == Place(
        "onnxruntime", "run", "update"
    )
    other.close()
    place.close()


def test_a_name_longer_than_its_place_is_cut() -> None:
    place = SharedPlace()
    place.tell("open", "é" * 4000)
    assert place.read()[1].name.startswith("éé")
    place.close()


@pytest.mark.parametrize(
    ("raised", "kind", "code"),
    [
        ("DataError('d')", DataError, ExitCode.REFUSED),
        ("MemoryLimitError('m')", MemoryLimitError, ExitCode.MISFIT),
        ("MemoryError()", MemoryError, ExitCode.MACHINE),
        ("ModuleNotFoundError('o', name='onnxruntime')", ModuleNotFoundError, ExitCode.MACHINE),
        ("OSError(28, 'full', '/x')", OSError, ExitCode.MACHINE),
        ("FileNotFoundError(2, 'none', '/x')", OSError, ExitCode.REFUSED),
    ],
)
def test_an_error_of_the_work_is_raised_here(
    run: Run, raised: str, kind: type[Exception], code: ExitCode
) -> None:
    with pytest.raises(kind) as ended:
        run(f"raise {raised}")
    assert code_of(ended.value) == code


def test_exhausted_memory_is_told_even_if_no_module_can_be_imported_any_more(run: Run) -> None:
    with pytest.raises(MemoryError):
        run("sys.modules['traceback'] = None; raise MemoryError")


def test_an_error_keeps_its_remedy_and_what_the_system_said(run: Run) -> None:
    with pytest.raises(BackendError) as ended:
        run("raise BackendError('b', Remedy('w', 'c')) from OSError(13, 'no', '/x')")
    assert ended.value.remedy == Remedy("w", "c")
    assert code_of(ended.value) == ExitCode.REFUSED


def test_a_fault_of_ours_comes_with_its_traceback(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError) as ended:
        run("raise ZeroDivisionError('x')")
    assert code_of(ended.value) == ExitCode.BUG
    assert "stand_in.py" in capsys.readouterr().err


def test_where_memory_runs_out_the_child_goes_first(run: Run) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(run("return pathlib.Path('/proc/self/oom_score_adj').read_text()")) >= max(own, 1000)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for yet counts as there."""
    return not Path(f"/proc/{pid}").exists()


def test_ctrl_c_ends_the_child_and_leaves_no_zombie(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "pid"

    def interrupt() -> None:
        while not place.exists() or not place.read_text():
            if ended.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGINT)

    ended = threading.Event()  # also where the child fails before it writes
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(f"pathlib.Path({str(place)!r}).write_text(str(os.getpid()))\ntime.sleep(600)")
    finally:
        ended.set()
        thread.join()
    assert is_gone(int(place.read_text()))


# The commands -------------------------------------------------------------------------------------


@pytest.fixture
def crashing(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A resealed bundle with an empty input more: onnxruntime 1.31.1 dies of it, others may not."""
    onnx = pytest.importorskip("onnx", reason="boards have no onnx")

    def spoil(path: Path) -> None:
        model = onnx.load(str(path), load_external_data=False)
        node = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
        node.input.append("")
        path.write_bytes(model.SerializeToString())

    return with_changed_graph(tiny_bundle, tmp_path / "crashing", "update", spoil)


@pytest.mark.one_case
@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_bundle_that_crashes_onnxruntime_is_refused_in_one_line(
    crashing: Path, command: str, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    words = [sys.executable, "-m", "edgefold.cli.main", command, str(crashing)]
    done = subprocess.run(
        [*words, "--json", str(record)], capture_output=True, text=True, check=False
    )
    lines = done.stderr.splitlines()
    crashes = onnxruntime.__version__ == "1.31.1" and platform.machine() == "x86_64"
    if not crashes and "SIG" not in done.stderr + done.stdout:  # another one may refuse or run it
        assert done.returncode in (ExitCode.DONE, ExitCode.MACHINE), done.stderr
        return
    assert done.returncode == ExitCode.REFUSED
    assert lines[-1].startswith("edgefold: error: ") and "update" in lines[-1]
    assert "Traceback" not in done.stderr
    if command == "doctor":
        entries = {entry["name"]: entry for entry in json.loads(record.read_text())["backends"]}
        place = entries["onnxruntime"]["crashed_in"]
        assert (place["doing"], place["graph"], place["signal"]) == ("open", "update", "SIGSEGV")
    else:
        assert not record.exists()


def test_a_graph_that_takes_too_long_is_refused(
    tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = ["--time-limit", "1e-9"]
    assert main(["check", str(tiny_bundle), *limit]) == ExitCode.REFUSED
    assert "--time-limit" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_no_time_is_wrong_usage(limit: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", "b", f"--time-limit={limit}"])
