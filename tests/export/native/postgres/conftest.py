"""The server that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgefold.export.native.generator import generate
from edgefold.export.native.postgres.extension import extension_files
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.packages.library_tools import write
from tests.export.native.postgres.learned import N_MANY, N_ROWS, Learned
from tests.native_builds import Native, compiler_or_skip
from tests.postgres_server import make_extension, missing, running, server_folder


@pytest.fixture(scope="module")
def learned(
    native: Native, bundles: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Learned]:
    if lacks := missing():
        pytest.skip(f"missing: {lacks}")
    compiler = compiler_or_skip()
    paths = {"cmanp": shipped_bundle("gp_tiny"), "scaled": bundles / "scaled"}
    flags = [f"CC={' '.join(compiler.command)}", f"MODEL_FLAGS={' '.join(compiler.flags)}"]
    random = np.random.default_rng(3)
    x = random.uniform(-2, 2, (N_ROWS, 1))
    y = np.sin(3 * x) + random.normal(0, 0.1, x.shape)
    rows = "".join(
        f"{i + 1}\t{i % 40}\t{x[i, 0].item()!r}\t{y[i, 0].item()!r}\n" for i in range(N_ROWS)
    )
    with server_folder() as folder:
        for name, bundle in paths.items():
            files = extension_files(load_manifest(bundle), generate(bundle, name))
            source = write(files, tmp_path_factory.mktemp("extension") / name)
            make_extension(source, folder, *flags)
        with running(folder) as server:
            server.sql(
                "CREATE EXTENSION cmanp; CREATE EXTENSION scaled;\n"
                "CREATE TABLE points (row int, site int, x float8, y float8);\n"
                f"COPY points FROM STDIN;\n{rows}\\.\n"
                "CREATE TABLE many AS SELECT site, x, y FROM points, "
                f"generate_series(1, {N_MANY // N_ROWS}); ANALYZE points; ANALYZE many;"
            )
            engines = {name: native(bundle) for name, bundle in paths.items()}
            yield Learned(server, paths, engines, x, y)
