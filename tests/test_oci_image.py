"""The container image of a bundle's program is an OCI layout that can be made again."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import Any

import pytest

pytest.importorskip("onnx", reason="pip install '.[train]' for what writes C")

from scripts.oci_image import PLATFORMS, USER, image

PROGRAMS = {platform: f"program of {platform.name}".encode() for platform in PLATFORMS}


def files_of(archive: bytes) -> dict[str, bytes]:
    """Return the files of a tar by name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in found.items() if file}


def opened(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Return the blob of a descriptor, whose hash and size must hold."""
    blob = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert len(blob) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(blob).hexdigest()}" == descriptor["digest"]
    return blob


def test_an_image_has_the_same_bytes_every_time() -> None:
    assert image(PROGRAMS, "edgefold-x-run", "0.2.0") == image(PROGRAMS, "edgefold-x-run", "0.2.0")


def test_each_platform_gets_its_own_program_and_nothing_else() -> None:
    files = files_of(image(PROGRAMS, "edgefold-x-run", "0.2.0"))
    (top,) = json.loads(files["index.json"])["manifests"]
    assert top["annotations"]["org.opencontainers.image.ref.name"] == "0.2.0"
    manifests = json.loads(opened(files, top))["manifests"]
    shown = {(m["platform"]["architecture"], m["platform"].get("variant", "")) for m in manifests}
    assert shown == {("amd64", ""), ("arm64", "v8"), ("arm", "v7"), ("riscv64", "")}
    for entry, (platform, program) in zip(manifests, PROGRAMS.items(), strict=True):
        manifest = json.loads(opened(files, entry))
        configuration = json.loads(opened(files, manifest["config"]))
        assert configuration["architecture"] == platform.architecture
        (layer,) = manifest["layers"]
        plain = gzip.decompress(opened(files, layer))
        digest = f"sha256:{hashlib.sha256(plain).hexdigest()}"
        assert configuration["rootfs"]["diff_ids"] == [digest]
        with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
            data, own = tar.getmembers()
            assert (data.name, data.isdir(), data.uid) == ("data", True, USER)
            assert (own.name, own.mode) == ("edgefold-x-run", 0o755)
            content = tar.extractfile(own)
            assert content and content.read() == program


def test_the_loop_runs_as_nobody_in_a_volume_and_is_stopped_gently() -> None:
    files = files_of(image(PROGRAMS, "edgefold-x-run", "0.2.0"))
    (top,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(opened(files, json.loads(opened(files, top))["manifests"][0]))
    settings = json.loads(opened(files, manifest["config"]))["config"]
    assert settings["Entrypoint"] == ["/edgefold-x-run"]
    assert settings["User"] == f"{USER}:{USER}" and settings["Volumes"] == {"/data": {}}
    assert settings["WorkingDir"] == "/data" and settings["StopSignal"] == "SIGTERM"
