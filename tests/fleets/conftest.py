"""Lakes and bundles for the tests of fleets."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.fleets import Conditioned, ConditionOptions, condition
from edgefold.fleets.conditioning import condition as module
from edgefold.fleets.work.unit import Agenda, Hear, JobSource, WorkNews
from edgefold.runtime.bundle.manifest_file import with_checksum
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

N_SITES, N_DAYS, N_ROWS = 3, 2, 900
SMALL = {"backend": "onnxruntime", "unit_rows": 400}


def conditioned(
    bundle: Path,
    lake: Path,
    out: Path,
    by: str = "site",
    hear: Hear | None = None,
    **options: Any,
) -> Conditioned:
    """Condition on x and y of a lake, in small units."""
    given = ConditionOptions(**{**SMALL, "processes": 1, **options})
    return condition(
        bundle, lake, x=["x"], y=["y"], by=by.split(), out=out, options=given, hear=hear
    )


def contents(out: Path) -> dict[str, Mapping[str, Any]]:
    """The arrays of each snapshot in a folder, as bytes, and the bytes of the other files."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(out.iterdir()):
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                found[path.name] = {name: arrays[name].tobytes() for name in arrays}
        else:
            found[path.name] = {"": path.read_bytes()}
    return found


class HereCrew:
    """Runs units in this process, one after the other, and hears news after each.

    Args:
        source: Says how the job is made.
        words: They are not used.
    """

    n_deaths = 0

    def __init__(self, source: JobSource, *words: object):
        self._source = source

    def run(self, agenda: Agenda, hear: Hear) -> None:
        module = importlib.import_module(self._source.module)
        with closing(getattr(module, self._source.function)(self._source.setup)) as job:
            while unit := agenda.take():
                job.run(unit.argument, agenda.place(unit), lambda n: None)
                agenda.done(unit)
                done = agenda.n_rows_done, agenda.n_rows_before, agenda.n_rows
                hear(WorkNews(*done, agenda.n_left, 0))


def write_table(path: Path, columns: Mapping[str, Any], **options: Any) -> Path:
    """Write columns as a Parquet file, and return its path."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, **options)
    return path


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows x, y, room (a or b) of three sites; in files of two days, in row groups of 150 rows."""
    folder, rng = tmp_path_factory.mktemp("fleets") / "lake", np.random.default_rng(0)
    for site in range(N_SITES):
        for day in range(N_DAYS):
            x = rng.uniform(-2, 2, N_ROWS)
            columns = {
                "x": x,
                "y": np.sin(2 * x + site) + rng.normal(0, 0.1, N_ROWS),
                "room": rng.choice(["a", "b"], N_ROWS).tolist(),
            }
            path = folder / f"site={site}" / f"day-{day}.parquet"
            write_table(path, columns, row_group_size=150)
    return folder


@pytest.fixture(scope="session")
def gp_bundle() -> Path:
    """The shipped bundle gp-tiny: one input, one output, states that merge."""
    return Path(shipped_bundle("gp-tiny"))


@pytest.fixture(scope="session")
def unmerged_bundle(gp_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same bundle without its graph merge."""
    folder = tmp_path_factory.mktemp("unmerged") / "gp-tiny"
    shutil.copytree(gp_bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["graphs"]["merge"]
    (folder / "merge.onnx").unlink()
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return folder


@pytest.fixture(scope="session")
def one_process(
    gp_bundle: Path, lake_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The states of the sites, by this process."""
    out = tmp_path_factory.mktemp("one") / "states"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Crew", HereCrew)
        conditioned(gp_bundle, lake_folder, out)
    return out
