"""Keep finished graphs on disk, so that the second export of the same model is quick.

Translation to ONNX takes most of an export's time. Graphs are found by a key: a hash of everything
that they depend on, which is the traced program with its constants, the sources of the lowering,
and the versions of the packages that translate.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from edgefold.export.lowering.trace import StepFunction
from edgefold.runtime.backends.code_cache import NO_HOME, default_folder
from edgefold.runtime.errors import ExportError

PACKAGES = ("torch", "onnx", "onnxscript", "onnx_ir")
MAX_BYTES = 512 << 20
"""Largest number of bytes of all entries together; those unused for longest are removed first."""


def key_of(program: torch.export.ExportedProgram, steps: Sequence[StepFunction]) -> str:
    """Return the key of a program's graphs: a hash of everything that they depend on, in hex."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        digest.update(f"{package} {importlib.metadata.version(package)};".encode())
    here = Path(__file__).parent
    for source in sorted([*here.glob("*.py"), *(here.parent / "graphs").glob("*.py")]):
        digest.update(source.read_bytes())
    digest.update(repr([(s.name, s.step, s.width, s.inputs, s.outputs) for s in steps]).encode())
    digest.update(repr(program.graph_signature).encode())
    for node in program.graph.nodes:
        value = node.meta.get("val")
        shape = (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value
        digest.update(f"{node.format_node()} {shape}\n".encode())
    for name, module in program.graph_module.named_children():
        digest.update(f"{name} {getattr(module, 'code', '')}".encode())
    for name, tensor in sorted({**program.state_dict, **program.constants}.items()):
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(np.ascontiguousarray(flat.view(torch.uint8).numpy()).tobytes())
    return digest.hexdigest()


class GraphCache:
    """Keeps graphs in a folder, one entry for each key; a damaged entry counts as missing."""

    def __init__(self, folder: Path | None = None, max_bytes: int = MAX_BYTES):
        root = folder or default_folder(os.environ)
        if root is None:
            raise ExportError(f"no graph can be kept: {NO_HOME}.")
        self.folder = folder or root / "graphs"
        self.max_bytes = max_bytes

    def read(self, key: str) -> dict[str, onnx.ModelProto] | None:
        """Return the graphs of a key by step; None if they are missing or damaged."""
        path = self.folder / f"{key}.zip"
        try:
            with zipfile.ZipFile(path) as archive:  # reading compares each file's checksum
                names = archive.namelist()
                graphs = {name: onnx.load_model_from_string(archive.read(name)) for name in names}
            path.touch()
        except (OSError, ValueError, zipfile.BadZipFile, DecodeError):
            return None
        return graphs

    def write(self, key: str, graphs: Mapping[str, onnx.ModelProto]) -> None:
        """Write the graphs of a key, if the disk allows it; remove old entries over `max_bytes`."""
        temporary = self.folder / f"{key}.{os.getpid()}.tmp"
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with zipfile.ZipFile(temporary, "w") as archive:
                    for name, graph in graphs.items():
                        archive.writestr(name, graph.SerializeToString(deterministic=True))
                temporary.replace(self.folder / f"{key}.zip")
            finally:
                temporary.unlink(missing_ok=True)
            self._trim()

    def _trim(self) -> None:
        entries = sorted(self.folder.glob("*.zip"), key=lambda path: -path.stat().st_mtime)
        total = 0
        for path in entries:
            total += path.stat().st_size
            if total > self.max_bytes:
                path.unlink(missing_ok=True)
