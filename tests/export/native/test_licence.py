"""Every file of generated C states a licence, and its header the version that wrote it."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from edgefold.export.native import licence
from edgefold.export.native.firmware_project import replay_sources
from edgefold.export.native.generator import generate
from edgefold.export.native.loop_program import program_sources
from edgefold.export.native.toolchain.machines import EMULATED

IDENTIFIER = "/* SPDX-License-Identifier: Apache-2.0\n"


def test_each_file_states_the_licence_and_leaves_the_weights_to_their_owner(
    bundles: Path,
) -> None:
    bundle = bundles / "scaled"
    files = {**program_sources(bundle, "m"), **replay_sources(bundle, EMULATED[0], "m")}
    weights = files.pop("edgefold_m_data.c")
    assert len(files) > 25
    assert [name for name, text in files.items() if not text.startswith(IDENTIFIER)] == []
    assert "owner" in weights[:200] and IDENTIFIER not in weights
    assert weights.startswith("/* SPDX-License-Identifier: Apache-2.0 AND LicenseRef-weights-of-")


def test_the_header_defines_the_version_of_the_generator(tiny_bundle: Path) -> None:
    header = generate(tiny_bundle, "m").header
    macros = dict(re.findall(r"^#define EDGEFOLD_M_(VERSION\w*) (.+)$", header, re.MULTILINE))
    version = importlib.metadata.version("edgefold")
    parts = [macros[f"VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH")]
    assert macros["VERSION"] == f'"{version}"'
    assert version.startswith(".".join(parts))


@pytest.mark.parametrize(
    ("version", "parts"),
    [("1.20.3", "1 20 3"), ("2.0", "2 0 0"), ("0.3.0.dev7+g12", "0 3 0")],
)
def test_a_version_of_any_form_has_three_parts(
    version: str, parts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    words = licence.version_words()
    assert " ".join(str(words[part]) for part in ("major", "minor", "patch")) == parts


def test_each_array_of_constants_names_its_shape_and_what_reads_it(tiny_bundle: Path) -> None:
    source = generate(tiny_bundle, "m")
    notes = re.findall(r"^/\* [\dx ]+, read by (\w+) of \w+ \*/\nEDGEFOLD_", source.data, re.M)
    assert len(notes) == source.data.count("EDGEFOLD_ALIGNED const")
    assert {"Gemm", "MatMul"} <= set(notes)
