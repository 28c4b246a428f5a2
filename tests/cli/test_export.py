from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.runtime.bundle.manifest_file import load_manifest

torch = pytest.importorskip("torch", reason="export needs the train extra")

SMALL = ["cmanp", "--preset", "small", "--chunk", "8", "--parity-steps", "60"]


def test_an_untrained_preset_shows_what_a_size_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b"
    assert main(["export", *SMALL, "--set", "n_inputs=3", "--streams", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "memory plan" in printed.out
    assert "graphs to float64" in printed.out
    assert "recording a golden stream" in printed.err
    manifest = load_manifest(out)
    assert f"hash {manifest.bundle_hash}\n" in printed.out
    assert (manifest.n_inputs, manifest.n_streams, manifest.chunk) == (3, 2, 8)
    assert main(["check", str(out)]) == 0


@pytest.mark.long
def test_a_bundle_that_is_exported_again_resumes_the_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, wider = (str(tmp_path / name) for name in ("first", "second", "wider"))
    assert main(["export", *SMALL, "--out", first]) == 0
    assert main(["export", *SMALL, "--out", second, "--resumes", first]) == 0
    assert load_manifest(second).resumes == (load_manifest(first).bundle_hash,)
    assert main(["check", second]) == 0
    capsys.readouterr()
    assert main(["export", *SMALL, "--streams", "2", "--out", wider, "--resumes", first]) == 1
    assert "its streams differs" in capsys.readouterr().err
    assert not Path(wider).exists()


@pytest.mark.long
def test_a_narrow_precision_tells_what_it_was_weighed_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b"
    assert main(["export", *SMALL, "--precision", "int8", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "int8: `edgefold check` allows" in printed
    assert "ranges from 4 streams of smooth functions" in printed
    assert load_manifest(out).precision["name"] == "int8"
    assert main(["check", str(out)]) == 0


@pytest.mark.long
def test_a_series_is_weighed_by_the_file_that_is_named_or_by_made_up_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(tmp_path)  # the run's file is not here
    monkeypatch.setattr("edgefold.export.precision.accuracy_loss.FEWEST", 5)
    monkeypatch.setattr("edgefold.export.precision.accuracy_loss.MOST", 5)
    command = ["export", str(root / "checkpoints" / "series-co2"), "--precision", "float16"]
    command += ["--parity-steps", "128", "--out", "b"]
    assert main(command) == 0
    assert "for want of the series" in capsys.readouterr().out
    command.append("--force")
    assert main([*command, "--csv", str(root / "data" / "co2_weekly.csv")]) == 0
    assert "held_out" in capsys.readouterr().out
    assert main([*command, "--csv", "no-such.csv"]) == 1
    assert "no-such.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such-run", "--out", "b"], 1, "no model is called"),
        (["cmanp", "--set", "wide=1", "--out", "b"], 1, "no setting 'wide'"),
        (["no-such.py:Mine", "--out", "b"], 1, "is not a file"),
        ([*SMALL, "--out", "b", "--targets", "0"], 1, "--targets is 0"),
        ([*SMALL, "--out", "b", "--chunk", "1"], 1, "--chunk is 1"),
        ([*SMALL, "--out", "notes"], 1, "exists"),
        ([*SMALL, "--out", "notes", "--force"], 1, "is not a bundle"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("precious")
    assert main(["export", *arguments]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert message in lines[0]
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "notes" / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--out", "b"],
        [".", "--preset", "small", "--out", "b"],
        [".", "--weights", "w.safetensors", "--out", "b"],
        ["run"],
        [*SMALL, "--model", "my_model.py:MyModel", "--out", "b"],
        [*SMALL, "--parity-steps", "0", "--out", "b"],
        [*SMALL, "--precision", "int4", "--out", "b"],
        [*SMALL, "--max-loss", "0.1", "--out", "b"],
        [*SMALL, "--precision", "int8", "--max-loss", "-1", "--out", "b"],
        [*SMALL, "--precision", "int8", "--csv", "rows.csv", "--out", "b"],
    ],
)
def test_wrong_usage_exits_with_2(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["export", *arguments])
    assert stopped.value.code == 2


def test_a_run_is_exported_with_another_capacity_and_no_other_width(tmp_path: Path) -> None:
    from edgefold.train.checkpoints import save_tensors, write_config
    from edgefold.train.models.registry import create_model

    torch.manual_seed(0)
    tiny = {"width": 16, "n_heads": 2, "n_layers": 1, "feedforward": 16, "capacity": 12}
    model = create_model("tnp-d", tiny)
    run = tmp_path / "run"
    run.mkdir()
    save_tensors(run / "model.safetensors", dict(model.state_dict()), {})
    write_config(run, model, {"name": "gp", "n_context": 46, "n_targets": 48}, {})
    command = ["export", str(run), "--parity-steps", "128", "--out", str(tmp_path / "bundle")]
    assert main([*command, "--set", "width=32"]) == 1
    assert main([*command, "--set", "capacity=20", "--set", "when_full=overwrite"]) == 0
    manifest = load_manifest(tmp_path / "bundle")
    assert (manifest.capacity, manifest.when_full) == (20, "overwrite")


@pytest.mark.long
def test_a_model_that_refuses_more_points_is_calibrated_with_what_it_takes(tmp_path: Path) -> None:
    """The task's longest stream, 512 points, has more than there is room for."""
    run, out = tmp_path / "run", tmp_path / "b"
    words = ["train", "gp", "--model", "lbanp", "--steps", "1", "--batch", "2"]
    words += ["--set", "capacity=48", "--set", "n_blocks=1", "--out", str(run)]
    assert main(words) == 0
    words = ["export", str(run), "--chunk", "8", "--targets", "4", "--parity-steps", "128"]
    assert main([*words, "--precision", "int8", "--accept-loss", "--out", str(out)]) == 0
    assert main(["check", str(out)]) == 0
