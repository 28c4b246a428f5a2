"""The choice of `make test-near`: what a change in a file can break."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.export.test_all_models import TINY
from tests.near import Choice, chosen_by, read_choices, write_choices

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def near() -> ModuleType:
    spec = importlib.util.spec_from_file_location("near", ROOT / "scripts/test_near.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["near"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def graph(near: ModuleType) -> object:
    return near.Graph()


def choices_for(near: ModuleType, graph: object, name: str) -> list[Choice]:
    path, models = near.resolve(name, graph)
    chosen: list[Choice] = near.choose(path, graph, models)
    return chosen


def cases_of_all_models(near: ModuleType, graph: object, name: str) -> tuple[str, ...]:
    """Names of cases of the suite of all models that are chosen for a file."""
    (choice,) = (each for each in choices_for(near, graph, name) if each.cases)
    assert choice.paths == ("tests/export/test_all_models.py",)
    return choice.cases


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("runtime/stream/stream.py", "tests/runtime/stream/test_stream.py"),
        ("devices/power/meters/rapl.py", "tests/devices/power/test_meters.py"),
        ("cli/commands/sign.py", "tests/cli/test_sign.py"),
        ("cli/commands/import_.py", "tests/cli/test_verify_import.py"),
        ("export/native/rules/products.py", "tests/export/native/test_rules.py"),
        ("tests/runtime/test_npz.py", "tests/runtime/test_npz.py"),
        ("tests/pairwise.py", "tests/test_pairwise.py"),
        ("docs/training.md", "tests/test_readme.py"),
        ("devices/boards/raspberry-pi-5.json", "tests/devices/boards"),
    ],
)
def test_a_file_has_its_tests(name: str, test: str, near: ModuleType, graph: object) -> None:
    assert test in [path for choice in choices_for(near, graph, name) for path in choice.paths]


def test_all_cases_of_a_mirror_run(near: ModuleType, graph: object) -> None:
    choices = choices_for(near, graph, "export/native/rules/products.py")
    rules = [each for each in choices if "tests/export/native/test_rules.py" in each.paths]
    assert any(not each.one_case and not each.quick for each in rules)


@pytest.mark.parametrize("name", ["cnp", "cnp.py", "train/models/neural_processes/grid.py"])
def test_a_model_s_file_runs_its_cases_of_the_suite_of_all_models(
    name: str, near: ModuleType, graph: object
) -> None:
    cases = cases_of_all_models(near, graph, name)
    assert ("[cnp]" in cases) == (name != "train/models/neural_processes/grid.py")
    assert "[convcnp]" not in cases


def test_a_layer_runs_cases_of_models_that_need_it(near: ModuleType, graph: object) -> None:
    cases = cases_of_all_models(near, graph, "train/layers/tree_attention.py")
    assert "[retreever]" in cases


def test_every_model_is_resolved_by_its_name(near: ModuleType, graph: object) -> None:
    for name in near.registered():
        path, models = near.resolve(name, graph)
        assert path.is_file() and models == [name] and name in TINY


@pytest.mark.parametrize(
    "name", ["runtime/stream/stream.py", "runtime/bundle/manifest.py", "train/contract.py"]
)
def test_a_core_file_runs_quick_tests(name: str, near: ModuleType, graph: object) -> None:
    assert any(choice.quick for choice in choices_for(near, graph, name))


def test_choices_keep_what_each_of_them_asks_for(tmp_path: Path) -> None:
    choices = [
        Choice(("tests/a",), "a folder", quick=True, one_case=True),
        Choice(("tests/b.py",), "a file"),
        Choice(("tests/c.py",), "a model's cases", cases=("[cnp]",)),
    ]
    names = [
        *("tests/a/x.py::slow", "tests/a/x.py::t[0]", "tests/a/x.py::t[1]"),
        *("tests/ab.py::t", "tests/b.py::t[0]", "tests/b.py::t[1]"),
        *("tests/c.py::t[cnp]", "tests/c.py::t[acnp]"),
    ]
    tests = [name.partition("[")[0] for name in names]
    read = read_choices(write_choices(choices, tmp_path / "choices.json"))
    assert read == choices
    assert chosen_by(read, names, tests, lambda n: n != 0) == {1, 4, 5, 6}


def test_every_file_of_the_product_has_a_choice(near: ModuleType, graph: object) -> None:
    without = []
    for path in near.Graph().product.values():
        try:
            assert near.choose(path, graph)
        except near.UnknownFileError:
            without.append(path.relative_to(ROOT))
    assert not [path for path in without if path.name != "__init__.py"]


@pytest.mark.parametrize(
    "name", ["no_such.py", "runtime/no_such.py", "no-such-model", "/etc/hosts"]
)
def test_an_unknown_file_is_refused(name: str, near: ModuleType, graph: object) -> None:
    with pytest.raises(near.UnknownFileError):
        near.resolve(name, graph)
