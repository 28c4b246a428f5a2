"""Bundles of every kind that the C around the graphs tells apart, each with its streams in C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime import load_manifest
from tests.made_once import made_once


@pytest.fixture(scope="session")
def bundle_of(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Bundles by the names of `KINDS`, exported when first asked for."""
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.models.registry import create_model
    from tests.export.lowering.small_models import Shelves
    from tests.export.test_all_models import TINY

    def made(kind: str) -> Path:
        if (bundles / kind).exists():
            return bundles / kind

        def make(folder: Path) -> None:
            n_streams = 3 if kind in ("shelves", "continual-nystrom") else 1
            config = ExportConfig(chunk=8, targets=3, streams=n_streams, parity_steps=32)
            torch.manual_seed(0)  # whichever test asks first
            model = Shelves() if kind == "shelves" else create_model(kind, TINY[kind])
            export_bundle(model.eval(), {"name": "untrained"}, folder / "bundle", config)

        return made_once(tmp_path_factory, f"native-{kind}", make) / "bundle"

    return made


@pytest.fixture(scope="session")
def stream_of(
    bundle_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Any]:
    """Streams in C of these bundles, whose graphs run in onnxruntime; new ones each time."""
    from tests.export.native.c_streams import CStream, compiled, stubbed_files

    folder, libraries = tmp_path_factory.mktemp("native"), {}

    def made(kind: str) -> CStream:
        path = bundle_of(kind)
        if kind not in libraries:
            libraries[kind] = compiled(stubbed_files(load_manifest(path)), folder / kind)
        stream = CStream(path, libraries[kind])
        stream.answer_with_onnxruntime()
        return stream

    return made
