"""What a foreign file says must not command the terminal that shows it."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.cli.terminal import StatusLine, plain_warnings, say
from edgefold.runtime.bundle.manifest_file import with_checksum

Text = pytest.CaptureFixture[str]
ROGUE = "a\x1b[31mb\x07c\u202ed\x9b"
SHOWN = "a?[31mb?c?d?"


def test_a_line_shows_control_characters_as_question_marks(capsys: Text) -> None:
    say(f"{ROGUE}\tµ ± 1\n2")
    assert capsys.readouterr().err == f"{SHOWN}\tµ ± 1\n2\n"


def test_a_status_line_keeps_its_own_codes_alone(
    capsys: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    StatusLine().show(ROGUE)
    assert capsys.readouterr().err == f"\r\x1b[K{SHOWN}"


def test_a_warning_is_filtered() -> None:
    with plain_warnings():
        line = warnings.formatwarning(ROGUE, UserWarning, "a.py", 1)
    assert line == f"edgefold: warning: {SHOWN}\n"


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_names_from_a_foreign_manifest_are_filtered_on_both_streams(
    command: str, tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    text = (tiny_bundle / "manifest.json").read_text().replace('"update"', '"up\\u001b[31mdate"')
    form = with_checksum(json.loads(text))
    (tmp_path / "manifest.json").write_text(json.dumps(form))
    for file in tiny_bundle.iterdir():
        if file.name != "manifest.json":
            (tmp_path / file.name).symlink_to(file)
    main([command, str(tmp_path)])
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err


def test_an_error_that_quotes_a_name_is_one_line(tmp_path: Path, capsys: Text) -> None:
    assert main(["check", str(tmp_path / "no\x1b[31m\nbundle")]) == 1
    told = capsys.readouterr().err
    assert "\x1b" not in told and told.count("\n") == 1
