"""Every command ends with the same code for the same kind of end."""

from __future__ import annotations

import errno
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode, code_of
from edgefold.cli.main import COMMANDS, main, module_of
from edgefold.runtime import errors
from tests.cli.conftest import spoil_golden

pytest.importorskip("torch", reason="half of the commands need the train extra")

Words = Callable[[Path, Path], list[str]]  # of a bundle and a folder without files of note

LEAKY = """
import torch
from edgefold.train import StreamingModel

class Leaky(StreamingModel):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def initial_state(self, n_streams=1):
        return {"sum": torch.zeros(n_streams, 1)}

    def update(self, state, x, y):
        self.seen += 1
        return {"sum": state["sum"] + y * self.seen}

    def query(self, cache, x):
        mean = cache["sum"][:, None].expand(-1, x.shape[1], -1)
        return {"mean": mean, "std": torch.ones_like(mean)}
"""


def wrong_golden(bundle: Path, folder: Path) -> Path:
    """Copy a bundle whose recorded predictions are not what its graphs compute."""
    return spoil_golden(Path(shutil.copytree(bundle, folder / "wrong")))


def leaky(folder: Path) -> str:
    (folder / "leaky_model.py").write_text(LEAKY)
    return f"{folder}/leaky_model.py:Leaky"


def series(folder: Path) -> str:
    """A table with three rows."""
    (folder / "series.csv").write_text("time,value\n1,2\n2,3\n3,2\n")
    return f"{folder}/series.csv"


SHORT = ("--updates", "20", "--queries", "20", "--energy-seconds", "0.1")

USAGE: dict[str, list[str]] = {
    "forecast": ["x", "--false-alarms", "2"],
    "train": ["gp", "--out", "x", "--learning-rate", "7"],
    "evaluate": ["x", "--plot", "x.gif"],
    "export": ["x", "--out", "y", "--precision", "int4"],
    "verify": ["x", "--steps", "0"],
    "import": ["x.onnx", "--out", "y", "--input", "x"],
    "engine": ["x", "--optimization-level", "6"],
    "build": ["x", "--source"],
    "check": ["x", "--threads", "0"],
    "run": ["x"],
    "condition": ["x", "y", "--out", "z"],
    "merge": ["x", "one.npz", "--out", "y"],
    "snapshot": ["x", "y"],
    "budget": ["x"],
    "profile": ["x", "--fail-if", "update.p98 > 2ms"],
    "compare": ["x.json"],
    "doctor": ["x", "y"],
    "sign": ["x"],
    "deploy": ["x"],
}
REFUSED: dict[str, Words] = {
    "forecast": lambda b, f: [f"{f}/none.csv"],
    "train": lambda b, f: ["series", "--csv", f"{f}/none.csv", "--out", f"{f}/run"],
    "evaluate": lambda b, f: [f"{f}/none"],
    "export": lambda b, f: [f"{f}/none.py:None", "--out", f"{f}/out"],
    "verify": lambda b, f: [f"{f}/none.py:None"],
    "import": lambda b, f: [f"{f}/none.onnx", "--out", f"{f}/out"],
    "engine": lambda b, f: [f"{f}/none", "--list", "--cache", str(f)],
    "build": lambda b, f: [f"{f}/none"],
    "check": lambda b, f: [f"{f}/none"],
    "run": lambda b, f: [f"{f}/none", "--input", "-"],
    "condition": lambda b, f: [str(b), f"{f}/none", "--x=a,b", "--y=c", "--out", f"{f}/o.npz"],
    "merge": lambda b, f: [str(b), f"{f}/none.npz", f"{f}/other.npz", "--out", f"{f}/out"],
    "snapshot": lambda b, f: [f"{f}/none.npz"],
    "budget": lambda b, f: [f"{f}/none", "--device", "raspberry-pi-5"],
    "profile": lambda b, f: [str(b), *SHORT, "--baseline", f"{f}/none.json"],
    "compare": lambda b, f: [f"{f}/none.json", f"{f}/none.json"],
    "doctor": lambda b, f: [f"{f}/none"],
    "sign": lambda b, f: [str(b), "--key", f"{f}/none"],
    "deploy": lambda b, f: ["x", "--bundle", f"{f}/none"],
}
OTHERS: list[tuple[ExitCode, str, Words]] = [
    (ExitCode.WRONG_RESULT, "check", lambda b, f: [str(wrong_golden(b, f))]),
    (ExitCode.WRONG_RESULT, "verify", lambda b, f: [leaky(f), "--steps", "100"]),
    (ExitCode.WRONG_RESULT, "profile", lambda b, f: [str(b), *SHORT, "--fail-if", "needed > 1MB"]),
    (
        ExitCode.MISFIT,
        "budget",
        lambda b, f: [str(b), "--device", "raspberry-pi-5", "--memory=1MB"],
    ),
    (ExitCode.MISFIT, "check", lambda b, f: [str(b), "--memory-limit", "1MB"]),
    (ExitCode.MISFIT, "profile", lambda b, f: [str(b), "--memory-limit", "1MB"]),
    (ExitCode.MISFIT, "run", lambda b, f: [str(b), "--input", "-", "--memory-limit", "1MB"]),
    (
        ExitCode.UNSURE,
        "budget",
        lambda b, f: [str(b), "--device", "raspberry-pi-zero-2-w", "--rate=9"],
    ),
    (ExitCode.UNSURE, "profile", lambda b, f: [str(b), *SHORT, "--fail-if", "update.p99 > 1s"]),
    (ExitCode.MACHINE, "check", lambda b, f: [str(b), "--backend", "tensorrt"]),
    (ExitCode.MACHINE, "forecast", lambda b, f: [series(f), "--backend", "tensorrt"]),
    (ExitCode.REFUSED, "forecast", lambda b, f: [series(f), "--bundle", str(b)]),
    (ExitCode.MACHINE, "run", lambda b, f: [str(b), "--input", "-", "--backend", "tensorrt"]),
    (ExitCode.MACHINE, "build", lambda b, f: [str(b), "--compiler", "no-such-compiler"]),
    (ExitCode.MACHINE, "profile", lambda b, f: [str(b), "--backend", "tensorrt"]),
    (
        ExitCode.MACHINE,
        "budget",
        lambda b, f: [str(b), "--device=raspberry-pi-5", "--json=/dev/full"],
    ),
]


def test_every_command_is_held_here() -> None:
    assert set(USAGE) == set(REFUSED) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_usage(command: str) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, *USAGE[command]])
    assert left.value.code == ExitCode.USAGE


@pytest.mark.one_case
@pytest.mark.parametrize("command", COMMANDS)
def test_a_refused_input(command: str, tiny_bundle: Path, tmp_path: Path) -> None:
    assert main([command, *REFUSED[command](tiny_bundle, tmp_path)]) == ExitCode.REFUSED


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("code", "command", "words"), OTHERS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_another_end(
    code: ExitCode, command: str, words: Words, tiny_bundle: Path, tmp_path: Path
) -> None:
    assert main([command, *words(tiny_bundle, tmp_path)]) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x"), ExitCode.MACHINE),
        (ModuleNotFoundError("torch", name="torch"), ExitCode.MACHINE),
        (errors.BackendError("it does not open"), ExitCode.MACHINE),
        (errors.DataError("bad rows"), ExitCode.REFUSED),
        (FileNotFoundError(errno.ENOENT, "No such file", "x"), ExitCode.REFUSED),
        (errors.MemoryLimitError("too large"), ExitCode.MISFIT),
        (ZeroDivisionError("a bug"), ExitCode.BUG),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_ends_every_command_alike(
    command: str, error: BaseException, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"edgefold.cli.commands.{module_of(command)}")

    def fails(args: object) -> int:
        raise error

    monkeypatch.setattr(module, "run", fails)
    monkeypatch.setattr(module, "add_arguments", lambda parser: None)
    monkeypatch.delattr(module, "add_arguments_for", raising=False)
    assert main([command]) == code


def test_every_error_of_the_tree_has_a_code() -> None:
    tree = errors.EdgefoldError.__subclasses__()
    assert len(tree) > 10
    codes = {kind.__name__: code_of(kind("message")) for kind in tree}
    assert set(codes.values()) == {ExitCode.REFUSED, ExitCode.MISFIT, ExitCode.MACHINE}


def test_a_full_disk_behind_an_error_of_ours_is_the_machines() -> None:
    error = errors.OutputError("cannot be written")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert code_of(error) is ExitCode.MACHINE


def test_an_interrupt_from_outside(tiny_bundle: Path) -> None:
    """A profile of many updates is told to stop as soon as it has begun to write its status."""
    words = [sys.executable, "-m", "edgefold.cli.main", "profile", str(tiny_bundle)]
    code = (
        "import os, signal\n"
        "from edgefold.cli.main import main\n"
        "from edgefold.devices.profile import profile\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored\n"
        "profile.read_machine = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        f"raise SystemExit(main({words[3:]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == ExitCode.INTERRUPTED == 128 + signal.SIGINT
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["--help", "docs/records.md"])
def test_the_table_is_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    if text == "--help":
        with pytest.raises(SystemExit, match="0"):
            main(["--help"])
        shown = capsys.readouterr().out
        rows = re.findall(r"^  (\d+) +(.+)$", shown, re.MULTILINE)
    else:
        shown = (Path(__file__).parents[2] / text).read_text()
        rows = re.findall(r"^\| (\d+) \| (.+?) \|$", shown, re.MULTILINE)
    assert [(int(code), told) for code, told in rows] == [(c.value, c.meaning) for c in ExitCode]


def test_codes_are_not_those_of_the_shell() -> None:
    assert not {code.value for code in ExitCode} & {126, 127, 128}
    assert 128 + signal.SIGPIPE == ExitCode.PIPE and os.EX_SOFTWARE == ExitCode.BUG
