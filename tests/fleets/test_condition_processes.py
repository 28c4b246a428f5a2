"""States are the same to the bit on any number of processes, also if these are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from edgefold.fleets.work.crew import Crew
from tests.fleets.conftest import conditioned, contents

pytest.importorskip("pyarrow", reason="lakes need the parquet extra")


@pytest.mark.one_case
@pytest.mark.parametrize("options", [{"processes": 2}, {"processes": 9, "batch_rows": 37}])
def test_states_are_the_same_to_the_bit_on_any_number_of_processes(
    options: dict[str, Any], gp_bundle: Path, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    conditioned(gp_bundle, lake_folder, tmp_path / "out", **options)
    assert contents(tmp_path / "out") == contents(one_process)


def test_states_are_the_same_to_the_bit_after_kills(
    gp_bundle: Path,
    lake_folder: Path,
    one_process: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attend, killed = Crew.attend, list[int]()

    def kill_and_attend(crew: Crew, *words: Any) -> None:
        if len(killed) < 4 and len(crew.process_ids) == 2:
            killed.append(crew.process_ids[len(killed) % 2])
            os.kill(killed[-1], signal.SIGKILL)
        attend(crew, *words)

    monkeypatch.setattr(Crew, "attend", kill_and_attend)
    done = conditioned(gp_bundle, lake_folder, tmp_path / "out", processes=2)
    assert len(killed) == done.n_deaths == 4
    assert contents(tmp_path / "out") == contents(one_process)
