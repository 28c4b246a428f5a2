from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edgefold.cli.files import require_writable, write_output
from edgefold.cli.main import main


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "record.json", tmp_path / "latest.json"
    link.symlink_to(target)
    for text in ("first", "second"):
        write_output(link, text)
        assert link.is_symlink() and target.read_text() == text
    assert len(list(tmp_path.iterdir())) == 2


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = b"x" * 200_000  # more than a pipe holds
    came: list[bytes] = []
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, data)
    reader.join()
    assert came == [data] and pipe.is_fifo()


def test_stdout_is_written_where_it_goes(tmp_path: Path) -> None:
    code = "from pathlib import Path\nfrom edgefold.cli.files import write_output\n"
    code += "write_output(Path('/dev/stdout'), 'text')"
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b"text"
    with (tmp_path / "out").open("wb") as file:
        subprocess.run(words, stdout=file, check=True)
    assert (tmp_path / "out").read_text() == "text"


def test_a_device_is_left_in_place() -> None:
    args = argparse.Namespace(json=Path("/dev/null"), html=Path("/dev/null"))
    require_writable(args, "json", "html")
    write_output(args.json, "text")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "words", [["profile", "--json", "x", "--html", "x"], ["evaluate", "--json", "x.png", "--plot"]]
)
def test_two_files_of_one_name_are_refused_before_the_work(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if words[0] == "evaluate":
        words = [*words, "./x.png"]
    with pytest.raises(SystemExit) as stopped:
        main([words[0], "no such bundle", *words[1:]])
    assert stopped.value.code == 2
    assert "name the same file" in capsys.readouterr().err
