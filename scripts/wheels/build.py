"""Build Edgefold's wheels and its source archive: `make wheels`.

    tracked files ──setuptools──> sdist, wheel without compiled code
    that wheel ──its own generator──> C of the shipped bundles ──zig──> a library for each processor
    that wheel + libraries + index ──> a wheel for each platform

Everything is made from a copy of the files that git tracks, in a folder of its own, so that two
runs give the same bytes wherever they run. `--check` runs twice, in two folders, and compares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the tools' environment has no Edgefold installed

from scripts.wheels.archives import read_wheel, rewrite_sdist, write_wheel  # noqa: E402
from scripts.wheels.platforms import FLAGS, PLATFORMS, Level, Platform, compile_level  # noqa: E402

ZIG = (sys.executable, "-m", "ziglang")
LIBRARIES = "edgefold/runtime/shipped_libraries"
EPOCH = 315532800  # 1980-01-01, the first date of a zip archive
GENERATE = """
import json, sys
from pathlib import Path
from edgefold.export.native.generator import generate
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.sensors.shipped_bundle import SHIPPED, shipped_bundle
bundles = {}
for name in SHIPPED:
    manifest = load_manifest(shipped_bundle(name))
    bundles[name] = {"hash": manifest.bundle_hash, "files": generate(manifest.path).files}
json.dump(bundles, sys.stdout)
"""


def main() -> int:
    """Read the command line, build, and print a line on each file."""
    parser = argparse.ArgumentParser(description="build wheels and the source archive")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder to write into")
    parser.add_argument("--check", action="store_true", help="build twice and compare the bytes")
    parser.add_argument(
        "--platform",
        action="append",
        choices=[platform.name for platform in PLATFORMS],
        help="build only this platform's wheel, and those without compiled code",
    )
    args = parser.parse_args()
    chosen = [p for p in PLATFORMS if args.platform is None or p.name in args.platform]
    start_s = time.monotonic()
    made = build(args.out, chosen)
    for path in made:
        print(f"{path.stat().st_size:>9,}  {_sha256(path)[:16]}  {path.relative_to(args.out)}")
    print(f"built in {time.monotonic() - start_s:.0f} s with {zig_version()}")
    return _compare(args.out, made, chosen) if args.check else 0


def zig_version() -> str:
    """Return words that name zig and its version."""
    answer = subprocess.run([*ZIG, "version"], capture_output=True, text=True, check=True)
    return f"zig {answer.stdout.strip()}"


def build(out: Path, platforms: Sequence[Platform]) -> list[Path]:
    """Build everything into a folder, which is emptied first, and return the files' paths.

    Wheels that nobody has run lie in its folder `untested`.
    """
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
    date = time.gmtime(max(epoch, EPOCH))[:6]
    shutil.rmtree(out, ignore_errors=True)
    (out / "untested").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sdist, pure = _plain(work)
        made = [rewrite_sdist(sdist, out, epoch)]
        files = read_wheel(pure)
        made.append(write_wheel(files, ["any"], out, date))
        bundles = _generated(pure, work)
        libraries = _compiled(bundles, platforms)
        for platform in platforms:
            folder = out if platform.tested else out / "untested"
            more = _library_files(platform, bundles, libraries)
            made.append(write_wheel({**files, **more}, platform.tags, folder, date))
    if not any((out / "untested").iterdir()):
        (out / "untested").rmdir()
    sums = "".join(f"{_sha256(path)}  {path.relative_to(out)}\n" for path in made)
    (out / "SHA256SUMS").write_text(sums)
    return made


def _plain(work: Path) -> tuple[Path, Path]:
    """Build the source archive and the wheel without compiled code; return their paths."""
    source, out = work / "source", work / "plain"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    out.mkdir()
    script = (
        "import sys\nfrom setuptools import build_meta\nout = sys.argv[1]\n"  # it changes argv
        "build_meta.build_sdist(out)\nbuild_meta.build_wheel(out)\n"
    )
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run(
        [sys.executable, "-c", script, str(out)],
        cwd=source,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def _generated(pure: Path, work: Path) -> dict[str, Any]:
    """Return hash and C files of each shipped bundle, written by the wheel's own generator."""
    place = work / "installed"
    shutil.unpack_archive(pure, place, "zip")
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-c", GENERATE], env=environment, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"the C could not be generated:\n{done.stderr.decode()}")
    bundles: dict[str, Any] = json.loads(done.stdout)
    return bundles


def _compiled(
    bundles: dict[str, Any], platforms: Sequence[Platform]
) -> dict[tuple[str, str], bytes]:
    """Return the library of each level and bundle, by the names of both."""
    jobs = [
        (platform, level, name)
        for platform in platforms
        for level in platform.levels
        for name in bundles
    ]

    def one(job: tuple[Platform, Level, str]) -> bytes:
        platform, level, name = job
        with tempfile.TemporaryDirectory() as folder:
            return compile_level(
                bundles[name]["files"], level, platform, (*ZIG, "cc"), Path(folder)
            )

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(pool.map(one, jobs))
    return {(level.name, name): code for (_, level, name), code in zip(jobs, results, strict=True)}


def _library_files(
    platform: Platform, bundles: dict[str, Any], libraries: dict[tuple[str, str], bytes]
) -> dict[str, bytes]:
    """Return the libraries of a platform and their index, by their names in the wheel."""
    version, entries, files = zig_version(), [], {}
    for name, bundle in bundles.items():
        for level in platform.levels:
            code = libraries[level.name, name]
            file = f"{name}-{level.name}.so"
            files[f"{LIBRARIES}/{file}"] = code
            entries.append(
                {
                    "file": file,
                    "bundle_sha256": bundle["hash"],
                    "level": level.name,
                    "architectures": list(platform.architectures),
                    "needs": list(level.needs),
                    "sha256": hashlib.sha256(code).hexdigest(),
                    "facts": {"compiler": version, "flags": " ".join((*FLAGS, *level.flags))},
                }
            )
    index = json.dumps({"libraries": entries}, indent=1) + "\n"
    return {**files, f"{LIBRARIES}/libraries.json": index.encode()}


def _compare(out: Path, made: Sequence[Path], platforms: Sequence[Platform]) -> int:
    """Build again in another folder, with an empty cache of zig; return 1 if a byte differs."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(Path(name) / "cache")
        again = build(Path(name) / "again", platforms)
        different = [
            one.name
            for one, other in zip(made, again, strict=True)
            if _sha256(one) != _sha256(other)
        ]
    if different:
        print(f"NOT EQUAL in a second build: {', '.join(different)}")
        return 1
    print(f"equal: {len(made)} files have the same bytes when built again in another folder")
    return 0


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
