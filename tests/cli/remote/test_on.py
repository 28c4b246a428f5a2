"""`profile --on` and `doctor --on`, on real sshd boards with a stand-in for the edgefold there."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.main import main
from edgefold.cli.remote.address import board_address
from edgefold.cli.remote.command import run_edgefold
from edgefold.cli.remote.connection import Connection, SshOptions, socket_folder
from edgefold.cli.schemas.profile import ProfileRecord
from edgefold.cli.terminal import STATUS, StatusLine
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.cli.remote.boards import Pc, Sshd, copy_of_bundle

Text = pytest.CaptureFixture[str]
STAND_IN = """
for word; do printf '%s\\n' "$word" >>"$HOME/asked"; done
cat "$HOME/record.json"
exit "$(cat "$HOME/code" 2>/dev/null || echo 0)"
"""
PATIENCE_S = 120  # of a read that would end at once; only a fault lets it pass


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A real record of gp-tiny."""
    path = tmp_path_factory.mktemp("record") / "record.json"
    words = ["--updates", "100", "--queries", "20", "--energy-seconds", "0.1"]
    assert main(["profile", "gp-tiny", *words, "--json", str(path)]) == 0
    assert {*json.loads(path.read_text())} <= {*ProfileRecord.__dataclass_fields__}
    record: dict[str, Any] = json.loads(path.read_text())
    record["validity"] |= {"verdict": "unknown", "reasons": []}  # whatever else ran here
    return record


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A real record of the doctor."""
    path = tmp_path_factory.mktemp("record") / "doctor.json"
    assert main(["doctor", "--json", str(path)]) in (0, 6)  # 6: no backend opens here
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def stand_in(board: Sshd, record: dict[str, Any], indent: int) -> bytes:
    """Let the board's edgefold print a record, written in a way that no edgefold writes it."""
    written = (json.dumps(record, indent=indent) + "\n\n").encode()
    (board.home / "record.json").write_bytes(written)
    board.program("edgefold", STAND_IN)
    return written


def on(pc: Pc, *boards: str) -> list[str]:
    return [*(f"--on={board}" for board in boards), "--ssh-config", str(pc.config)]


def test_a_record_comes_back_with_the_bytes_that_the_board_wrote(
    pc: Pc, kitchen: Sshd, profiled: dict[str, Any], tmp_path: Path, capsys: Text
) -> None:
    written = stand_in(kitchen, profiled, 3)
    path = tmp_path / "profile.json"
    assert main(["profile", "gp-tiny", *on(pc, "kitchen"), "--json", str(path)]) == 0
    assert path.read_bytes() == written
    shown = capsys.readouterr().out
    assert "board    kitchen" in shown and "Stream.update" in shown and str(path) in shown


def test_two_boards_write_two_files_and_one_table(
    pc: Pc, kitchen: Sshd, roof: Sshd, profiled: dict[str, Any], tmp_path: Path, capsys: Text
) -> None:
    written = {"kitchen": stand_in(kitchen, profiled, 3), "roof": stand_in(roof, profiled, 5)}
    path = tmp_path / "profile.json"
    words = ["--json", str(path), "--csv", str(tmp_path / "figures.csv")]
    assert main(["profile", "gp-tiny", *on(pc, "kitchen", "roof"), *words]) == 0
    for name, content in written.items():
        assert (tmp_path / f"profile.{name}.json").read_bytes() == content
        assert (tmp_path / f"figures.{name}.csv").read_text().startswith("figure,unit")
    assert not path.exists()
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["kitchen", "roof"]
    cells = next(row.split() for row in rows if row.startswith("update.p50"))
    assert len(cells) == 5 and cells[1:3] == cells[3:]  # a number and its unit each


def test_the_record_has_stdout_for_itself(pc: Pc, kitchen: Sshd, profiled: dict[str, Any]) -> None:
    written = stand_in(kitchen, profiled, 2)
    words = ["profile", "gp-tiny", *on(pc, "kitchen"), "--json", "-"]
    command = [sys.executable, "-m", "edgefold.cli.main", *words]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    assert done.stdout == written and b"Stream.update" in done.stderr


def test_two_boards_do_not_share_stdout(pc: Pc, capsys: Text) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["profile", "gp-tiny", *on(pc, "kitchen", "roof"), "--json", "-"])
    assert "name a file" in capsys.readouterr().err


def test_what_a_login_shell_prints_is_not_of_the_record(
    pc: Pc, kitchen: Sshd, profiled: dict[str, Any], tmp_path: Path
) -> None:
    (kitchen.home / ".bashrc").write_text("echo welcome to the kitchen\n")
    written = stand_in(kitchen, profiled, 1)
    path = tmp_path / "profile.json"
    assert main(["profile", "gp-tiny", *on(pc, "kitchen"), "--json", str(path)]) == 0
    assert path.read_bytes() == written


def test_the_boards_edgefold_gets_the_options_but_gates_and_files(
    pc: Pc, kitchen: Sshd, profiled: dict[str, Any], tmp_path: Path
) -> None:
    stand_in(kitchen, profiled, 1)
    asked = ["--updates", "77", "--rate", "12.5", "--threads", "2", "--paced", "1,10"]
    asked += ["--paced-backend", "native", "--paced-backend", "onnxruntime:2", "--no-cuda-graphs"]
    here = ["--fail-if", "update.p50 > 1000s", "--json", str(tmp_path / "x.json")]
    assert main(["profile", "gp-tiny", *on(pc, "kitchen"), *asked, *here]) in (0, 4)
    words = (kitchen.home / "asked").read_text().splitlines()
    assert words[:2] == ["profile", "gp-tiny"] and words[-2:] == ["--json", "-"]
    assert {"--updates=77", "--rate=12.5", "--threads=2", "--paced=1,10"} <= {*words}
    assert {"--paced-backend=native", "--paced-backend=onnxruntime:2"} <= {*words}
    assert "--no-cuda-graphs" in words
    assert not any(word.startswith(("--fail-if", "--on", "--ssh")) for word in words)


def test_gates_and_baseline_are_judged_on_the_record_that_came_back(
    pc: Pc, kitchen: Sshd, roof: Sshd, profiled: dict[str, Any], tmp_path: Path, capsys: Text
) -> None:
    stand_in(kitchen, profiled, 1)
    memory = profiled["memory"]
    larger = {**profiled, "memory": {**memory, "needed_bytes": 2 * memory["needed_bytes"]}}
    stand_in(roof, larger, 1)
    baseline, path = tmp_path / "before.json", tmp_path / "now.json"
    baseline.write_text(json.dumps(profiled))
    limit = memory["needed_bytes"] * 1.5 / 1e6
    words = [f"--fail-if=needed > {limit:.3f}MB", "--baseline", str(baseline), "--json", str(path)]
    assert main(["profile", "gp-tiny", *on(pc, "kitchen", "roof"), *words]) == 5
    verdicts = {
        name: {
            gate["gate"]: gate["verdict"]
            for gate in json.loads((tmp_path / f"now.{name}.json").read_text())["gates"]
            if gate["figure"] == "needed"
        }
        for name in ("kitchen", "roof")
    }
    assert {*verdicts["kitchen"].values()} == {"passed"} and len(verdicts["kitchen"]) == 2
    assert {*verdicts["roof"].values()} == {"FAILED"}
    assert "gates of roof" in capsys.readouterr().out


def test_a_board_that_fails_does_not_stop_the_other(
    pc: Pc, kitchen: Sshd, roof: Sshd, profiled: dict[str, Any], tmp_path: Path, capsys: Text
) -> None:
    kitchen.program("edgefold", "echo 'edgefold: error: does not fit' >&2; exit 3")
    written = stand_in(roof, profiled, 1)
    path = tmp_path / "profile.json"
    assert main(["profile", "gp-tiny", *on(pc, "kitchen", "roof"), "--json", str(path)]) == 3
    assert (tmp_path / "profile.roof.json").read_bytes() == written
    assert not (tmp_path / "profile.kitchen.json").exists()
    assert "edgefold: error: kitchen: does not fit" in capsys.readouterr().err


def test_a_bundle_is_brought_for_the_command_and_removed(
    pc: Pc, kitchen: Sshd, profiled: dict[str, Any], tmp_path: Path
) -> None:
    stand_in(kitchen, profiled, 1)
    kitchen.program("edgefold", f'ls -A "$2" >"$HOME/files"\n{STAND_IN}')
    bundle = copy_of_bundle(tmp_path / 'it\'s a "bundle" $HOME')
    words = ["--board-dir", "a 'folder' of \"mine\" $(rm x)"]
    assert main(["profile", str(bundle), *on(pc, "kitchen"), *words]) == 0
    assert (kitchen.home / "files").read_text().split() == sorted(os.listdir(bundle))
    place = Path((kitchen.home / "asked").read_text().splitlines()[1])
    assert place.parent == kitchen.home / words[1] / "bundles"
    assert [*place.parent.iterdir()] == []


def test_a_bundle_that_was_deployed_is_used_where_it_is(
    pc: Pc, kitchen: Sshd, profiled: dict[str, Any], tmp_path: Path
) -> None:
    stand_in(kitchen, profiled, 1)
    bundle = copy_of_bundle(tmp_path / "tiny")
    deployed = copy_of_bundle(kitchen.home / "edgefold" / "bundles" / "tiny")
    assert main(["profile", str(bundle), *on(pc, "kitchen")]) == 0
    assert (kitchen.home / "asked").read_text().splitlines()[1] == str(deployed)
    assert [*deployed.parent.iterdir()] == [deployed]


def test_the_doctors_report_comes_back(
    pc: Pc, kitchen: Sshd, roof: Sshd, examined: dict[str, Any], tmp_path: Path, capsys: Text
) -> None:
    written = stand_in(kitchen, examined, 3)
    path = tmp_path / "doctor.json"
    assert main(["doctor", *on(pc, "kitchen"), "--json", str(path)]) == 0
    assert path.read_bytes() == written
    assert "backends that open" in capsys.readouterr().out
    stand_in(roof, examined, 1)
    (roof.home / "code").write_text("6")  # no backend opens there
    assert main(["doctor", *on(pc, "kitchen", "roof"), "--json", str(path)]) == 6
    assert (tmp_path / "doctor.roof.json").exists()
    assert capsys.readouterr().out.split()[:2] == ["kitchen", "roof"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_board_whose_pc_is_gone_stops_to_measure(
    number: signal.Signals, pc: Pc, kitchen: Sshd
) -> None:
    for name in ("began", "ended"):
        os.mkfifo(kitchen.home / name)
    kitchen.program(
        "edgefold",
        "trap 'echo yes >\"$HOME/ended\"; exit' TERM\n"
        'echo yes >"$HOME/began"\nwhile :; do sleep 1; done',
    )
    command = [sys.executable, "-m", "edgefold.cli.main", "profile", "gp-tiny", *on(pc, "kitchen")]
    # A name is opened for both ways so that the open itself waits for nobody.
    began, ended = (os.open(kitchen.home / name, os.O_RDWR) for name in ("began", "ended"))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            assert select.select([began], [], [], PATIENCE_S)[0]
            process.send_signal(number)
            process.wait(PATIENCE_S)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert select.select([ended], [], [], PATIENCE_S)[0]
    os.close(began)
    os.close(ended)


def test_there_is_one_handshake_for_each_board(
    pc: Pc, kitchen: Sshd, profiled: dict[str, Any], tmp_path: Path
) -> None:
    """Looking, copying, measuring and removing go over one connection."""
    stand_in(kitchen, profiled, 1)
    log = pc.folder / "kitchen" / "sshd.log"
    before = log.read_text().count("Accepted publickey")
    assert main(["profile", str(copy_of_bundle(tmp_path / "tiny")), *on(pc, "kitchen")]) == 0
    assert log.read_text().count("Accepted publickey") == before + 1


def test_a_board_prints_its_progress_as_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.setenv(STATUS, "lines")
    line = StatusLine()
    line.show("timing updates")
    assert line.is_live and capsys.readouterr().err == "\rtiming updates\n"


def test_the_boards_progress_and_warnings_are_shown_here(pc: Pc, kitchen: Sshd) -> None:
    kitchen.program(
        "edgefold",
        "printf '\\rtiming updates\\n' >&2; echo 'edgefold: warning: too warm' >&2\n"
        "echo 'a table' >&2; echo record",
    )
    shown, warnings = list[str](), list[str]()
    board, options = board_address("kitchen"), SshOptions(config=pc.config)
    with (
        socket_folder() as folder,
        closing(Connection(board, "kitchen", options, Path(folder, "0"))) as connection,
    ):
        connection.open()
        ended = run_edgefold(connection, "edgefold", ["profile"], shown.append, warnings.append)
    assert shown == ["timing updates"]
    assert warnings == ["edgefold: warning: kitchen: too warm"]
    assert (ended.code, ended.output) == (0, b"record\n")


@pytest.mark.parametrize("option", ["--port", "--identity", "--board-dir", "--ssh-option"])
def test_options_of_ssh_go_with_on(option: str, capsys: Text) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", option, "7"])
    assert "--on" in capsys.readouterr().err


def test_the_shipped_bundle_is_not_copied(pc: Pc, kitchen: Sshd, profiled: dict[str, Any]) -> None:
    stand_in(kitchen, profiled, 1)
    assert main(["profile", str(shipped_bundle("gp-tiny")), *on(pc, "kitchen")]) == 0
    assert (kitchen.home / "asked").read_text().splitlines()[1] == "gp-tiny"
    assert not (kitchen.home / "edgefold").exists()
