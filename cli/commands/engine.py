"""`edgefold engine`: build TensorRT's engines ahead of time, so that a stream opens at once.

On a board it builds for the board's own GPU. With TensorRT-RTX it also builds on another machine,
without a GPU, for the compute capabilities that are named; the cache's folder is then copied.
"""

from __future__ import annotations

import argparse
import re
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.options import byte_size
from edgefold.cli.terminal import say

if TYPE_CHECKING:
    from edgefold.runtime.backends.base import EngineOptions
    from edgefold.runtime.backends.tensorrt.driver import Device
    from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, Entry
    from edgefold.runtime.backends.tensorrt.variant import Variant
    from edgefold.runtime.manifest import Manifest

EXAMPLES = (
    "edgefold engine bundles/sensor",
    "edgefold engine bundles/sensor --compute-capability 8.6 8.9 --cache engines",
)

ELSEWHERE = "choose a folder that can be written with --cache or EDGEFOLD_CACHE."


TABLE = "  {:<14}{:>9}{:>12}   {:<8}{}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("bundle", metavar="BUNDLE", help="folder written by `edgefold export`")
    parser.add_argument(
        "--compute-capability",
        type=_capability,
        action="extend",
        nargs="+",
        default=[],
        metavar="X.Y",
        help="GPUs to build for, as 8.6 (TensorRT-RTX only); default: this machine's",
    )
    parser.add_argument(
        "--workspace",
        type=byte_size,
        metavar="SIZE",
        help="the most scratch memory that a layer may ask for, as 256MiB; default: all there is",
    )
    parser.add_argument(
        "--optimization-level",
        type=int,
        choices=range(6),
        metavar="0..5",
        help="0 builds soonest and with the least memory, 5 searches longest; TensorRT's own is 3",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="where engines are kept (default $EDGEFOLD_CACHE, else ~/.cache/edgefold)",
    )
    parser.add_argument("--rebuild", action="store_true", help="build what the cache already holds")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--list", action="store_true", help="show what the cache holds for this bundle"
    )
    action.add_argument(
        "--clear", action="store_true", help="delete what the cache holds for this bundle"
    )


def _capability(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability, e.g. 8.6")
    return text


def run(args: argparse.Namespace) -> int:
    """Build, list or clear."""
    from edgefold.runtime.backends.tensorrt.engine_cache import NO_HOME, EngineCache
    from edgefold.runtime.errors import OutputError
    from edgefold.runtime.manifest_file import load_manifest

    manifest = load_manifest(args.bundle)
    cache = EngineCache(args.cache)
    if cache.folder is None:
        raise OutputError(f"{NO_HOME}, or give --cache.")
    if args.list or args.clear:
        entries = [entry for entry in cache.entries() if _is_of(entry, manifest)]
        if args.clear:
            for entry in entries:
                entry.path.unlink(missing_ok=True)
            print(f"{len(entries)} engines of {args.bundle} deleted from {cache.folder}")
        else:
            print(_listing(entries, manifest, cache))
        return 0
    from edgefold.runtime.backends.base import EngineOptions

    variant, devices = _find_devices(tuple(args.compute_capability))
    for device in devices:
        targets = (device.compute_capability,) if variant.name == "tensorrt_rtx" else ()
        options = EngineOptions(None, args.workspace, args.optimization_level, targets)
        _build(manifest, variant, device, options, cache, args.rebuild)
    print(f"cache  {cache.folder}")
    return 0


def _find_devices(asked: tuple[str, ...]) -> tuple[Variant, list[Device]]:
    """TensorRT, and whom to build for: the capabilities asked for, or this machine's GPU.

    Raises:
        BackendError: No TensorRT, no GPU where one is needed, or a capability that is out of reach.
    """
    from edgefold.runtime.backends.tensorrt.builder import require_buildable, supported_capabilities
    from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver
    from edgefold.runtime.backends.tensorrt.driver import Device
    from edgefold.runtime.backends.tensorrt.variant import find_variant
    from edgefold.runtime.errors import BackendError

    variant = find_variant()
    if variant.name == "tensorrt_rtx" and asked:
        require_buildable(variant, asked)
        return variant, [Device("", capability, 0) for capability in dict.fromkeys(asked)]
    try:
        with closing(CudaDriver.open()) as driver:
            device = driver.device()
    except BackendError as error:
        if variant.name == "tensorrt":
            raise
        raise BackendError(
            f"no GPU answers on this machine ({str(error).rstrip('.')}); name the one to build "
            f"for: --compute-capability with one or more of "
            f"{', '.join(supported_capabilities(variant))}."
        ) from error
    require_buildable(variant, tuple(c for c in asked if c != device.compute_capability))
    return variant, [device]


def _build(
    manifest: Manifest,
    variant: Variant,
    device: Device,
    options: EngineOptions,
    cache: EngineCache,
    rebuild: bool,
) -> None:
    """Build every graph for one device, or find it in the cache, and print a table.

    Raises:
        BackendError: A graph cannot be built.
        OutputError: An engine cannot be kept.
    """
    from edgefold.runtime.backends.tensorrt.backend import engine_key
    from edgefold.runtime.backends.tensorrt.builder import build_plan
    from edgefold.runtime.backends.tensorrt.engine_cache import TimingKey
    from edgefold.runtime.errors import OutputError

    timing_key = TimingKey(variant.name, variant.version, device.kind)
    target = f"compute capability {device.compute_capability}"
    name = f", {device.name}" if device.name else ""
    print(f"{manifest.path}   {variant.title}, {target}{name}\n")
    print(TABLE.format("graph", "seconds", "engine MB", "from", "file"))
    total_s, total_bytes = 0.0, 0
    for number, graph in enumerate(manifest.graphs.values(), start=1):
        key = engine_key(graph, manifest, variant.name, variant.version, device)
        start_s, origin = time.monotonic(), "cache"
        plan = None if rebuild else cache.load(key)
        if plan is None:
            origin = "build"
            if reason := cache.explain_unwritable():
                raise OutputError(f"no engine can be kept ({reason}); {ELSEWHERE}")
            say(f"building {graph.name} for {target} ({number} of {len(manifest.graphs)}) …")
            earlier = cache.load(timing_key) or b""
            plan, timing = build_plan(variant, manifest.path / graph.file, options, earlier)
            reason = cache.store(key, plan)
            if reason is None and timing != earlier:
                reason = cache.store(timing_key, timing)
            if reason is not None:
                raise OutputError(
                    f"the engine of {graph.name} was built but cannot be kept ({reason}); "
                    f"{ELSEWHERE}"
                )
        file, lasted_s = cache.path(key), time.monotonic() - start_s
        assert file is not None
        size = f"{len(plan) / 1e6:.2f}"
        print(TABLE.format(graph.name, f"{lasted_s:.2f}", size, origin, file.name), flush=True)
        total_s, total_bytes = total_s + lasted_s, total_bytes + len(plan)
    print(TABLE.format("total", f"{total_s:.2f}", f"{total_bytes / 1e6:.2f}", "", "") + "\n")


def _is_of(entry: Entry, manifest: Manifest) -> bool:
    graphs = {graph.sha256 for graph in manifest.graphs.values()}
    return (
        entry.key.graph_sha256 in graphs and entry.key.weights_sha256 == manifest.weights["sha256"]
    )


def _listing(entries: list[Entry], manifest: Manifest, cache: EngineCache) -> str:
    if not entries:
        return f"{cache.folder} holds no engine of {manifest.path}"
    names = {graph.sha256: graph.name for graph in manifest.graphs.values()}
    groups: dict[str, list[str]] = {}
    for entry in entries:
        key = entry.key
        title = f"{key.variant} {key.version} for compute capability {key.compute_capability}"
        title += f", {key.device}" if key.device else ""
        line = f"  {names[key.graph_sha256]:<14}{entry.n_bytes / 1e6:>10.2f}   {entry.path.name}"
        line += f"   not used: {entry.reason}" if entry.reason else ""
        groups.setdefault(title, [f"  {'graph':<14}{'engine MB':>10}   file"]).append(line)
    tables = ["\n".join([f"{title}\n", *groups[title], ""]) for title in sorted(groups)]
    return "\n".join([*tables, f"cache  {cache.folder}"])
