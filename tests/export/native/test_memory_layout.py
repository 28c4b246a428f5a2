"""The header's account of the memory is the compiler's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefold.export.native.interface.stream_struct import KINDS, StreamStruct
from edgefold.runtime import load_manifest
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.c_streams import FLAGS, NAME, compiler, stubbed_files

MEMBER = re.compile(r"^    [\w ]+ (\w+)(?:\[\d+\])+; /\* (\d+): (\d+) bytes", re.MULTILINE)
REGION = re.compile(r"^    /\* (.+): (\d+) bytes at (\d+) \*/$", re.MULTILINE)


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["sensors", "shelves", "anp", "tiny"])
def test_each_member_lies_where_the_header_says(
    kind: str, bundle_of: Callable[[str], Path], tmp_path: Path
) -> None:
    manifest = load_manifest(shipped_bundle() if kind == "sensors" else bundle_of(kind))
    files = stubbed_files(manifest)
    header = files[f"edgefold_{NAME}.h"]
    (tmp_path / f"edgefold_{NAME}.h").write_text(header)
    struct = f"struct edgefold_{NAME}"
    members = MEMBER.findall(header)
    assert len(members) == header.count("bytes, (")
    lines = [f'#include "edgefold_{NAME}.h"']
    for name, place, n_bytes in members:
        lines.append(f"typedef char at_{name}[offsetof({struct}, {name}) == {place} ? 1 : -1];")
        size = f"sizeof((({struct} *)0)->{name})"
        lines.append(f"typedef char bytes_{name}[{size} == {n_bytes} ? 1 : -1];")
    (tmp_path / "layout.c").write_text("\n".join([*lines, ""]))
    for name in ("gcc", "arm-none-eabi-gcc"):  # 64 and 32 bits
        command = [compiler(name), *FLAGS, "-fsyntax-only", "layout.c"]
        subprocess.run(command, cwd=tmp_path, check=True)


def test_the_parts_of_the_struct_follow_each_other_and_add_up(
    bundle_of: Callable[[str], Path],
) -> None:
    struct = StreamStruct(load_manifest(shipped_bundle()), "edgefold_sensors")
    end = 0
    for title, n_bytes, start in REGION.findall(struct.text):
        assert title in KINDS.values()
        assert int(start) == end
        end += int(n_bytes)
    assert 0 < struct.n_bytes - end <= 8
    totals = [int(n) for n in re.findall(r"^ \* +(\d+)  at ", struct.memory_text, re.MULTILINE)]
    assert sum(totals) == end
