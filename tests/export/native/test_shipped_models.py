"""The shipped checkpoints as compiled C, in the sizes in which they are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.checks.laws import CHECKS, FAILED
from edgefold.export.checks.subjects import StreamSubject
from edgefold.runtime import Stream
from edgefold.train.checkpoints import load_model
from tests.native_builds import Native, stays_with_onnxruntime

CHECKPOINTS = Path(__file__).parents[3] / "checkpoints"
Z = 1e-4
"""Bound for sensors, whose normals are as narrow as 0.011 in z. float32 gives z to 1e-6, and so a
log density to 1e-4. Its least squares forget a 5000th with each row, and rounding as slowly: so
C and onnxruntime are compared from the same state, row by row."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(path.name for path in CHECKPOINTS.iterdir() if path.is_dir())
)
def test_a_shipped_model_as_compiled_c_keeps_the_contract_and_stays_with_onnxruntime(
    name: str, tmp_path: Path, native: Native
) -> None:
    model, run = load_model(CHECKPOINTS / name)
    bundle, told = tmp_path / "bundle", list[str]()
    export_bundle(model, run["task"], bundle, ExportConfig(parity_steps=300), told.append)
    assert not [line for line in told if "does not run in float64" in line]
    about = model.ordered, model.input_range, model.plausible_inputs
    with (
        Stream.open(bundle, "native", engine=native(bundle)) as compiled,
        Stream.open(bundle, "onnxruntime") as stream,
    ):
        one, other = StreamSubject(compiled, *about), StreamSubject(stream, *about)
        if name == "sensors":
            stays_with_onnxruntime(one, other, log_density=Z, most=Z, shared=tmp_path / "state.npz")
        else:
            stays_with_onnxruntime(one, other)
        verdicts = [check.verdict(StreamSubject(compiled, *about), 10_000) for check in CHECKS]
    assert [f"{row.name}: {row.detail}" for row in verdicts if row.verdict == FAILED] == []
