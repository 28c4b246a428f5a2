"""Each way in which a board fails gives one line that says what to do, and the right exit code."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.remote.address import board_address
from edgefold.cli.remote.connection import SshOptions
from edgefold.cli.remote.ssh_errors import board_failure, connection_error
from tests.cli.remote.boards import Pc, Sshd, copy_of_bundle, key_pair
from tests.cli.remote.stand_in import make_wheel

Text = pytest.CaptureFixture[str]
OLD_PYTHON = 'echo "python 3.9.2"; echo "bits 64"; echo "venv yes"; echo "ensurepip yes"'


def one_line(capsys: Text) -> str:
    """Return the one line that the command printed on stderr."""
    error = capsys.readouterr().err
    assert error.startswith("edgefold: error: ") and error.count("\n") == 1, error
    return error


def doctor(pc: Pc, *words: str) -> int:
    return main(["doctor", "--ssh-config", str(pc.config), *words])


def test_a_host_that_no_name_service_knows(pc: Pc, capsys: Text) -> None:
    assert doctor(pc, "--on", "pi@no..board") == ExitCode.REFUSED  # refused without a question
    assert "its name is not known here" in one_line(capsys)


def test_a_port_where_nothing_listens(pc: Pc, capsys: Text) -> None:
    with socket.socket() as one:  # it has the port and does not listen
        one.bind(("127.0.0.1", 0))
        board = f"ssh://127.0.0.1:{one.getsockname()[1]}"
        assert doctor(pc, "--on", board) == ExitCode.REFUSED
    assert "nothing listens at its ssh port" in one_line(capsys)


def test_a_board_whose_key_is_not_known(pc: Pc, capsys: Text) -> None:
    words = ["--on", "kitchen", "--ssh-option", "UserKnownHostsFile=/dev/null"]
    assert doctor(pc, *words) == ExitCode.REFUSED
    error = one_line(capsys)
    assert "its host key is not known here" in error and "accept-new" in error


def test_a_board_with_another_key_than_before(pc: Pc, tmp_path: Path, capsys: Text) -> None:
    public = key_pair(tmp_path / "other").with_suffix(".pub").read_text()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{pc.boards[0].port} {public}")
    words = ["--on", "kitchen", "--ssh-option", f"UserKnownHostsFile={known}"]
    assert doctor(pc, *words) == ExitCode.REFUSED
    assert "ssh-keygen -R" in one_line(capsys)


def test_a_key_that_the_board_does_not_accept(pc: Pc, tmp_path: Path, capsys: Text) -> None:
    config = tmp_path / "config"
    config.write_text(pc.config.read_text().replace(str(pc.key), str(key_pair(tmp_path / "key"))))
    assert main(["doctor", "--on", "kitchen", "--ssh-config", str(config)]) == ExitCode.REFUSED
    assert "does not accept this user's key" in one_line(capsys)


def test_an_option_that_ssh_does_not_know(pc: Pc, capsys: Text) -> None:
    assert doctor(pc, "--on", "kitchen", "--ssh-option", "NoSuch=1") == ExitCode.REFUSED
    assert "ssh refuses an option" in one_line(capsys)


def test_a_machine_without_ssh(
    pc: Pc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor(pc, "--on", "kitchen") == ExitCode.MACHINE
    assert "no program ssh" in one_line(capsys)


def test_a_board_without_edgefold(pc: Pc, kitchen: Sshd, capsys: Text) -> None:
    assert doctor(pc, "--on", "kitchen") == ExitCode.MACHINE
    assert "edgefold deploy kitchen --wheel" in one_line(capsys)


def test_an_edgefold_that_the_kernel_killed(pc: Pc, kitchen: Sshd, capsys: Text) -> None:
    kitchen.program("edgefold", "kill -9 $$")
    assert doctor(pc, "--on", "kitchen") == ExitCode.MACHINE
    assert "SIGKILL" in one_line(capsys)


@pytest.mark.parametrize("code", [0, 70])
def test_an_edgefold_that_writes_no_record(code: int, pc: Pc, kitchen: Sshd, capsys: Text) -> None:
    kitchen.program("edgefold", f"echo '{{}}'; exit {code}")
    assert doctor(pc, "--on", "kitchen") == (code or ExitCode.MACHINE)
    assert "no record" in one_line(capsys)


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("ssh: connect to host x port 22: Connection timed out", "does not answer"),
        ("ssh: connect to host x port 22: No route to host", "does not answer"),
        ("Received disconnect from x: 2: Too many authentication failures", "IdentitiesOnly"),
        ("kex_exchange_identification: read: Connection reset by peer", "try `ssh pi@x`"),
        ("", "ssh gave no reason"),
    ],
)
def test_what_ssh_prints_becomes_a_line(printed: str, said: str) -> None:
    assert said in str(connection_error("pi@x", printed))


def test_ssh_never_asks_where_nobody_is() -> None:
    words = SshOptions(options=("ConnectTimeout=3",), port=7).words(board_address("pi@x"))
    assert "BatchMode=yes" in words and words[:4] == ["-o", "ConnectTimeout=3", "-p", "7"]
    asking = SshOptions(may_ask=True, port=7).words(board_address("ssh://pi@x:9"))
    assert "BatchMode=no" in asking and "-p" not in asking


# Deployments ---------------------------------------------------------------------------------


def deploy(pc: Pc, *words: object) -> int:
    return main(["deploy", "kitchen", *map(str, words), "--ssh-config", str(pc.config)])


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "wheels", "1.0")


def test_a_disk_without_room_is_found_before_the_copy(
    pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text
) -> None:
    kitchen.program(
        "df",
        'echo "Filesystem 1024-blocks Used Available Capacity Mounted on"\n'
        'echo "/dev/root 30000000 29999999 1 100% /"',
    )
    assert deploy(pc, "--wheel", wheel) == ExitCode.MACHINE
    assert "1.0 kB free" in one_line(capsys) and [*kitchen.home.iterdir()] == []


def test_a_disk_that_fills_up_during_the_copy(
    pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text
) -> None:
    full = "tar: write error: No space left on device"
    kitchen.program("tar", f'[ "$LC_ALL" = C ] && echo "{full}" >&2 || echo "voll" >&2; exit 1')
    assert deploy(pc, "--wheel", wheel) == ExitCode.MACHINE
    assert "its disk is full" in one_line(capsys)


def test_a_file_system_that_is_read_only(pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text) -> None:
    kitchen.program("mkdir", "echo \"mkdir: cannot create 'x': Read-only file system\" >&2; exit 1")
    assert deploy(pc, "--wheel", wheel) == ExitCode.MACHINE
    assert "the file system is read-only" in one_line(capsys)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_home_that_the_user_may_not_write(
    pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text
) -> None:
    kitchen.home.chmod(0o555)
    try:
        assert deploy(pc, "--wheel", wheel) == ExitCode.MACHINE
    finally:
        kitchen.home.chmod(0o755)
    assert "--board-dir" in one_line(capsys)


def test_a_board_without_tar(pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text) -> None:
    kitchen.program("tar", 'echo "sh: 1: tar: not found" >&2; exit 127')
    assert deploy(pc, "--wheel", wheel) == ExitCode.MACHINE
    assert "it has no program tar" in one_line(capsys)


def test_a_python_that_is_too_old(pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text) -> None:
    kitchen.program("python3", OLD_PYTHON)
    assert deploy(pc, "--wheel", wheel) == ExitCode.MACHINE
    error = one_line(capsys)
    assert "3.9.2" in error and "--program" in error


def test_a_board_without_python(pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text) -> None:
    assert deploy(pc, "--wheel", wheel, "--python", "python3.99") == ExitCode.MACHINE
    assert "no python3.99 is there" in one_line(capsys)


def test_a_python_without_venv(pc: Pc, kitchen: Sshd, wheel: Path, capsys: Text) -> None:
    kitchen.program("python3", OLD_PYTHON.replace("3.9.2", "3.11.2").replace("venv yes", "venv no"))
    assert deploy(pc, "--wheel", wheel) == ExitCode.MACHINE
    assert "python3-venv" in one_line(capsys)


def test_a_wheel_for_another_processor(pc: Pc, kitchen: Sshd, tmp_path: Path, capsys: Text) -> None:
    tags = "py3-none-manylinux_2_17_sparc64.musllinux_1_2_sparc64"
    assert deploy(pc, "--wheel", make_wheel(tmp_path, "1.0", tags)) == ExitCode.REFUSED
    error = one_line(capsys)
    assert os.uname().machine in error and "sparc64" in error
    assert [*kitchen.home.iterdir()] == []


def test_a_folder_without_a_wheel(pc: Pc, tmp_path: Path, capsys: Text) -> None:
    assert deploy(pc, "--wheel", tmp_path) == ExitCode.REFUSED
    assert "make wheels" in one_line(capsys)


@pytest.mark.long
def test_a_folder_that_lacks_a_wheel_which_edgefold_needs(
    pc: Pc, kitchen: Sshd, tmp_path: Path, capsys: Text
) -> None:
    make_wheel(tmp_path, "1.0", requires="no-such-package-of-edgefold>=3")
    assert deploy(pc, "--wheel", tmp_path) == ExitCode.MACHINE
    error = one_line(capsys)
    assert "no-such-package-of-edgefold" in error and "pip download" in error
    assert not (kitchen.home / "edgefold" / "bin").exists()


def test_a_bundle_that_is_none(pc: Pc, tmp_path: Path, capsys: Text) -> None:
    assert deploy(pc, "--bundle", tmp_path / "none") == ExitCode.REFUSED
    assert "is not a bundle" in one_line(capsys)


def test_a_bundle_that_is_damaged_here_is_not_copied(
    pc: Pc, kitchen: Sshd, tmp_path: Path, capsys: Text
) -> None:
    bundle = copy_of_bundle(tmp_path / "tiny")
    with (bundle / "weights.bin").open("ab") as file:
        file.write(b"x")
    assert deploy(pc, "--bundle", bundle) == ExitCode.REFUSED
    assert "weights.bin" in one_line(capsys) and [*kitchen.home.iterdir()] == []


def test_a_failure_that_nobody_foresaw_quotes_the_board() -> None:
    error = str(board_failure("pi@x", "copying", 9, "first\nfour legs good\n"))
    assert "pi@x: copying failed with exit code 9: four legs good" in error


def test_a_login_shell_that_is_no_sh(pc: Pc, kitchen: Sshd, capsys: Text) -> None:
    """Some routers offer a menu in place of a shell."""
    shutil.copy("/bin/true", kitchen.programs / "sh")
    assert doctor(pc, "--on", "kitchen") == ExitCode.MACHINE
    assert "POSIX shell" in one_line(capsys)
