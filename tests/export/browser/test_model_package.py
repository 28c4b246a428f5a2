"""Any model as a package of npm predicts what Python predicts, and shares its snapshots."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.browser_files import package_name
from edgefold.cli.main import main
from edgefold.runtime import Stream
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.browser.built import NODE, TOOLS, needs_node, needs_typescript, zig
from tests.made_once import made_once

HERE = Path(__file__).parent
N_ROWS, N_TARGETS = 60, 3
Packages = Callable[[str], Path]
pytestmark = needs_node


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The package of a bundle, a folder or a word for a shipped one."""

    def package_of(name: str) -> Path:
        def make(folder: Path) -> None:
            words = ["--target", "wasm32", "--out", str(folder / "package")]
            assert main(["build", name, *words]) == 0

        with zig():
            return made_once(tmp_path_factory, "npm-model", make, name) / "package"

    return package_of


def run_model(package: Path, *paths: Path) -> list[dict[str, list[float]]]:
    assert NODE is not None
    words = [NODE, str(HERE / "run_model.mjs"), *map(str, (package, *paths))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, list[float]]] = json.loads(done.stdout)
    return found


def test_a_model_predicts_as_in_python_and_both_go_on_from_one_anothers_snapshots(
    packages: Packages, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    draw = np.random.default_rng(0)
    x, targets = (
        draw.uniform(-1, 1, (2 * N_ROWS, 1)),
        draw.uniform(-1, 1, (2 * N_ROWS, N_TARGETS, 1)),
    )
    y = np.sin(3 * x) + 0.1 * draw.normal(size=x.shape)
    points, snapshots = tmp_path / "points.json", [tmp_path / f"{i}.npz" for i in range(3)]
    with Stream.open(shipped_bundle("gp-tiny"), "onnxruntime") as stream:
        for part in range(2):
            rows = slice(part * N_ROWS, (part + 1) * N_ROWS)
            arrays = {"x": x[rows], "y": y[rows], "targets": targets[rows]}
            points.write_text(json.dumps({name: a.tolist() for name, a in arrays.items()}))
            given = snapshots[:part] and [snapshots[0]]  # Python's own, of the rows before
            found = run_model(packages("gp-tiny"), points, snapshots[1 + part], *given)
            for i, row in enumerate(found):
                expected = stream.query(targets[rows][i])
                # float32 sums in another order, over 60 points
                np.testing.assert_allclose(row["mean"], expected.mean.ravel(), atol=2e-4)
                np.testing.assert_allclose(row["std"], expected.std.ravel(), atol=2e-4)
                stream.update(x[rows][i][None], y[rows][i][None])
            stream.save(snapshots[0])
        expected_mean = np.array(stream.query(targets[0]).mean)
        stream.restore(snapshots[2])
        assert stream.n_points == 2 * N_ROWS
        np.testing.assert_allclose(stream.query(targets[0]).mean, expected_mean, atol=2e-4)


@pytest.mark.long
def test_a_filter_of_three_streams_answers_as_in_python(packages: Packages, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.models.registry import create_model
    from tests.export.test_all_models import TINY

    torch.manual_seed(0)
    model = create_model("continual-nystrom", TINY["continual-nystrom"]).eval()
    config = ExportConfig(chunk=8, targets=1, streams=3, parity_steps=32)
    export_bundle(model, {"name": "untrained"}, tmp_path / "bundle", config)
    package = packages(str(tmp_path / "bundle"))
    with Stream.open(tmp_path / "bundle", "onnxruntime") as stream:
        n_inputs = stream.manifest.n_inputs
        rows = np.random.default_rng(1).normal(size=(80, 3, n_inputs))
        points = tmp_path / "points.json"
        points.write_text(json.dumps({"x": rows.reshape(80, -1).tolist()}))
        found = run_model(package, points, tmp_path / "own.npz")
        for row, answer in zip(rows, found, strict=True):
            tensors = stream.step(row).tensors
            assert list(answer) == list(tensors)
            for name, tensor in tensors.items():
                # float32 sums in another order, over 80 points
                np.testing.assert_allclose(answer[name], tensor.ravel(), atol=2e-4)
        stream.restore(tmp_path / "own.npz")
        assert stream.n_points == len(rows)


@pytest.mark.long
@needs_typescript
def test_types_of_a_model_hold(packages: Packages, tmp_path: Path) -> None:
    package = packages("gp-tiny")
    name = json.loads((package / "package.json").read_text())["name"]
    assert name == "edgefold-cmanp" and name in (package / "README.md").read_text()
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / name).symlink_to(package)
    (tmp_path / "use.mts").write_text(
        f'import {{ Model, ModelRefused, openModel }} from "{name}";\n'
        "const model: Model = await openModel();\n"
        "const mean: Float64Array = model.query([1, 2], 2).mean;\n"
        "console.log(mean, model.save(), ModelRefused);\n"
        "// @ts-expect-error a point has numbers\nmodel.update(['1'], [2]);\n"
    )
    assert NODE is not None
    compiler = [NODE, str(TOOLS / "typescript" / "bin" / "tsc"), "--noEmit", "--strict"]
    options = ["--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom"]
    for folder, more in (
        (tmp_path, ["use.mts"]),
        (package, ["--allowJs", "--checkJs", "index.js"]),
    ):
        done = subprocess.run(
            [*compiler, *options, *more], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_names_of_packages_are_those_that_npm_allows() -> None:
    assert package_name("CMANP-AND v2") == "edgefold-cmanp-and-v2"
    assert package_name("°") == "edgefold-model"
