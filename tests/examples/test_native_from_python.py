"""The example that uses a bundle's C by ctypes predicts what the runtime predicts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime import Stream
from examples.native.from_python import Model, predictions

pytest.importorskip("torch", reason="exporting needs the train extra")
SCRIPT = Path(__file__).parents[2] / "examples" / "native" / "from_python.py"


def test_the_script_predicts_what_the_runtime_does(tmp_path: Path) -> None:
    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.export.native.generator import generate
    from examples.kalman import Kalman
    from tests.export.native.c_streams import compiled

    bundle, y = tmp_path / "kalman", [3.0, 3.1, 2.9, 3.3, 3.2]
    config = ExportConfig(targets=1, parity_steps=128)
    export_bundle(Kalman().eval(), {"name": "untrained"}, bundle, config)
    compiled(generate(bundle).files, tmp_path)
    model = Model(str(tmp_path / "model.so"), "kalman")
    found = list(predictions(model, ([value] for value in y)))
    with Stream.open(bundle, "onnxruntime") as stream:
        for value, told in zip(y, found, strict=True):
            prediction = stream.query()
            expected = [prediction.mean.item(), prediction.std.item()]
            np.testing.assert_allclose(told, expected, rtol=1e-5)  # float32, other kernels
            stream.update(y=np.array([[value]]))

    with pytest.raises(RuntimeError, match="update returned 1"):  # EDGEFOLD_BAD_VALUE
        model.update([], float("nan"))


@pytest.mark.long
def test_a_model_of_several_targets_with_x_is_read_saved_and_loaded(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    from edgefold.export.native.generator import generate
    from tests.export.native.c_streams import compiled

    source = generate(tiny_bundle)
    compiled(source.files, tmp_path)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "model.so"), source.name]
    snapshot = tmp_path / "s.npz"
    points = [(-1.0, 0.1, 0.5), (0.0, 0.2, 0.25), (1.0, 0.3, -0.5)]
    words = [",".join(map(str, point)) for point in points]
    lines = []
    for part in (words[:2], words[2:]):  # the second goes on from the first one's snapshot
        run = [*command, "--snapshot", str(snapshot), *part]
        lines += subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()
    with Stream.open(tiny_bundle, "onnxruntime") as stream:
        assert stream.manifest.targets > 1
        for (*x, y), line in zip(points, lines, strict=True):
            prediction = stream.query(np.array([x]))
            expected = [prediction.mean.item(), prediction.std.item()]
            told = [float(number) for number in line.split(" +- ")]
            np.testing.assert_allclose(told, expected, atol=2e-3)  # three digits are printed
            stream.update(np.array([x]), np.array([[y]]))
        stream.restore(snapshot)
        assert stream.n_points == len(points)
    done = subprocess.run([*command, "0.5"], capture_output=True, text=True)
    assert done.returncode == 1 and "2 columns of x" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["lib.so", "name"], ["no.so", "name", "1.0"]])
def test_wrong_arguments_give_a_usage_line(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode == 1
    assert "usage: " in done.stderr and "Traceback" not in done.stderr
