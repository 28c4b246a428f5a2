"""What many tests share is made once, whoever asks first."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from tests.made_once import made_each, made_once


def test_what_was_made_is_not_made_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text(str(len(calls)))

    first = made_once(tmp_path_factory, "test", make, "a")
    assert made_once(tmp_path_factory, "test", make, "a") == first
    assert (first / "file").read_text() == "1"
    other = made_once(tmp_path_factory, "test", make, "b")
    assert (other / "file").read_text() == "2"


def test_what_failed_is_made_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        made_once(tmp_path_factory, "fails", fail)
    made = made_once(tmp_path_factory, "fails", lambda folder: (folder / "whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]


def test_two_who_ask_at_the_same_time_share_the_work(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The first asks while it makes `a`; the second then makes `b`, and waits for neither."""
    calls: list[str] = []

    def make_a(path: Path) -> None:
        calls.append("a begins")
        if calls == ["a begins"]:
            second = Thread(target=lambda: made_each(tmp_path_factory, "each", makers))
            second.start()
            while "b" not in calls:
                sleep(0.001)
            threads.append(second)
        path.write_text("a")
        calls.append("a ends")

    def make_b(path: Path) -> None:
        path.write_text("b")
        calls.append("b")

    threads: list[Thread] = []
    makers = {"a": make_a, "b": make_b}
    folder = made_each(tmp_path_factory, "each", makers)
    threads[0].join()
    assert calls == ["a begins", "b", "a ends"]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "a", "b": "b"}
