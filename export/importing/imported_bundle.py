"""Write an ONNX file of any origin as a bundle, and compare the bundle with the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgefold.export.bundle import ExportConfig, ExportReport, finish, write_graphs
from edgefold.export.bundle_files import ExportSubject, new_folder
from edgefold.export.checks.parity import TOLERANCE, GoldenRecording
from edgefold.export.importing.onnx_import import Imported, Reference, import_onnx, record_reference
from edgefold.export.importing.onnx_interface import ImportConfig
from edgefold.export.precision.precisions import Cost
from edgefold.runtime.bundle.manifest import Scaling
from edgefold.runtime.checking.golden import Golden
from edgefold.runtime.hashing import sha256_of


def import_bundle(
    path: Path,
    out: Path,
    config: ImportConfig,
    n_steps: int = 1000,
    force: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> ExportReport:
    """Import an ONNX file, write it as a bundle, and compare the bundle with the file.

    Args:
        path: The ONNX file.
        out: Folder that becomes the bundle.
        config: Meaning of the file's inputs and outputs.
        n_steps: Number of steps of the golden stream, for which ONNX Runtime runs the file itself.
        force: Whether an older bundle at the same place is replaced.
        progress: Function that is called with one line of text at each stage.

    Raises:
        ExportError: The file cannot be imported, the bundle predicts something else, or something
            lies at `out`.
    """
    with new_folder(out, force) as folder:
        progress(f"importing {path}")
        imported = import_onnx(path, config, progress)
        progress(f"recording {n_steps} steps of the file itself in onnxruntime")
        recording = _recorded(record_reference(path, config, n_steps))
        subject = _subject(path, imported, recording.golden.x.shape[2])
        writer = write_graphs(folder, imported.graphs, subject, recording)
        progress("replaying them through the bundle")
        cost = Cost("float32", recording.compare(folder), {}, "", "")
        report = finish(writer, recording, cost, ExportConfig())
    return replace(report, path=out)


def _subject(path: Path, imported: Imported, n_inputs: int) -> ExportSubject:
    facts = {
        "name": path.stem,
        "summary": f"{path.name}, imported",
        "n_parameters": sum(
            int(np.prod(tensor.dims))
            for step in imported.graphs.steps
            for tensor in step.model.graph.initializer
        ),
        "settings": {"file": path.name, "sha256": sha256_of(path)},
    }
    plain = Scaling((0.0,) * n_inputs, (1.0,) * n_inputs)
    return ExportSubject(facts, {"name": "imported"}, imported.prediction, plain, Scaling((), ()))


def _recorded(reference: Reference) -> GoldenRecording:
    """Return a recording for checks, in which the imported file's own answers are the reference."""
    n_streams, n_steps = reference.x.shape[:2]
    moments = np.unique(np.geomspace(1, n_steps, 12).round().astype(int))
    nothing = np.zeros((n_streams, n_steps, 0))
    golden = Golden(
        x=reference.x.astype(float),
        y=nothing,
        targets=nothing[:, :1],
        n_condition=0,
        moments=moments,
        predictions={
            name: np.stack([array[:, moment - 1, None] for moment in moments])
            for name, array in reference.predictions.items()
        },
        tolerance=TOLERANCE,
    )
    return GoldenRecording(golden, golden.predictions)
