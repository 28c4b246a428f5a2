"""Which backend "auto" opens, and what it keeps of those that it tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import Stream
from edgefold.runtime.backends import onnxruntime_cpu, opening, registry
from edgefold.runtime.errors import BackendError, Remedy


def test_auto_keeps_the_remedy_of_every_backend_that_it_refused(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        @staticmethod
        def open(info: Any, *_: Any) -> None:
            raise BackendError(f"{info.name} is missing", Remedy(info.name, f"get {info.name}"))

    monkeypatch.setattr(onnxruntime_cpu, "Refusing", Refusing, raising=False)
    for name in ("first", "second"):
        info = replace(registry.info_of("onnxruntime"), name=name, place="onnxruntime_cpu:Refusing")
        monkeypatch.setitem(registry.BACKENDS, name, info)
    monkeypatch.setattr(opening, "AUTO", ("first", "second"))
    with pytest.raises(BackendError) as refused:
        Stream.open(tiny_bundle)
    assert [remedy.command for remedy in refused.value.remedies] == ["get first", "get second"]
    assert refused.value.remedy == refused.value.remedies[0]
