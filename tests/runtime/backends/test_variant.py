from __future__ import annotations

import sys
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.runtime.backends.tensorrt import variant as tensorrt_variant
from edgefold.runtime.backends.tensorrt.variant import (
    KEPT_MESSAGES,
    VARIANTS,
    Variant,
    find_variant,
    installed,
    make_logger,
)
from edgefold.runtime.errors import BackendError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, the only place where TensorRT may be found."""
    for name in VARIANTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    real = find_spec

    def find_here(name: str) -> Any:
        return real(name) if (tmp_path / f"{name}.py").exists() else None

    monkeypatch.setattr(tensorrt_variant, "find_spec", find_here)
    return tmp_path


def install(machine: Path, name: str, text: str) -> None:
    (machine / f"{name}.py").write_text(text)


@pytest.fixture(autouse=True)
def forget() -> Any:
    """What a test imported from its folder must not be another's TensorRT."""
    before = {name: sys.modules.get(name) for name in VARIANTS}
    yield
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


def test_a_machine_without_tensorrt_is_told_what_to_install_on_each_kind(machine: Path) -> None:
    assert installed() is None
    with pytest.raises(BackendError) as refused:
        find_variant()
    for words in (
        "sudo apt install nvidia-jetpack",
        "--system-site-packages",
        "pip install tensorrt-cu13",
        "pip install tensorrt-rtx",
    ):
        assert words in str(refused.value)
    with pytest.raises(BackendError, match="tensorrt_rtx is not installed"):
        find_variant("tensorrt_rtx")


def test_tensorrt_is_preferred_and_either_can_be_named(machine: Path) -> None:
    install(machine, "tensorrt_rtx", "__version__ = '1.7.1.116'")
    assert installed() == "tensorrt_rtx"
    assert find_variant().title == "TensorRT-RTX 1.7.1.116"
    install(machine, "tensorrt", "__version__ = '10.3.0'")
    assert installed() == "tensorrt"
    assert find_variant().title == "TensorRT 10.3.0"
    assert find_variant("tensorrt_rtx").name == "tensorrt_rtx"


def test_asking_what_is_installed_imports_nothing(machine: Path) -> None:
    install(machine, "tensorrt", "raise RuntimeError('loaded')")
    assert installed() == "tensorrt"
    assert "tensorrt" not in sys.modules


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("tensorrt", "8.5.2.2"),
        ("tensorrt", "10.2.0.post1"),
        ("tensorrt", "strange"),
        ("tensorrt_rtx", "1.1.1.26"),
    ],
)
def test_an_old_tensorrt_is_refused_with_the_oldest_that_will_do(
    machine: Path, name: str, version: str
) -> None:
    install(machine, name, f"__version__ = {version!r}")
    with pytest.raises(BackendError, match=r"too old: Edgefold needs .* JetPack 5 .* onnxruntime"):
        find_variant()


@pytest.mark.parametrize("version", ["10.3.0", "10.3.0.26", "10.16.1.11", "11.4.0.106"])
def test_every_tensorrt_from_jetpack_6_1_on_is_taken(machine: Path, version: str) -> None:
    install(machine, "tensorrt", f"__version__ = {version!r}")
    assert find_variant().version == version


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('libnvinfer.so.10: cannot open shared object file')",
        "raise OSError('libcudart.so.13: cannot open shared object file')",
        "pass  # no version: a namespace left behind by an uninstall",
    ],
)
def test_a_tensorrt_that_does_not_load_says_why(machine: Path, text: str) -> None:
    install(machine, "tensorrt", text)
    with pytest.raises(BackendError, match=r"tensorrt is installed but does not load \(\w+Error: "):
        find_variant()


def test_an_unknown_variant_is_refused(machine: Path) -> None:
    with pytest.raises(BackendError, match="choose one of: tensorrt, tensorrt_rtx"):
        find_variant("tensorflow")


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3


def test_a_logger_keeps_the_last_warnings_and_errors_on_one_line_each() -> None:
    class ILogger:
        Severity = Severity

    logger = make_logger(Variant("tensorrt", SimpleNamespace(ILogger=ILogger), "10.3.0"))
    logger.log(Severity.INFO, "chatter")
    logger.log(Severity.WARNING, "slow")
    logger.log(Severity.INTERNAL_ERROR, "broken\n  inside")
    assert list(logger.warnings) == ["slow"]
    assert list(logger.errors) == ["broken inside"]
    for number in range(3 * KEPT_MESSAGES):
        logger.log(Severity.ERROR, str(number))
    assert len(logger.errors) == KEPT_MESSAGES
    assert logger.errors[-1] == str(3 * KEPT_MESSAGES - 1)
