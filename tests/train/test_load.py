from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from edgefold.runtime.errors import CheckpointError, ModelError
from edgefold.train.contract import StreamingModel
from edgefold.train.load import load_class, load_registered, load_weights, parse_settings

MODEL = """
from dataclasses import dataclass
from beside import WIDTH

@dataclass
class Settings:
    width: int = WIDTH

class Mine:
    settings = Settings()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 7\n")
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


def test_a_class_is_loaded_from_its_file_with_what_lies_beside_it(folder: Path) -> None:
    mine = load_class(f"{folder}/mine.py:Mine")
    assert mine.settings.width == 7
    assert load_class(f"{folder}/mine.py:Mine") is mine


def test_a_changed_file_is_loaded_again_and_two_files_of_one_name_do_not_meet(
    folder: Path,
) -> None:
    mine = load_class(f"{folder}/mine.py:Mine")
    (folder / "mine.py").write_text("class Mine:\n    changed = True\n")
    assert load_class(f"{folder}/mine.py:Mine").changed
    other = folder / "other"
    other.mkdir()
    (other / "mine.py").write_text("class Mine:\n    changed = True\n")
    assert load_class(f"{other}/mine.py:Mine") is not load_class(f"{folder}/mine.py:Mine")
    assert mine.settings.width == 7


def test_a_class_is_loaded_from_an_installed_module() -> None:
    assert load_class("edgefold.train.contract:StreamingModel").__name__ == "StreamingModel"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("mine.py", "write path/to/file.py:Class"),
        ("mine.py:not a name", "write path/to/file.py:Class"),
        ("missing.py:Mine", "is not a file"),
        ("no_such_module.inner:Mine", "no module no_such_module"),
        ("{folder}/mine.py:Yours", "it has Settings, Mine"),
        ("{folder}/wrong.py:Mine", "wrong.py:3: SyntaxError"),
        ("{folder}/raises.py:Mine", "raises.py:2: ZeroDivisionError"),
        ("{folder}/imports.py:Mine", "imports.py:1: ModuleNotFoundError"),
        ("{folder}/leaves.py:Mine", "leaves.py:3: SystemExit"),
    ],
)
def test_what_does_not_load_is_told_with_its_line(folder: Path, spec: str, told: str) -> None:
    (folder / "wrong.py").write_text("\n\nclass Mine(:\n")
    (folder / "raises.py").write_text("\n1 / 0\n")
    (folder / "leaves.py").write_text("import sys\n\nsys.exit(0)\n")
    (folder / "imports.py").write_text("import no_such_module_at_all\n")
    with pytest.raises(ModelError, match=told):
        load_class(spec.format(folder=folder))


def test_settings_are_json_or_words() -> None:
    found = parse_settings(["width=128", "rates=[1, 0.5]", "how=ring", "on=true", "name=a=b"])
    assert found == {"width": 128, "rates": [1, 0.5], "how": "ring", "on": True, "name": "a=b"}
    with pytest.raises(ModelError, match="name=value"):
        parse_settings(["width"])


def test_weights_that_fit_are_taken_over(tmp_path: Path) -> None:
    one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    safetensors.torch.save_file(one.state_dict(), tmp_path / "w.safetensors")
    load_weights(other, tmp_path / "w.safetensors")
    assert torch.equal(one.weight, other.weight)


def test_weights_of_another_model_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(2, 4), "scale": torch.zeros(1)}, path)
    model = torch.nn.Linear(3, 2)
    before = model.weight.clone()
    for told in ("it lacks bias", "it has besides scale", r"weight \(2, 4\) for \(2, 3\)"):
        with pytest.raises(CheckpointError, match=told):
            load_weights(model, path)
    assert torch.equal(model.weight, before)
    path.write_bytes(b"not weights")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load_weights(model, path)
    with pytest.raises(CheckpointError, match="no file"):
        load_weights(model, tmp_path / "missing.safetensors")


def test_a_class_that_is_no_model_learns_how_to_become_one(folder: Path) -> None:
    with pytest.raises(ModelError) as refused:
        load_registered("model", f"{folder}/mine.py:Mine", {}, StreamingModel)
    assert "from edgefold.train import StreamingModel" in str(refused.value)
    assert "docs/your-own-model.md" in str(refused.value)
