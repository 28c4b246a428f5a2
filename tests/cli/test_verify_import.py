"""`edgefold verify` and `edgefold import`, as a user types them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.runtime import Stream
from edgefold.runtime.checking.golden import check_bundle

pytest.importorskip("torch", reason="verify and import need the train extra")

ROOT = Path(__file__).parents[2]

LEAKY = """
import torch
from edgefold.train import StreamingModel


class Leaky(StreamingModel):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def initial_state(self, n_streams=1):
        return {"h": torch.zeros(n_streams, 1)}

    def update(self, state, x, y):
        self.seen += 1
        return {"h": 0.9 * state["h"] + y}

    def query(self, cache, x):
        mean = cache["h"][:, None].expand(-1, x.shape[1], -1)
        return {"mean": mean, "std": torch.ones_like(mean)}
"""


def test_a_sound_model_passes_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    model = f"{ROOT}/examples/kalman.py:Kalman"
    assert main(["verify", model, "--steps", "150"]) == 0
    out = capsys.readouterr().out
    assert "FAILED" not in out
    assert "\nas C      `edgefold build` covers every operator\n" in out
    assert {line.split()[0] for line in out.splitlines() if line.startswith("  ")} == {
        "passed",
        "skipped",
    }


STRETCHED = """
import torch
from edgefold.train import StreamingModel


class Stretched(StreamingModel):
    def initial_state(self, n_streams=1):
        return {"h": torch.zeros(n_streams, 3)}

    def update(self, state, x, y):
        return {"h": 0.9 * state["h"] + y}

    def query(self, cache, x):
        h = torch.nn.functional.interpolate(cache["h"][:, None], scale_factor=2)
        mixed = torch.einsum("bct,bdt->bcd", h, h).mean((1, 2))
        mean = mixed[:, None, None].expand(-1, x.shape[1], 1)
        return {"mean": mean, "std": torch.ones_like(mean)}
"""


def test_verify_names_each_operator_that_is_not_covered_and_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stretched.py").write_text(STRETCHED)
    assert main(["verify", f"{tmp_path}/stretched.py:Stretched", "--steps", "100"]) == 0
    out = capsys.readouterr().out
    lines = out[out.index("as C") :].splitlines()
    assert lines[0].startswith("as C      `edgefold build` refuses it: Resize of node ")
    assert " in query" in lines[0] and "torch.matmul" in out
    assert lines[1].startswith("            Instead of interpolate")
    assert lines[2].startswith("          Einsum of node")
    assert lines[4].startswith("          Run the bundle on onnxruntime")


def test_a_model_with_hidden_state_fails_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaky.py").write_text(LEAKY)
    assert main(["verify", f"{tmp_path}/leaky.py:Leaky", "--steps", "100"]) == ExitCode.WRONG_RESULT
    out = capsys.readouterr().out
    line = LEAKY.splitlines().index("        self.seen += 1") + 1
    assert f"leaky.py:{line}" in out


@pytest.fixture
def average(tmp_path: Path) -> Path:
    """A moving average with its state as an input, of a batch of any size."""
    decay = numpy_helper.from_array(np.array(0.75, np.float32), "decay")
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["level", "decay"], ["kept"]),
            helper.make_node("Add", ["kept", "input"], ["levelN"]),
            helper.make_node("Tanh", ["levelN"], ["output"]),
        ],
        "average",
        [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("level", TensorProto.FLOAT, ["batch", 3]),
        ],
        [
            helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("levelN", TensorProto.FLOAT, ["batch", 3]),
        ],
        [decay],
    )
    path = tmp_path / "average.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_an_onnx_file_becomes_a_bundle_that_answers_like_it(average: Path, tmp_path: Path) -> None:
    out = tmp_path / "b"
    command = ["import", str(average), "--state", "level=levelN", "--input", "input:1x3"]
    assert main([*command, "--out", str(out), "--parity-steps", "128"]) == 0
    assert check_bundle(out).passed
    level = np.zeros(3)
    with Stream.open(out) as stream:
        for row in np.random.default_rng(0).normal(size=(20, 3)):
            level = 0.75 * level + row
            # float32 sums of twenty values
            assert stream.step(row).output == pytest.approx(np.tanh(level)[None], abs=1e-6)
    assert main([*command, "--out", str(out)]) == 1  # it is there already
    assert main([*command, "--out", str(out), "--force", "--parity-steps", "128"]) == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--state", "level=nothing"], 1),
        (["--state", "level"], 2),
        (["--input", "input"], 2),
        (["--input", "input:0x3"], 2),
    ],
)
def test_what_cannot_be_imported_leaves_nothing(
    average: Path, tmp_path: Path, options: list[str], code: int
) -> None:
    command = ["import", str(average), *options, "--out", str(tmp_path / "b")]
    if code == 2:
        with pytest.raises(SystemExit, match="2"):
            main(command)
    else:
        assert main(command) == code
    assert not (tmp_path / "b").exists()
