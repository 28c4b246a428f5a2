"""Addresses of boards, names of files, tags of wheels, and the table of several boards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgefold.cli.remote.address import board_address, file_of_board, short_names
from edgefold.cli.remote.board import SeenBoard
from edgefold.cli.remote.boards import code_of_all
from edgefold.cli.remote.connection import socket_folder
from edgefold.cli.remote.table import side_by_side
from edgefold.cli.remote.wheels import choose_wheels, read_wheel
from edgefold.runtime.errors import BoardError

PI = SeenBoard(
    folder="/home/pi/edgefold",
    processor="aarch64",
    libc="glibc 2.36",
    python=(3, 11, 2),
    bits=64,
    has_venv=True,
    has_ensurepip=True,
    is_writable=True,
    free_bytes=10**9,
    edgefold="",
    path="",
)
ALPINE = replace(PI, libc="musl")
NARROW = replace(PI, bits=32)  # a system of 32 bits under a kernel of 64


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("kitchen", ("", "kitchen", "")),
        ("pi@kitchen", ("pi", "kitchen", "")),
        ("pi@10.0.0.7", ("pi", "10.0.0.7", "")),
        ("pi@fe80::1%eth0", ("pi", "fe80::1%eth0", "")),
        ("ssh://pi@kitchen:2222", ("pi", "kitchen", "2222")),
        ("ssh://kitchen/", ("", "kitchen", "")),
        ("ssh://pi@[fe80::1]:22", ("pi", "fe80::1", "22")),
        ("me@domain@kitchen", ("me@domain", "kitchen", "")),
    ],
)
def test_an_address_is_read(text: str, parts: tuple[str, str, str]) -> None:
    address = board_address(text)
    assert (address.user, address.host, address.port) == parts and address.text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-oProxyCommand=x",
        "pi@",
        "@kitchen",
        "pi@-x",
        "-x@kitchen",
        "a b",
        "pi@x;y",
        "$(x)",
        "pi@kitchen:22",
        "ssh://",
        "a\nb",
        "a/b",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ssh"):
        board_address(text)


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["pi@kitchen", "roof"], ["kitchen", "roof"]),
        (["ssh://x:1", "ssh://x:2"], ["x-1", "x-2"]),
        (["pi@x", "me@x"], ["pi-x", "me-x"]),
        (["pi@fe80::1"], ["fe80__1"]),
        (["a:b:c", "a_b:c"], ["a_b_c-1", "a_b_c-2"]),
    ],
)
def test_short_names_differ(texts: list[str], names: list[str]) -> None:
    assert short_names([board_address(text) for text in texts]) == names


def test_several_boards_have_a_file_each() -> None:
    path = Path("out/profile.json")
    assert file_of_board(path, "x", 1) == path
    assert file_of_board(path, "x", 2) == Path("out/profile.x.json")
    assert file_of_board(Path("/dev/stdout"), "x", 1) == Path("/dev/stdout")
    with pytest.raises(ValueError, match="one board"):
        file_of_board(Path("/dev/stdout"), "x", 2)


def name_of(tags: str, name: str = "edgefold", version: str = "1.0") -> Path:
    return Path(f"{name}-{version}-{tags}.whl")


OURS = "py3-none-manylinux_2_17_{0}.musllinux_1_2_{0}"


@pytest.mark.parametrize(
    ("tags", "fitting"),
    [
        ("py3-none-any", (PI, ALPINE, NARROW)),
        ("py2.py3-none-any", (PI, ALPINE, NARROW)),
        ("py2-none-any", ()),
        (OURS.format("aarch64"), (PI, ALPINE)),
        (OURS.format("armv7l"), (NARROW,)),
        (OURS.format("x86_64"), ()),
        ("py3-none-linux_aarch64", (PI, ALPINE)),
        ("cp311-cp311-manylinux2014_aarch64", (PI,)),
        ("cp311-cp311-manylinux_2_39_aarch64", ()),
        ("cp312-cp312-manylinux2014_aarch64", ()),
        ("cp310-cp310-manylinux2014_aarch64", ()),
        ("cp39-abi3-manylinux2014_aarch64", (PI,)),
        ("cp311-cp311t-manylinux2014_aarch64", ()),
        ("cp311-cp311-musllinux_1_2_aarch64", (ALPINE,)),
        ("cp311-cp311-win_amd64", ()),
    ],
)
def test_a_wheel_fits_the_boards_of_its_tags(tags: str, fitting: tuple[SeenBoard, ...]) -> None:
    wheel = read_wheel(name_of(tags))
    assert wheel is not None
    assert tuple(board for board in (PI, ALPINE, NARROW) if wheel.fits(board)) == fitting


def test_the_newest_wheel_for_the_processor_is_chosen() -> None:
    names = [
        name_of("py3-none-any", version="0.9"),
        name_of("py3-none-any", version="0.10"),
        name_of(OURS.format("aarch64"), version="0.10"),
        name_of(OURS.format("x86_64"), version="0.11"),
        name_of("cp311-cp311-manylinux2014_aarch64", "numpy"),
        name_of("cp310-cp310-manylinux2014_aarch64", "numpy"),
    ]
    wheels = [wheel for name in names if (wheel := read_wheel(name))]
    assert [wheel.path for wheel in choose_wheels(wheels, PI, "pi")] == [names[2], names[4]]
    with pytest.raises(BoardError, match="x86_64"):
        choose_wheels([wheels[3]], PI, "pi")


@pytest.mark.parametrize("name", ["edgefold-1.0.tar.gz", "edgefold.whl", "a-1-b-c.whl"])
def test_what_is_no_wheel_is_none(name: str) -> None:
    assert read_wheel(Path(name)) is None


def test_a_table_is_split_where_it_is_wider_than_the_terminal() -> None:
    rows = {"Python": ["3.11", "3.12", "3.13"], "check": ["passed"] * 3}
    assert side_by_side(["a", "b", "c"], rows, 30) == (
        "         a        b\n"
        "Python   3.11     3.12\n"
        "check    passed   passed\n"
        "\n"
        "         c\n"
        "Python   3.13\n"
        "check    passed"
    )


def test_the_code_of_several_boards_is_that_of_the_first_failure() -> None:
    from edgefold.cli.exit_codes import ExitCode as Code

    assert code_of_all([Code.DONE, Code.DONE]) == 0
    assert code_of_all([Code.DONE, Code.UNSURE, Code.WRONG_RESULT]) == 5
    assert code_of_all([Code.WRONG_RESULT, Code.MACHINE, Code.REFUSED]) == 6


def test_a_socket_has_a_short_path_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with socket_folder() as folder:
        assert len(folder) < 80 and Path(folder).stat().st_mode & 0o777 == 0o700
