"""The page is for this machine, or for whoever has the token."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.cli.options.page_options import page_address
from edgefold.cli.page.access import PageAccess, PageAddress, new_token, read_token
from edgefold.runtime.errors import DataError

TOKEN = "a-token-of-24-characters"


def cookie(access: PageAccess, token: str = TOKEN, port: int = 80) -> str:
    text = access.cookie_for(f"/?token={token}", port)
    assert text is not None
    return text.partition(";")[0]


def test_the_token_is_exchanged_for_a_cookie_that_does_not_show_it() -> None:
    access = PageAccess(TOKEN)
    assert TOKEN not in cookie(access)
    assert access.allows({"Host": "board:80", "Cookie": f"a=b; {cookie(access)}"}, 80)
    assert PageAccess(TOKEN).allows({"Cookie": cookie(access)}, 80)  # after a restart


@pytest.mark.parametrize("given", ["", TOKEN[:-1], TOKEN + "x", "ü" * 24, "\ud800", "%00"])
def test_another_token_sets_no_cookie(given: str) -> None:
    assert PageAccess(TOKEN).cookie_for(f"/?token={given}", 80) is None


def test_without_the_right_cookie_nothing_is_served() -> None:
    access, other = PageAccess(TOKEN), PageAccess(new_token())
    name = cookie(access).partition("=")[0]
    for text in ("", "nonsense;;=", cookie(other, other._token), f"{name}=", f"{name}={TOKEN}"):
        assert not access.allows({"Host": "127.0.0.1", "Cookie": text}, 80)
    assert not access.allows({"Cookie": cookie(access)}, 81)  # cookies do not know ports


def test_without_a_token_only_names_of_this_machine_are_served() -> None:
    access = PageAccess("")
    for host in ("localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST"):
        assert access.allows({"Host": host}, 8080)
    for host in ("", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example:80"):
        assert not access.allows({"Host": host}, 8080)
    assert access.cookie_for("/?token=", 8080) is None


def test_another_page_in_the_browser_may_link_here_and_nothing_else() -> None:
    access, fields = PageAccess(""), {"Host": "localhost", "Sec-Fetch-Site": "cross-site"}
    assert access.allows({**fields, "Sec-Fetch-Mode": "navigate"}, 80)
    assert not access.allows({**fields, "Sec-Fetch-Mode": "no-cors"}, 80)


def test_a_token_is_read_from_the_first_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\nmore\n")
    assert read_token(path) == TOKEN
    for text in ("", "short", "with spaces in the token", "x" * 201):
        path.write_text(text)
        with pytest.raises(DataError):
            read_token(path)
    with pytest.raises(DataError):
        read_token(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("8080", "127.0.0.1", 8080, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:9", "::1", 9, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
        ("[::]:80", "::", 80, False),
        ("board.local:80", "board.local", 80, False),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int, is_loopback: bool) -> None:
    address = page_address(text)
    assert address == PageAddress(host, port) and address.is_loopback == is_loopback


@pytest.mark.parametrize("text", ["", ":80", "a:b", "80:", "70000", "::1:80", "http://a:80", "8 0"])
def test_another_address_is_a_wrong_usage(text: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "sensors", "--input", "a.csv", "--page", text])
    assert ended.value.code == 2


def test_a_token_without_a_page_is_a_wrong_usage() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "sensors", "--input", "a.csv", "--page-token", "f"])
    assert ended.value.code == 2
