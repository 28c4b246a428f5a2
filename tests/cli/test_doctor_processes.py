from __future__ import annotations

import os
from pathlib import Path

from edgefold.cli.doctor.processes import watch_processes

TICKS = os.sysconf("SC_CLK_TCK")


def show(proc: Path, number: int, name: str, used_s: float, start: int = 7) -> None:
    """Write a process's stat file as proc(5) describes it, with its CPU time in user mode."""
    fields = ["S", *"0" * 10, f"{used_s * TICKS:.0f}", "0", *"0" * 6, str(start), "0"]
    (proc / str(number)).mkdir(exist_ok=True)
    (proc / str(number) / "stat").write_text(f"{number} ({name}) {' '.join(fields)}\n")


def test_programs_that_used_the_processor_are_listed_busiest_first(tmp_path: Path) -> None:
    times_s = iter((10.0, 12.0))
    (tmp_path / "version").write_text("Linux")
    show(tmp_path, 1, "init", 5.0)
    show(tmp_path, 2, "a (very) odd name", 1.0)
    show(tmp_path, 3, "compiler", 0.0)
    show(tmp_path, 4, "ended", 0.0, start=7)
    show(tmp_path, os.getpid(), "this", 0.0)
    busiest = watch_processes(tmp_path, lambda: next(times_s))
    show(tmp_path, 1, "init", 5.1)
    show(tmp_path, 2, "a (very) odd name", 2.0)
    show(tmp_path, 3, "compiler", 1.8)
    show(tmp_path, 4, "another with its number", 2.0, start=8)
    show(tmp_path, os.getpid(), "this", 2.0)
    assert busiest() == [
        {"name": "compiler", "cpu_percent": 90.0},
        {"name": "a (very) odd name", "cpu_percent": 50.0},
    ]


def test_a_machine_that_lists_no_process_is_watched_in_vain(tmp_path: Path) -> None:
    (tmp_path / "9").mkdir()  # it ended between the two reads
    assert watch_processes(tmp_path)() == []
    assert watch_processes(tmp_path / "none")() == []
