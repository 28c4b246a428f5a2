"""Bundles and inputs for the command line's tests."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.series.spec import SeriesSpec
from tests.cli.engine_rig import built as built
from tests.cli.engine_rig import machine as machine

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def edgefold(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process: exit code, stdout, stderr."""
    from edgefold.cli.main import main

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        out, error = capsys.readouterr()
        assert "Traceback" not in error, error
        return code, out, error

    return run


@pytest.fixture(scope="session")
def series_bundle(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of one input with a series as its task: x is the last change."""
    folder = tmp_path_factory.mktemp("series") / "series"
    shutil.copytree(bundles / "scaled", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    spec = SeriesSpec(clock="number", step=1.0, lags=1)
    manifest["task"] = {"name": "series", "features": spec.to_json()}
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return folder


def spoil_golden(bundle: Path) -> Path:
    """Make a recorded prediction one that the graphs do not compute; return the bundle."""
    path = bundle / "golden.npz"
    with np.load(path) as archive:
        golden = dict(archive)
    golden["prediction.mean"][-1] += 0.01
    np.savez(path, **golden)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["golden"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["golden"]["n_bytes"] = path.stat().st_size
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return bundle


def point_lines(n: int) -> list[str]:
    """Lines of two inputs and one output."""
    return [
        f"{math.sin(i):.4f},{math.cos(1.7 * i):.4f},{math.sin(i) * 0.5 + 0.1 * math.sin(9 * i):.4f}"
        for i in range(n)
    ]


@pytest.fixture
def points_csv(tmp_path: Path) -> Path:
    """60 rows for the tiny bundle, lines 2 to 61."""
    path = tmp_path / "points.csv"
    path.write_text("\n".join(["x1,x2,y1", *point_lines(60)]) + "\n")
    return path


@pytest.fixture
def series_csv(tmp_path: Path) -> Path:
    """60 rows of a series, lines 2 to 61."""
    path = tmp_path / "series.csv"
    rows = [f"{i},{400 + 5 * math.sin(i / 3):.3f}" for i in range(60)]
    path.write_text("\n".join(["time,value", *rows]) + "\n")
    return path


def with_changed_graph(
    bundle: Path, place: Path, graph: str, change: Callable[[Path], None]
) -> Path:
    """Copy a bundle, change the file of a graph, and seal the copy again; returns it."""
    shutil.copytree(bundle, place)
    manifest = json.loads((place / "manifest.json").read_text())
    entry = manifest["graphs"][graph]
    change(place / entry["file"])
    entry["sha256"] = hashlib.sha256((place / entry["file"]).read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return place
