"""The module of WebAssembly that the tests of this folder share."""

from __future__ import annotations

import pytest

from tests.export.browser.built import sensors_module


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return sensors_module(tmp_path_factory)
