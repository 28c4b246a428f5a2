"""The files of an extension of PostgreSQL, for every kind of model."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.generated_files import MARK
from edgefold.cli.main import main
from edgefold.export.native.generator import NativeSource
from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.package_kinds import KINDS, files_of_kind
from edgefold.export.native.postgres.extension import MOST_NAME, extension_files
from edgefold.runtime import load_manifest
from edgefold.runtime.bundle.manifest import Manifest, Scaling
from edgefold.runtime.errors import ExportError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests import postgres_server
from tests.export.native.c_streams import NAME, compiler, stubbed_files
from tests.export.native.packages.library_tools import write

BundleOf = Callable[[str], Path]
MERGED = ("tiny", "scaled", "cmanp-and")
"""Kinds of `c_streams.KINDS` whose states merge, of one stream."""


def stubbed(manifest: Manifest, name: str = NAME) -> NativeSource:
    files = stubbed_files(manifest)
    header, source = files[f"edgefold_{NAME}.h"], files[f"edgefold_{NAME}.c"]
    struct_bytes = StreamStruct(manifest, f"edgefold_{NAME}").n_bytes
    return NativeSource(name, header, source, "\n", {}, struct_bytes, 64, 64, 2000, 2500)


def files_of(manifest: Manifest) -> dict[str, str]:
    return extension_files(manifest, stubbed(manifest))


def tiny() -> Manifest:
    return load_manifest(shipped_bundle("gp_tiny"))


def with_columns(manifest: Manifest, n_inputs: int, n_outputs: int) -> Manifest:
    x, y = (Scaling((1.5,) * n, (2.0,) * n) for n in (n_inputs, n_outputs))
    return dataclasses.replace(manifest, scaling_x=x, scaling_y=y)


def test_each_file_states_its_licence_and_holds_no_word_of_a_template() -> None:
    files = files_of(tiny())
    assert set(files) == {
        *("Makefile", "README.md", f"{NAME}.control", f"{NAME}--1.0.sql"),
        *(f"src/{NAME}_postgres.c", f"src/edgefold_{NAME}.c", f"src/edgefold_{NAME}.h"),
        f"src/edgefold_{NAME}_data.c",
    }
    for name, text in files.items():
        assert not re.search(r"<<\w+>>|^@(if|end)\b", text, re.MULTILINE), name
        assert "NAME" not in name and text.endswith("\n")
        if not name.startswith("src/edgefold_") and name != "README.md":
            assert "SPDX-License-Identifier: Apache-2.0" in text.splitlines()[0]


def test_sql_takes_numbers_and_arrays() -> None:
    sql = files_of(tiny())[f"{NAME}--1.0.sql"]
    assert f"CREATE AGGREGATE {NAME}(x double precision, y double precision) (" in sql
    assert f"CREATE AGGREGATE {NAME}(x double precision[], y double precision[]) (" in sql
    assert 'x double precision, OUT "mean" double precision, OUT "std" double precision)' in sql
    two = files_of(with_columns(tiny(), 2, 1))[f"{NAME}--1.0.sql"]
    assert f"CREATE AGGREGATE {NAME}(x1 double precision, x2 double precision, y double" in two


@pytest.mark.parametrize(("n_inputs", "scalars", "asks"), [(98, 1, 1), (99, 0, 1), (100, 0, 0)])
def test_a_model_of_more_columns_than_arguments_takes_arrays_only(
    n_inputs: int, scalars: int, asks: int
) -> None:
    files = files_of(with_columns(tiny(), n_inputs, 1))
    sql, source = files[f"{NAME}--1.0.sql"], files[f"src/{NAME}_postgres.c"]
    assert sql.count(f"CREATE AGGREGATE {NAME}(") == 1 + scalars
    assert sql.count(f"CREATE FUNCTION {NAME}_query(") == 1 + asks
    assert ("_pg_learn'\n" in sql) == (f"V1(edgefold_{NAME}_pg_learn)" in source) == bool(scalars)
    assert ("_pg_query'\n" in sql) == (f"V1(edgefold_{NAME}_pg_query)" in source) == bool(asks)
    assert f"{NAME}(x, y) FROM readings" in files["README.md"]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [*((kind, None) for kind in MERGED), *(("tiny", n) for n in ((0, 1), (3, 0), (99, 2)))],
)
def test_the_c_compiles_for_every_kind_of_model(
    kind: str, columns: tuple[int, int] | None, bundle_of: BundleOf, tmp_path: Path
) -> None:
    if lacks := postgres_server.missing():
        pytest.skip(f"missing: {lacks}")
    manifest = load_manifest(bundle_of(kind))
    if columns:
        manifest = with_columns(manifest, *columns)
    folder = write(files_of(manifest), tmp_path)
    headers = postgres_server.asked("--includedir-server")
    command = [compiler(), "-Wall", f"-I{headers}", "-Isrc", "-fsyntax-only"]
    done = subprocess.run(
        [*command, f"src/{NAME}_postgres.c"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_bundle_whose_states_do_not_merge_is_refused(bundle_of: BundleOf) -> None:
    for bundle, word in (
        (shipped_bundle(), "filters"),
        (bundle_of("anp"), "no graph `merge`"),
        (bundle_of("streams"), "--streams 1"),
    ):
        with pytest.raises(ExportError, match=word):
            files_of(load_manifest(bundle))


@pytest.mark.parametrize("name", ["3d", "n" * (MOST_NAME + 1)])
def test_a_name_that_sql_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(ExportError, match="--name"):
        extension_files(tiny(), stubbed(tiny(), name))


def test_every_kind_writes_files() -> None:
    assert "postgres" in KINDS and "arduino" in KINDS
    for kind in KINDS:
        assert any(name.endswith(".c") for name in files_of_kind(kind, tiny(), stubbed(tiny())))


def test_the_command_writes_an_extension_and_replaces_only_its_own_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "extension"
    build = ["build", "gp-tiny", "--package", "postgres", "--name", "site_model", "--out", str(out)]
    assert main(build) == ExitCode.DONE
    assert str(out / "README.md") in capsys.readouterr().out
    written = sorted(path for path in out.rglob("*") if path.is_file())
    assert out / "site_model--1.0.sql" in written and out / "site_model.control" in written
    assert all(MARK in path.read_text()[:300] for path in written)
    assert main(build) == ExitCode.DONE
    own = out / "Makefile"
    own.write_text("all:\n")
    assert main(build) == ExitCode.REFUSED
    assert str(own) in capsys.readouterr().err and own.read_text() == "all:\n"
