"""The example that uses a bundle's C by ctypes predicts what the runtime predicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime import Stream
from examples.native.from_python import predictions

pytest.importorskip("torch", reason="exporting needs the train extra")


def test_the_script_predicts_what_the_runtime_does(tmp_path: Path) -> None:
    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.export.native.generator import generate
    from examples.kalman import Kalman
    from tests.export.native.c_streams import compiled

    bundle, y = tmp_path / "kalman", [3.0, 3.1, 2.9, 3.3, 3.2]
    config = ExportConfig(targets=1, parity_steps=128)
    export_bundle(Kalman().eval(), {"name": "untrained"}, bundle, config)
    compiled(generate(bundle).files, tmp_path)
    found = list(predictions(str(tmp_path / "model.so"), "kalman", y))
    with Stream.open(bundle, "onnxruntime") as stream:
        for value, told in zip(y, found, strict=True):
            prediction = stream.query()
            expected = [prediction.mean.item(), prediction.std.item()]
            np.testing.assert_allclose(told, expected, rtol=1e-5)  # float32, other kernels
            stream.update(y=np.array([[value]]))

    with pytest.raises(RuntimeError, match="update returned 1"):  # EDGEFOLD_BAD_VALUE
        list(predictions(str(tmp_path / "model.so"), "kalman", [float("nan")]))
