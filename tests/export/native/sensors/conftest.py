"""The shipped model of sensors, compiled once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.runtime.backends.base import EngineOptions
from tests.native_builds import QUICK, STRICT, build_sensors, compiler_or_skip


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EngineOptions]:
    """The library with the engine, and what opens it as a backend of Python's `Sensors`."""
    folder = build_sensors(tmp_path_factory, compiler_or_skip(flags=(*QUICK, *STRICT)))
    return folder / "work" / "edgefold_sensors.so", EngineOptions(folder / "cache")
