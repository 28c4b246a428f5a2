from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.runtime import Stream
from edgefold.runtime.errors import MemoryLimitError


def test_a_limit_below_the_plan_refuses_before_a_graph_is_opened(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "edgefold.runtime.stream.stream.open_backend", None
    )  # calling it would raise
    with pytest.raises(MemoryLimitError, match=r"limit is 10\.0 MB: process .* weights .* state"):
        Stream.open(tiny_bundle, memory_limit=10_000_000)


def test_a_limit_above_the_plan_opens(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle, memory_limit=64_000_000_000) as stream:
        stream.update([[0.1, 0.2]], [[0.3]])
