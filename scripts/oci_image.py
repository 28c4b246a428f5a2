"""Write a bundle's static program as a container image for four processors.

    BUNDLE ──edgefold build --source --program──> C ──zig cc, musl──> a static program per processor
                                                  ──> layer, manifest ──> index ──> tar

The image is made FROM scratch: the program and the empty folder /data, nothing else. The archive is
an OCI image layout, as `podman load`, `docker load` (25 or later) and `skopeo copy oci-archive:`
read it. The same bundle, compiler and version give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edgefold.export.native.toolchain.compilers import FLAGS, LARGE

USER = 65532  # as distroless images call nobody in particular
OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Platform:
    """A processor of the image: its names in OCI's words, and zig's target and processor."""

    architecture: str
    variant: str
    target: str
    processor: str

    @property
    def name(self) -> str:
        """Return the platform as container tools write it, such as linux/arm/v7."""
        return "/".join(filter(None, ("linux", self.architecture, self.variant)))


PLATFORMS = (
    Platform("amd64", "", "x86_64-linux-musl", "x86_64_v2"),
    Platform("arm64", "v8", "aarch64-linux-musl", "generic"),
    Platform("arm", "v7", "arm-linux-musleabihf", "generic+v7a+vfp4+neon"),
    Platform("riscv64", "", "riscv64-linux-musl", "generic_rv64+m+a+f+d+c"),
)


class Layout:
    """The blobs of an OCI image layout."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def add(self, kind: str, content: bytes, **more: Any) -> dict[str, Any]:
        """Keep a blob and return its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[f"blobs/sha256/{digest}"] = content
        return {
            "mediaType": f"{OCI}.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(content),
            **more,
        }

    def archive(self, index: Mapping[str, Any]) -> bytes:
        """Return the layout as a tar whose bytes depend on nothing but the content."""
        marker = json_bytes({"imageLayoutVersion": "1.0.0"})
        files = {"index.json": json_bytes(index), "oci-layout": marker, **self.blobs}
        return tar_of((name, content, 0o644, 0) for name, content in sorted(files.items()))


def json_bytes(value: Any) -> bytes:
    """Return JSON with sorted keys and without blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def tar_of(entries: Iterable[tuple[str, bytes | None, int, int]]) -> bytes:
    """Return a tar of entries (name, content, mode, owner); a folder has no content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content, mode, owner in entries:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.uid, entry.gid = mode, owner, owner
            if content is None:
                entry.type = tarfile.DIRTYPE
            entry.size = len(content or b"")
            archive.addfile(entry, io.BytesIO(content or b""))
    return out.getvalue()


def image(programs: Mapping[Platform, bytes], name: str, release: str) -> bytes:
    """Return the archive of an image that holds one static program for each platform.

    Args:
        programs: The program of each platform.
        name: Name of the program and of the image.
        release: Version, which becomes the image's tag.
    """
    layout, manifests = Layout(), []
    labels = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.version": release,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    for platform, program in programs.items():
        files = [("data", None, 0o755, USER), (name, program, 0o755, 0)]
        plain = tar_of(files)
        # The level and mtime are fixed. zlib's output may differ between its versions.
        packed = gzip.compress(plain, 9, mtime=0)
        place = {"os": "linux", "architecture": platform.architecture}
        place |= {"variant": platform.variant} if platform.variant else {}
        settings = {
            "Entrypoint": [f"/{name}"],
            "Cmd": ["--input", "-", "--output", "-"],
            "User": f"{USER}:{USER}",
            "WorkingDir": "/data",
            "Volumes": {"/data": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        }
        diff = f"sha256:{hashlib.sha256(plain).hexdigest()}"
        configuration = {**place, "config": settings}
        configuration["rootfs"] = {"type": "layers", "diff_ids": [diff]}
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": layout.add("config.v1+json", json_bytes(configuration)),
            "layers": [layout.add("layer.v1.tar+gzip", packed)],
            "annotations": labels,
        }
        manifests.append(layout.add("manifest.v1+json", json_bytes(manifest), platform=place))
    kind = "index.v1+json"
    every = {"schemaVersion": 2, "mediaType": f"{OCI}.{kind}", "manifests": manifests}
    names = {
        "org.opencontainers.image.ref.name": release,
        "io.containerd.image.name": f"docker.io/library/{name}:{release}",
    }
    top = layout.add(kind, json_bytes(every), annotations=names)
    return layout.archive({"schemaVersion": 2, "mediaType": f"{OCI}.{kind}", "manifests": [top]})


def compile_program(sources: Path, platform: Platform, out: Path) -> bytes:
    """Compile the C of a program for a platform, by zig and statically with musl."""
    files = sorted(path.name for path in sources.glob("*.c"))
    # zig reports undefined behaviour by default, which would cost time; the code has none.
    flags = [*FLAGS, *LARGE, "-O3", "-fno-sanitize=all", "-static", "-s"]
    target = ["-target", platform.target, f"-mcpu={platform.processor}"]
    zig = ["zig"] if shutil.which("zig") else [sys.executable, "-m", "ziglang"]
    command = [*zig, "cc", *target, *flags, *files, "-lm", "-o", str(out)]
    subprocess.run(command, cwd=sources, check=True)
    return out.read_bytes()


def write_image(bundle: str, out: Path, name: str | None) -> None:
    """Build a bundle's programs and write the archive; print the size of each program."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "c"
        words = [*("build", bundle, "--source", "--program", "--out", str(sources))]
        words += ["--name", name] if name else []
        command = [sys.executable, "-m", "edgefold.cli.main", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        title = next(path.stem for path in sources.glob("edgefold_*_data.c"))
        program = f"{title.removesuffix('_data').replace('_', '-')}-run"
        programs = {}
        for platform in PLATFORMS:
            programs[platform] = compile_program(sources, platform, Path(folder) / program)
            print(f"{platform.name:<14}{len(programs[platform]) / 1e3:8.0f} kB")
    content = image(programs, program, version("edgefold"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    print(f"{out}: {len(content) / 1e3:,.0f} kB, sha256 {digest}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle", help="folder of the bundle")
    parser.add_argument("--out", type=Path, required=True, help="the archive, FILE.oci.tar")
    parser.add_argument("--name", help="as of `edgefold build --name`")
    options = parser.parse_args()
    write_image(options.bundle, options.out, options.name)
