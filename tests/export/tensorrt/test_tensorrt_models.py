"""NVIDIA's real parser and builder take every graph of every model; nothing is executed."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.lowering.steps import lower
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.builder import build_plan
from edgefold.runtime.backends.tensorrt.variant import find_variant
from edgefold.runtime.errors import BackendError
from edgefold.train.models.registry import MODELS
from tests.export.test_all_models import OVERWRITING, tiny

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed (x86-64 only)")
pytestmark = pytest.mark.slow

STOPPED_BY: dict[str, str] = {}
"""Models with a graph that does not build, and the operator that stops it."""
CASES = [(name, "") for name in MODELS] + [(name, "reservoir") for name in OVERWRITING]


@pytest.mark.parametrize(("name", "when_full"), CASES)
def test_every_graph_of_a_model_builds(name: str, when_full: str, tmp_path: Path) -> None:
    for graph in lower(tiny(name, when_full), Sizes(4, 3, 1)).steps:
        path = tmp_path / f"{graph.name}.onnx"
        onnx.save(graph.model, path)
        options = EngineOptions(compute_capabilities=("8.6",))
        if name in STOPPED_BY:
            with pytest.raises(BackendError, match=STOPPED_BY[name]):
                build_plan(find_variant("tensorrt_rtx"), path, options)
        else:
            assert build_plan(find_variant("tensorrt_rtx"), path, options).plan
