from __future__ import annotations

import os
from pathlib import Path
from shutil import copytree

import onnx
import pytest
import torch

from edgefold.export.graphs.step_graphs import Sizes, StepGraphs
from edgefold.export.lowering import steps
from edgefold.export.lowering.cache import GraphCache, key_of
from edgefold.export.lowering.declare import StepDeclarer
from edgefold.export.lowering.trace import trace
from tests.export.lowering.small_models import Gru

SIZES = Sizes(chunk=4, targets=2, streams=1)


def model(seed: int = 0) -> Gru:
    torch.manual_seed(seed)
    return Gru().eval()


def key(made: Gru, sizes: Sizes = SIZES) -> str:
    declared = StepDeclarer(made, sizes).steps()
    return key_of(trace(made, declared), declared)


def as_bytes(made: StepGraphs) -> list[bytes]:
    return [graph.model.SerializeToString(deterministic=True) for graph in made.steps]


def test_a_key_tells_weights_and_widths_apart_and_nothing_else() -> None:
    first = key(model())
    assert key(model()) == first
    assert key(model(), Sizes(4, 3, 1)) != first
    assert key(model(), Sizes(4, 2, 2)) != first
    other = model()
    with torch.no_grad():
        next(other.head.parameters())[0, 0] += 1e-6
    assert key(other) != first


def test_a_key_tells_settings_apart_that_are_no_weights() -> None:
    other = model()
    other.head[1] = torch.nn.LeakyReLU(0.1)
    third = model()
    third.head[1] = torch.nn.LeakyReLU(0.2)
    assert len({key(model()), key(other), key(third)}) == 3


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A cache with the model's entry, and the graphs that it holds."""
    folder = tmp_path_factory.mktemp("filled")
    return folder, as_bytes(steps.lower(model(), SIZES, cache=GraphCache(folder)))


@pytest.mark.long
def test_the_second_time_nothing_is_translated(
    filled: tuple[Path, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, graphs = filled
    monkeypatch.delattr(steps, "translate")
    assert as_bytes(steps.lower(model(), SIZES, cache=GraphCache(folder))) == graphs


@pytest.mark.one_case
@pytest.mark.parametrize("damage", [b"", b"no archive", None])
def test_a_damaged_entry_is_made_again(
    filled: tuple[Path, list[bytes]], tmp_path: Path, damage: bytes | None
) -> None:
    folder, graphs = filled
    copytree(folder, tmp_path, dirs_exist_ok=True)
    (entry,) = tmp_path.iterdir()
    one_bit = bytearray(entry.read_bytes())
    one_bit[len(one_bit) // 2] ^= 1
    entry.write_bytes(one_bit if damage is None else damage)
    assert as_bytes(steps.lower(model(), SIZES, cache=GraphCache(tmp_path))) == graphs
    assert entry.read_bytes()[:2] == b"PK"


def graph(name: str, n_bytes: int) -> onnx.ModelProto:
    weight = onnx.helper.make_tensor(
        "w", onnx.TensorProto.UINT8, [n_bytes], bytes(n_bytes), raw=True
    )
    return onnx.helper.make_model(onnx.helper.make_graph([], name, [], [], [weight]))


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path, max_bytes=3000)
    for index, key in enumerate("abc"):
        cache.write(key, {"update": graph(key, 1000)})
        os.utime(tmp_path / f"{key}.zip", (index, index))
        if key == "b":
            assert cache.read("a") is not None  # now it was used last
    assert [cache.read(key) is not None for key in "abc"] == [True, False, True]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = GraphCache(tmp_path / "file" / "graphs")
    cache.write("a", {"update": graph("a", 10)})
    assert cache.read("a") is None


def test_the_folder_is_the_users_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFOLD_CACHE", "/some/folder")
    assert GraphCache().folder == Path("/some/folder/graphs")
    monkeypatch.delenv("EDGEFOLD_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert GraphCache().folder == Path("/home/someone/.cache/edgefold/graphs")
