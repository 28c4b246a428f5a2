from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.copy_table import copy_task
from benchmarks.models.copy_task import measure, requirements
from edgefold.train import checkpoints
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.copy import CopyTask

LENGTH = 16


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An untrained tree of 8 leaves, with the history that a run keeps."""
    task = CopyTask(LENGTH)
    settings = {"n_inputs": task.n_inputs, **task.model_settings, "width": 16, "n_heads": 2}
    model = create_model("retreever", {**settings, "capacity": LENGTH // 2})
    folder = tmp_path / "tree"
    folder.mkdir()
    checkpoints.write_config(folder, model, task.describe(), {"steps_done": 0})
    checkpoints.save_tensors(folder / checkpoints.WEIGHTS, model.state_dict(), {})
    return folder


@pytest.mark.long
def test_a_run_is_asked_in_pytorch_and_through_its_bundle(run: Path) -> None:
    own = measure(run, 2, 3)
    assert own["scores"]["n_sequences"] == 64 and own["scores"]["tokens_read"] == 4
    assert own["same_answers"] == 1.0
    assert own["times"]["query"]["n"] == 3
    met = {required.what: required.met for required in requirements({"tree": own})}
    assert met == {
        "tree: right answers": False,  # it is untrained
        "tree: tokens read": False,  # 4 of 8 are 50 %
        "tree: answers as PyTorch's": True,
    }
    (table,) = copy_task({"n_streamed": 3, "runs": {"tree": own}})
    assert len(table.rows) == 1, "the published rows are of another length"
    assert np.char.find(table.rows[0][4], "50.0 %") == 0
