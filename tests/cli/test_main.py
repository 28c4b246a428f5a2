from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from edgefold.cli import main as cli
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import COMMANDS, build_parser, explain, main, module_of
from edgefold.cli.terminal import plain_warnings
from edgefold.runtime.errors import MeterError


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from edgefold.cli.main import build_parser; build_parser(['--help'])\n"
        "heavy = {'numpy', 'onnxruntime', 'torch', 'matplotlib', 'edgefold.runtime'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_warning_is_a_line_without_its_place_in_the_code() -> None:
    before = warnings.formatwarning
    with plain_warnings():
        text = warnings.formatwarning(RuntimeWarning("too little memory"), RuntimeWarning, "x", 7)
    assert text == "edgefold: warning: too little memory\n"
    assert warnings.formatwarning is before


@pytest.mark.parametrize("command", ["check", "run", "profile", "forecast"])
def test_a_device_command_parses_without_heavy_imports(command: str) -> None:
    code = (
        "import sys; from edgefold.cli.main import build_parser\n"
        f"build_parser([{command!r}])\n"
        "print(sorted({'numpy', 'onnxruntime', 'torch', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert name in text and summary[:30] in text


def test_help_names_the_folder_of_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone its docs/; else those that a wheel puts under share/ of the environment."""
    assert str(Path(__file__).parents[2] / "docs") in cli.where_pages_lie()
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "edgefold" / "cli" / "main.py"))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert cli.where_pages_lie() == ""
    pages = tmp_path / "share" / "edgefold" / "docs"
    pages.mkdir(parents=True)
    (pages / "your-data.md").touch()
    assert str(pages) in cli.where_pages_lie()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_call_it(name: str) -> None:
    module = importlib.import_module(f"edgefold.cli.commands.{module_of(name)}")
    assert module.EXAMPLES and all(f"edgefold {name}" in text for text in module.EXAMPLES)


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        ["fly"],
        ["run", "bundle"],
        ["run", "bundle", "--input", "x.csv", "--every", "0"],
        ["run", "bundle", "--input", "x.csv", "--anomaly-z", "nan"],
        ["profile", "bundle", "--rate", "0"],
        ["check", "bundle", "--threads", "no"],
    ],
)
def test_wrong_usage_leaves_with_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("edgefold ")


def test_an_expected_error_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("edgefold: error: ") and error.count("\n") == 1
    assert "is not a bundle" in error


@pytest.mark.parametrize("argv", [["--debug", "check", "none"], ["check", "none", "--debug"]])
def test_debug_shows_the_traceback(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(argv: list[str]) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(cli, "build_parser", broken)
    assert main(["check", "x"]) == ExitCode.BUG
    error = capsys.readouterr().err
    assert "Traceback" in error and "a bug" in error


def test_an_interrupt_leaves_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(argv: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", interrupted)
    assert main(["check", "x"]) == 130


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a.csv"), ("a.csv", "free some space")),
        (
            PermissionError(errno.EACCES, "Permission denied", "b"),
            ("b: Permission", "another path"),
        ),
        (ModuleNotFoundError("x", name="torch"), ("pip install 'edgefold[train]'",)),
        (ModuleNotFoundError("x", name="matplotlib"), ("pip install 'edgefold[report]'",)),
        (MeterError("no sensor;\n try another"), ("no sensor; try another",)),
        (MemoryError(), ("memory is exhausted",)),
    ],
)
def test_what_the_system_refuses_says_what_to_do(error: Exception, words: tuple[str, ...]) -> None:
    line = explain(error)
    assert line is not None and all(word in line for word in words)


def test_only_the_chosen_command_gets_options() -> None:
    args = build_parser(["check"]).parse_args(["check", "b", "--threads", "2"])
    assert args.threads == 2 and args.bundle == "b"


def test_a_reader_that_goes_away_ends_the_command_quietly(tiny_bundle: Path) -> None:
    lines = "x1,x2,y1\n" + "0.1,0.2,0.3\n" * 5000
    command = [sys.executable, "-m", "edgefold.cli.main", "run", str(tiny_bundle)]
    process = subprocess.Popen(
        [*command, "--input", "-", "--output", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    try:
        process.stdin.write(lines)
        process.stdin.close()
    except BrokenPipeError:
        pass
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert "Traceback" not in error


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape"])
def test_a_narrow_encoding_does_not_stop_a_command(encoding: str, tmp_path: Path) -> None:
    code = "from edgefold.cli.terminal import ensure_streams; ensure_streams(); print('\u00b1 1')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=True,
    )
    assert done.stdout == b"? 1\n"


def test_a_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["run", "sensors", "--input", "a", "--page-token", "b"], ["run", "--no-such"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("edgefold run: error: ") and "edgefold run --help" in line
