from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import Stream


@pytest.fixture
def stream(tiny_bundle: Path) -> Any:
    with Stream.open(tiny_bundle) as opened:
        yield opened
