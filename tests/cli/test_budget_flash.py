"""`edgefold budget --flash`: its table, its record and its gates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from tests.cli.test_records import errors

Command = Callable[..., tuple[int, str, str]]
ASKED = ("budget", "sensors", "--device", "raspberry-pi-5", "--rate", "1", "--flash", "32GB")


def test_the_table_shows_settings_beside_each_other_and_marks_the_asked_one(
    edgefold: Command,
) -> None:
    code, out, _ = edgefold(*ASKED, "--every", "500")
    assert code == ExitCode.DONE
    rows = [line.split() for line in out.split("written a day\n")[1].splitlines()[1:5]]
    assert [row[0] for row in rows] == ["100", "500", "1,000", "10,000"]
    assert [row[-1] == "settings" for row in rows] == [False, True, False, False]
    assert "assumed: the cycles and amplification" in out
    code, out, _ = edgefold(*ASKED, "--source", "mqtt", "--endurance", "1000")
    assert "group: messages" in out and out.count(" 60 s") == 3
    assert "assumed: the amplification," in out


def test_the_record_keeps_its_schema_and_holds_the_asked_setting(
    edgefold: Command, tmp_path: Path
) -> None:
    path = tmp_path / "budget.json"
    for words in ((), ("--source", "mqtt", "--streams", "8", "--sync", "10")):
        assert edgefold(*ASKED, *words, "--json", path)[0] == ExitCode.DONE
        record = json.loads(path.read_text())
        assert errors("budget", record) == []
        asked = [one for one in record["flash"]["settings"] if one["is_asked"]]
        assert len(asked) == 1 and asked[0]["flash_years"] > 0
    assert edgefold(*ASKED[:6], "--json", path)[0] == ExitCode.DONE
    assert json.loads(path.read_text())["flash"] is None


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("flash_years < 1", ExitCode.DONE),
        ("flash_years < 10000 years", ExitCode.WRONG_RESULT),
        ("flash_a_day > 1MB", ExitCode.WRONG_RESULT),
        ("needed > 4GB", ExitCode.DONE),
        ("arrival.at_most > 1s", ExitCode.DONE),
        ("arrival.at_most > 1ns", ExitCode.WRONG_RESULT),
    ],
)
def test_a_gate_judges_the_asked_setting(edgefold: Command, gate: str, expected: ExitCode) -> None:
    code, out, _ = edgefold(*ASKED, "--fail-if", gate)
    assert code == expected
    assert out.splitlines()[-2] == "gates"


def test_a_figure_that_the_answer_does_not_have_is_refused(edgefold: Command) -> None:
    refuses(edgefold, *ASKED[:6], "--fail-if", "flash_years < 5")
    refuses(edgefold, *ASKED, "--fail-if", "update.p99 > 1s")


def refuses(edgefold: Command, *words: str) -> None:
    """Assert that a command line is refused as wrong usage."""
    with pytest.raises(SystemExit) as ended:
        edgefold(*words)
    assert ended.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    "words",
    [
        ("sensors", "--device", "raspberry-pi-5", "--flash", "32GB"),
        ("sensors", "--device", "raspberry-pi-5", "--endurance", "1000"),
        ("gp-tiny", "--device", "rp2350", "--rate", "1", "--flash", "32GB"),
        ("--sweep", "sensors", "--rate", "1", "--flash", "32GB"),
    ],
)
def test_options_of_flash_that_make_no_sense_are_refused(
    edgefold: Command, words: tuple[str, ...]
) -> None:
    refuses(edgefold, "budget", *words)
