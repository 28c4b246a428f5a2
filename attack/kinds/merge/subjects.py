"""The forms in which a model's states are joined: PyTorch, a device's form, onnxruntime and C."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from attack.subjects import ROOT
from edgefold.export.checks.model_laws import TorchSubject
from edgefold.export.checks.subjects import Arrays, StreamSubject
from edgefold.export.native.generator import generate
from edgefold.export.native.toolchain.compilers import compile_library, find_compiler
from edgefold.runtime import Stream
from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.native.backend import NativeBackend
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError
from edgefold.train.models.registry import create_model

LATENTS = {"n_blocks": 2, "width": 16, "n_heads": 2, "n_latents": 8, "feedforward": 16}
SMALL: dict[str, dict[str, Any]] = {
    "cmanp": LATENTS,
    "cmanp-and": LATENTS,
    "perceiver-io": LATENTS,
    "cnp": {"width": 16},
    "np": {"width": 16},
    "convcnp": {"points_per_unit": 8, "channels": 4, "n_halvings": 2},
    f"{ROOT}/examples/rls_information.py:InformationRls": {"n_inputs": 3},
}
"""Settings of a small model of each kind whose states join, by the model's name."""
BUNDLE = "cmanp"
"""Subject of the attacks that is a bundle with a graph `merge`."""


class DoubleSubject(TorchSubject):
    """Runs a model in PyTorch in float64, in which rounding hides no fault of a merge."""

    def tensor(self, array: Array) -> torch.Tensor:
        return torch.tensor(array, dtype=torch.float64)

    def reset(self) -> None:
        super().reset()
        floats = {n: t.double() for n, t in self.current.items() if t.is_floating_point()}
        self.current |= floats

    def cache(self) -> Arrays:
        """Return what queries read of the state, by name."""
        with torch.no_grad():
            read = self.model.refresh(self.current)
        return {name: tensor.numpy().copy() for name, tensor in read.items()}


def in_double(name: str) -> DoubleSubject:
    """Return a model with random weights, in PyTorch's form and float64."""
    return DoubleSubject(_made(name).double())


def on_device(name: str) -> TorchSubject:
    """Return a model's form for a device, of two streams, in float32."""
    return TorchSubject(_made(name).for_device(2).eval())


def _made(name: str) -> Any:
    torch.manual_seed(0)
    return create_model(name, SMALL[name])


def as_bundle(subjects: Path) -> StreamSubject:
    """Return the bundle in onnxruntime."""
    return StreamSubject(Stream.open(subjects / BUNDLE, "onnxruntime"), ordered=False)


def in_c(subjects: Path, scratch: Path) -> StreamSubject | None:
    """Return the bundle as C that is compiled here; None without a compiler."""
    folder = scratch / f"c-{os.getpid()}"
    folder.mkdir()
    with suppress(BackendError):
        library = compile_library(generate(subjects / BUNDLE).files, find_compiler(), folder)
        manifest = load_manifest(subjects / BUNDLE)
        return StreamSubject(
            Stream(manifest, NativeBackend(manifest, library, {}), {}, False), ordered=False
        )
    return None
