"""`edgefold engine`: build TensorRT's engines ahead of time, so that a stream opens at once.

On a board it builds for the board's own GPU. With TensorRT-RTX it also builds on another machine,
without a GPU, for the compute capabilities that are named; the cache's folder is then copied.
Engines are built in processes of their own. What the builder reported of each is stored with it, so
that --list and --inspect need neither TensorRT nor a GPU.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edgefold.cli.options.bundle_options import (
    add_bundle_argument,
    add_trust_arguments,
    byte_size,
    require_trusted,
)
from edgefold.cli.terminal import say

if TYPE_CHECKING:
    from edgefold.runtime.backends.base import EngineOptions
    from edgefold.runtime.backends.tensorrt.driver import Device
    from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, Entry
    from edgefold.runtime.backends.tensorrt.variant import Variant
    from edgefold.runtime.bundle.manifest import Manifest

EXAMPLES = (
    "edgefold engine bundles/sensor",
    "edgefold engine bundles/sensor --compute-capability 8.6 8.9 --cache engines",
    "edgefold engine bundles/sensor --inspect",
)

ELSEWHERE = "choose a folder that can be written with --cache or EDGEFOLD_CACHE."


TABLE = "  {:<14}{:>9}{:>12}   {:<8}{}"
BUILDER_BYTES = 1_200_000_000
"""Memory that TensorRT's builder takes for its library of kernels.

The source is TensorRT 10.13's log on a Thor (OE4T/meta-tegra, issue 2120).
"""
DROP_CACHES = "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold engine`."""
    add_bundle_argument(parser)
    add_trust_arguments(parser)
    parser.add_argument(
        "--compute-capability",
        type=_capability,
        action="extend",
        nargs="+",
        default=[],
        metavar="X.Y",
        help="GPUs to build for, as 8.6 (TensorRT-RTX only); default: this machine's; with --list, "
        "--inspect or --clear: only engines for these",
    )
    parser.add_argument(
        "--workspace",
        type=byte_size,
        metavar="SIZE",
        help="the most scratch memory that a layer may ask for, as 64MiB; default: 256MiB where "
        "the GPU works in the processor's memory, as on a Jetson, else all there is",
    )
    parser.add_argument(
        "--optimization-level",
        type=int,
        choices=range(6),
        metavar="0..5",
        help="0 builds soonest and with the least memory, 5 searches longest; TensorRT's own is 3",
    )
    parser.add_argument(
        "--build-timeout",
        type=seconds,
        default=1800.0,
        metavar="SECONDS",
        help="the longest that the build of one graph may take before it is ended; default 1800",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="where engines are kept (default $EDGEFOLD_CACHE, else ~/.cache/edgefold)",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--rebuild", action="store_true", help="build what the cache already holds")
    action.add_argument(
        "--list",
        action="store_true",
        help="show what the cache holds for this bundle, and how and where it was built",
    )
    action.add_argument(
        "--inspect",
        action="store_true",
        help="show the kernels of each engine in the cache: their types, the nodes that each "
        "computes, and which int8 or float16 products stayed wider",
    )
    action.add_argument(
        "--clear", action="store_true", help="delete what the cache holds for this bundle"
    )


def seconds(text: str) -> float:
    """Read a finite number of seconds above 0, for argparse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _capability(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability, e.g. 8.6")
    return text


def run(args: argparse.Namespace) -> int:
    """Build, list, inspect or delete engines of a bundle, as the options say, and return 0."""
    from edgefold.runtime.backends.code_cache import NO_HOME
    from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache
    from edgefold.runtime.bundle.signature import load_expected
    from edgefold.runtime.errors import OutputError

    manifest = load_expected(args.bundle, require_trusted(args, args.bundle))
    cache = EngineCache(args.cache)
    if cache.folder is None:
        raise OutputError(f"{NO_HOME}, or give --cache.")
    if args.list or args.inspect or args.clear:
        entries = [entry for entry in cache.entries() if _is_of(entry, manifest)]
        asked = args.compute_capability
        if asked:
            entries = [entry for entry in entries if entry.key.compute_capability in asked]
        if args.clear:
            for entry in entries:
                entry.path.unlink(missing_ok=True)
            print(f"{len(entries)} engines of {args.bundle} deleted from {cache.folder}")
        elif not entries:
            wanted = " ".join(["", "--compute-capability", *asked]) if asked else ""
            print(
                f"{cache.folder} holds no engine of {manifest.path} that was asked for; "
                f"`edgefold engine {args.bundle}{wanted}` builds them"
            )
        else:
            from edgefold.cli.text import engine as text
            from edgefold.devices.machine.build_conditions import read_build_conditions

            names = {graph.sha256: graph.name for graph in manifest.graphs.values()}
            if args.list:
                print(text.listing(entries, names, read_build_conditions()))
            else:
                print(text.inspection(entries, names))
            print(f"cache  {cache.folder}")
        return 0
    from edgefold.devices.machine.build_conditions import read_build_conditions
    from edgefold.runtime.backends.base import EngineOptions
    from edgefold.runtime.backends.tensorrt.builder import with_board_defaults

    variant, devices = _find_devices(tuple(args.compute_capability))
    for device in devices:
        targets = (device.compute_capability,) if variant.name == "tensorrt_rtx" else ()
        here = read_build_conditions if device.name else None  # else it is another machine's GPU
        options = EngineOptions(
            None,
            args.workspace,
            args.optimization_level,
            targets,
            here,
            progress=say,
            build_timeout_s=args.build_timeout,
        )
        options = with_board_defaults(options, device)
        if device.is_integrated and args.workspace is None:
            say(
                "workspace: 256 MiB, because this GPU works in the processor's memory (--workspace)"
            )
        _warn_of_memory(device, options)
        _build(manifest, variant, device, options, cache, args.rebuild)
        if device.name:  # the engines are this machine's
            print(f"auto   {_time_backends(args.bundle, manifest, cache)}")
    print(f"cache  {cache.folder}")
    return 0


def _time_backends(bundle: str, manifest: Manifest, cache: EngineCache) -> str:
    """Time a bundle's steps on each backend that `auto` knows; return what it takes, and why."""
    from edgefold.runtime import Stream
    from edgefold.runtime.backends.base import EngineOptions
    from edgefold.runtime.backends.preference import choose
    from edgefold.runtime.backends.registry import AUTO, BACKENDS
    from edgefold.runtime.checking.step_times import keep_times
    from edgefold.runtime.errors import BackendError

    engine = EngineOptions(cache.folder, may_build=False)
    for name in AUTO:
        with suppress(BackendError), ExitStack() as stack:  # no time is kept of what does not open
            opened = Stream.open(bundle, name, engine=engine, expect_hash=manifest.bundle_hash)
            keep_times(stack.enter_context(opened), cache.folder)
    choice = choose([BACKENDS[name] for name in AUTO], manifest, cache.folder)
    first = choice.candidates[0].name
    return "; ".join([f"takes {first}: {choice.explain(first)}", *choice.left_out.values()])


def _find_devices(asked: tuple[str, ...]) -> tuple[Variant, list[Device]]:
    """Return the installed TensorRT (or TensorRT-RTX) and the GPUs to build engines for.

    Args:
        asked: Compute capabilities of the GPUs, such as "8.6"; empty for this machine's GPU.

    Raises:
        BackendError: There is no TensorRT, no GPU where one is needed, or no way to build for a
            capability.
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
        if variant.name != "tensorrt_rtx":
            raise
        raise BackendError(
            f"{variant.title} finds no GPU to build for on this machine "
            f"({str(error).rstrip('.')}); name the one that the engines are for: "
            f"--compute-capability with one or more of "
            f"{', '.join(supported_capabilities(variant))}."
        ) from error
    require_buildable(variant, tuple(c for c in asked if c != device.compute_capability))
    return variant, [device]


def _warn_of_memory(device: Device, options: EngineOptions) -> None:
    """Print a warning if the builder may not find the memory that it takes."""
    from edgefold.cli.text.numbers import format_bytes
    from edgefold.devices.memory.process import SystemMemory
    from edgefold.runtime.errors import MeterError

    needed = BUILDER_BYTES + (options.workspace_bytes or 0)
    memory = SystemMemory()
    try:
        available, free = memory.available_bytes(), memory.free_bytes()
    except MeterError:
        return
    if device.name and available < needed:
        say(
            f"warning: {format_bytes(available)} of memory are available, and TensorRT's builder "
            f"may take {format_bytes(needed)}; close other programs, or build with --workspace "
            "64MiB --optimization-level 0"
        )
    elif device.is_integrated and free < needed:
        say(
            f"warning: {format_bytes(free)} of memory are free for this GPU, which is not given "
            f"the page cache; TensorRT's builder leaves kernels out for which it finds no memory. "
            f"Empty the cache first: {DROP_CACHES}"
        )


def _build(
    manifest: Manifest,
    variant: Variant,
    device: Device,
    options: EngineOptions,
    cache: EngineCache,
    rebuild: bool,
) -> None:
    """Build an engine of every graph for one GPU, or find it in the cache, and print a table.

    Raises:
        BackendError: A graph cannot be built.
        BundleError: A graph takes weights from a file that is not the bundle's weight file.
        OutputError: An engine cannot be kept.
    """
    from edgefold.runtime.backends.tensorrt.backend import engine_key
    from edgefold.runtime.backends.tensorrt.build_process import build_in_child
    from edgefold.runtime.backends.tensorrt.engine_cache import TimingKey
    from edgefold.runtime.bundle.onnx_file import read_graph
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
            read_graph(manifest, graph)
            built = build_in_child(variant.name, manifest.path / graph.file, options, earlier)
            conditions = options.conditions() if options.conditions else {}
            plan = built.plan
            reason = cache.store(key, plan, built.facts | {"conditions": conditions})
            if reason is None and built.timing != earlier:
                reason = cache.store(timing_key, built.timing)
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
