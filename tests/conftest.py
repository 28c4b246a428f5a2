"""Small untrained bundles that many tests share."""

from __future__ import annotations

import gc
import inspect
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import settings

from tests.made_once import made_each
from tests.native_builds import compiled_sensors as compiled_sensors
from tests.native_builds import native as native
from tests.near import chosen_by, read_choices
from tests.parts import everyday, first_cases, part_of
from tests.quick import is_quick

gc.set_threshold(50_000, 20, 50)  # by default, collections take a twentieth of all tests
settings.register_profile("no-deadline", deadline=None)  # an example may meet a busy machine
settings.load_profile("no-deadline")

try:
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig

    torch.set_num_threads(1)  # these models are too small for two, and runners are shared
except ImportError:  # the base install on Python 3.10: EDGEFOLD_TEST_BUNDLES names ready bundles
    torch = None  # type: ignore[assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everyday",
        action="store_true",
        help="leave out tests marked slow, long or product, and all but the first case of those "
        "marked one_case: what `make test` runs",
    )
    parser.addoption(
        "--rest",
        action="store_true",
        help="run what --everyday leaves out, but for what is marked slow",
    )
    parser.addoption(
        "--part",
        metavar="K/N",
        help="run the K-th of N parts (from 0) of what is selected, chosen by the tests' names",
    )
    parser.addoption(
        "--one-case",
        action="store_true",
        help="run the first case of each test, and with --part that part of the others; a law of "
        "the contract (tests/contract.py) counts as a test",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out tests that start a process, export a bundle or compile",
    )
    parser.addoption(
        "--near",
        metavar="FILE",
        type=Path,
        help="keep the tests that scripts/test_near.py chose and wrote to this file",
    )


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that --everyday or --rest choose, and of these what the others choose."""
    if config.getoption("--everyday") or config.getoption("--rest"):
        marks = [{mark.name for mark in item.iter_markers()} for item in items]
        chosen = everyday([function_and_law(item) for item in items], marks)
        if config.getoption("--rest"):
            chosen = {n for n in range(len(items)) if "slow" not in marks[n]} - chosen
        keep(config, items, chosen)
    if config.getoption("--near"):
        names = [item.nodeid for item in items]
        tests = [function_and_law(item) for item in items]
        choices = read_choices(config.getoption("--near"))
        keep(config, items, chosen_by(choices, names, tests, lambda n: quick(items[n])))
    if config.getoption("--quick"):
        keep(config, items, {n for n, item in enumerate(items) if quick(item)})
    part, one_case = config.getoption("--part"), config.getoption("--one-case")
    if not part and not one_case:
        return
    chosen = part_of([part_name(item) for item in items], str(part)) if part else set[int]()
    if one_case:
        chosen |= first_cases([function_and_law(item) for item in items])
    keep(config, items, chosen)


def keep(config: pytest.Config, items: list[pytest.Item], chosen: set[int]) -> None:
    """Deselect all tests but those with the chosen indices."""
    left_out = [item for index, item in enumerate(items) if index not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for index, item in enumerate(items) if index in chosen]


def quick(item: pytest.Item) -> bool:
    """Whether a test and its fixtures start no process, export nothing and compile nothing."""
    if not isinstance(item, pytest.Function):
        return True
    fixtures = item._fixtureinfo.name2fixturedefs
    functions = {name: inspect.unwrap(made[-1].func) for name, made in fixtures.items()}
    return is_quick(
        inspect.unwrap(item.function),
        {name: made for name, made in functions.items() if isinstance(made, FunctionType)},
    )


def part_name(item: pytest.Item) -> str:
    """Return the name by which --part chooses a test: its own, or that of the marker `together`."""
    together = item.get_closest_marker("together")
    return str(together.args[0]) if together else item.nodeid


def function_and_law(item: pytest.Item) -> tuple[str, str]:
    """Name what an item is a case of: its function, and the law of the contract if it has one."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return item.nodeid.partition("[")[0], getattr(parameters.get("check"), "name", "")


def pytest_configure() -> None:
    """Let SIGINT interrupt here and in what is started: a shell's background job has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what was imported out of the garbage collector's walks: a seventh of an export."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Give each test the same random weights, whatever ran before it on its worker."""
    if torch is not None:
        torch.manual_seed(0)


def tiny_config(n_inputs: int = 2, n_outputs: int = 1) -> CmanpConfig:
    """The smallest model that still has two blocks and two heads."""
    return CmanpConfig(
        n_inputs=n_inputs,
        n_outputs=n_outputs,
        n_blocks=2,
        width=32,
        n_heads=2,
        n_latents=16,
        feedforward=48,
    )


def tiny_model(n_inputs: int = 2, n_outputs: int = 1, seed: int = 0) -> Cmanp:
    """An untrained tiny model; the same seed gives the same weights."""
    torch.manual_seed(seed)
    return Cmanp(tiny_config(n_inputs, n_outputs)).eval()


def shared_bundles() -> dict[str, Callable[[Path], object]]:
    """Return by name what writes each of the bundles that tests of the runtime use."""
    untrained: dict[str, object] = {"name": "untrained"}
    task = {**untrained, "x_shift": [10.0], "x_scale": [3.0], "y_shift": [400.0], "y_scale": [20.0]}
    config = ExportConfig(chunk=8, targets=4, parity_steps=300)
    float16, int8 = (replace(config, precision=name) for name in ("float16", "int8"))
    streams = ExportConfig(chunk=8, targets=4, streams=3, parity_steps=60)
    return {
        "tiny": lambda out: export_bundle(tiny_model(), untrained, out, config),
        "foreign": lambda out: export_bundle(tiny_model(seed=1), untrained, out, config),
        "scaled": lambda out: export_bundle(tiny_model(1), task, out, config),
        "streams": lambda out: export_bundle(tiny_model(n_outputs=2), untrained, out, streams),
        "tiny-float16": lambda out: export_bundle(tiny_model(), untrained, out, float16),
        "tiny-int8": lambda out: export_bundle(tiny_model(), untrained, out, int8),
    }


def make_bundles(folder: Path) -> None:
    """Write every bundle that tests of the runtime use."""
    for name, make in shared_bundles().items():
        make(folder / name)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundles tiny, foreign, scaled (one input) and streams (three).

    tiny-float16 and tiny-int8 are tiny in other precisions.
    """
    ready = os.environ.get("EDGEFOLD_TEST_BUNDLES")
    if ready:
        return Path(ready)
    return made_each(tmp_path_factory, "bundles", shared_bundles())


@pytest.fixture
def tiny_bundle(bundles: Path) -> Path:
    """Two inputs, one output, one stream; chunk 8, 4 targets. Read only: copy it to change it."""
    return bundles / "tiny"
