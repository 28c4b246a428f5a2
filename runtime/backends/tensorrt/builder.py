"""Build TensorRT's serialized engine, the plan, from a step graph.

    graph.onnx, weights.bin ──parse──> strongly typed network ──build──> plan, timing cache, facts

In a strongly typed network every number has the type that the graph states, as always in TensorRT
11. The timing cache holds the times of kernels that TensorRT measured. This runs in the process of
the module `build_process`, and the module `engine_cache` stores the results. No step runs here.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.driver import Build, Device
from edgefold.runtime.backends.tensorrt.inspection import (
    asked_products,
    read_inspector,
    read_log,
)
from edgefold.runtime.backends.tensorrt.variant import Variant, make_logger
from edgefold.runtime.errors import BackendError

BOARD_WORKSPACE_BYTES = 256 << 20
"""Limits the scratch memory, in bytes, where the GPU works in the processor's memory.

TensorRT's own limit there is all of the memory, and it has asked for 15 GB (NVIDIA/TensorRT#4258).
"""


@dataclass(frozen=True, slots=True)
class ParsedGraph:
    """Holds a parsed network, and the objects that must live as long as it does.

    The parser, for example, owns the weights.
    """

    builder: Any
    network: Any
    parser: Any
    logger: Any


def build_plan(
    variant: Variant, onnx: Path, options: EngineOptions, timing_cache: bytes = b""
) -> Build:
    """Build the engine of one graph, whose weights are read from the folder of the graph's file.

    Args:
        variant: The TensorRT to build with.
        onnx: The graph's file.
        options: Only workspace, optimization level and compute capabilities are used.
        timing_cache: The timing cache of an earlier build with the same GPU and version; b"" for
            none. A cache that TensorRT does not accept is ignored.

    Raises:
        BackendError: TensorRT does not open here, cannot read the graph (the message names node,
            operator and reason), cannot build it, or not for these compute capabilities.
    """
    require_buildable(variant, options.compute_capabilities)
    start_s = time.monotonic()
    parsed = parse_graph(variant, onnx)
    config = _configure(variant, parsed.builder, options)
    timing = None
    if variant.name == "tensorrt":  # TensorRT-RTX measures nothing while it builds
        timing = _attach_timing(config, timing_cache)
    plan = parsed.builder.build_serialized_network(parsed.network, config)
    if plan is None:
        raise BackendError(_explain(variant, onnx, options, list(parsed.logger.errors)))
    facts = {
        "seconds": time.monotonic() - start_s,
        "peak_bytes": _peak_bytes(),
        "workspace_bytes": options.workspace_bytes,
        "optimization_level": options.optimization_level,
        **_inspect(variant, parsed, plan),
    }
    return Build(bytes(plan), b"" if timing is None else bytes(timing.serialize()), facts)


def parse_graph(variant: Variant, onnx: Path) -> ParsedGraph:
    """Read a graph's file into a strongly typed network of TensorRT.

    Raises:
        BackendError: TensorRT does not open here, or does not accept the graph.
    """
    trt = variant.module
    logger = make_logger(variant)
    logger.errors.clear()
    logger.kernels = ""
    try:
        builder = trt.Builder(logger)
    except (TypeError, RuntimeError) as error:  # pybind11's word for a null pointer
        raise BackendError(
            f"{variant.title} does not open a builder here: "
            f"{'; '.join(logger.errors) or error}. It needs a CUDA driver and the GPU that the "
            "engine is for; without one use the backend onnxruntime."
        ) from error
    # TensorRT 11 and TensorRT-RTX know no other network and ignore the flag.
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(onnx)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        reasons = [_describe(error, list(logger.errors)) for error in errors]
        raise BackendError(f"{variant.title} does not take {onnx}: {'; '.join(reasons)}")
    return ParsedGraph(builder, network, parser, logger)


def with_board_defaults(options: EngineOptions, device: Device) -> EngineOptions:
    """Return options with a limit of scratch memory where the GPU has no memory of its own.

    A limit that was given stays; see `BOARD_WORKSPACE_BYTES`.
    """
    if not device.is_integrated or options.workspace_bytes is not None:
        return options
    return replace(options, workspace_bytes=BOARD_WORKSPACE_BYTES)


def require_runnable(variant: Variant, device: Device) -> None:
    """Refuse a GPU that TensorRT-RTX does not know, before a graph is parsed.

    Raises:
        BackendError: The GPU is not known; the message names the TensorRT to install.
    """
    known = supported_capabilities(variant)
    if variant.name == "tensorrt_rtx" and device.compute_capability not in known:
        raise BackendError(
            f"{variant.title} was asked to run on {device.name} of compute capability "
            f"{device.compute_capability}; it knows {', '.join(known)}. TensorRT knows this GPU: "
            "pip install tensorrt-cu13 (tensorrt-cu12 with a driver for CUDA 12), on a Jetson sudo "
            "apt install python3-libnvinfer; it is preferred where both are installed."
        )


def supported_capabilities(variant: Variant) -> tuple[str, ...]:
    """Return the compute capabilities, such as "8.6", that can be chosen for a build.

    There are none for `tensorrt`, which builds for the GPU of this machine.
    """
    return tuple(_members(variant))


def require_buildable(variant: Variant, capabilities: tuple[str, ...]) -> None:
    """Raise BackendError if a variant cannot build for one of these compute capabilities."""
    asked = ", ".join(capabilities)
    if variant.name == "tensorrt" and capabilities:
        # Its hardware compatibility mode would make engines for Ampere and newer from one GPU, but
        # JetPack has no such mode, and it gives up fusions.
        raise BackendError(
            f"{variant.title} was asked to build for compute capability {asked}: it builds for the "
            "GPU it runs on, because it times kernels there, and its hardware compatibility mode "
            "does not exist on JetPack. Run `edgefold engine` on the board itself without "
            "--compute-capability; TensorRT-RTX (pip install tensorrt-rtx) builds ahead for "
            "desktop GPUs."
        )
    known = supported_capabilities(variant)
    if any(capability not in known for capability in capabilities):
        raise BackendError(
            f"{variant.title} was asked to build for compute capability {asked}; it knows "
            f"{', '.join(known)}. A Jetson has TensorRT instead: run `edgefold engine` there."
        )


def _members(variant: Variant) -> dict[str, Any]:
    if variant.name != "tensorrt_rtx":
        return {}
    every = variant.module.ComputeCapability.__members__
    numbered = {name[2:]: member for name, member in every.items() if name[2:].isdigit()}
    # It lists 7.5, and then refuses every product of float32 there.
    numbered = {digits: member for digits, member in numbered.items() if int(digits) >= 80}
    return {f"{digits[:-1]}.{digits[-1]}": member for digits, member in numbered.items()}


def _configure(variant: Variant, builder: Any, options: EngineOptions) -> Any:
    trt = variant.module
    config = builder.create_builder_config()
    # On by default: products of float32 rounded to 10 bits, which a state that must stay within
    # 1e-5 cannot bear. What may be short is float16 in the graph.
    config.clear_flag(trt.BuilderFlag.TF32)
    # Else it may take 0 * x for 0 and x - x too, which hides NaN; TensorRT 10.3 lacks the flag.
    if hasattr(trt.BuilderFlag, "STRICT_NANS"):
        config.set_flag(trt.BuilderFlag.STRICT_NANS)
    # Steps of tens of microseconds: branches side by side cost more in events than they save, and
    # each stream would need scratch of its own.
    config.max_aux_streams = 0
    # Names and types of the kernels, for `edgefold engine --inspect`; the kernels stay the same.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if options.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if variant.name == "tensorrt_rtx":
        # NVIDIA asks for it where steps are captured.
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
        # Left alone, it builds for every capability it knows.
        members = _members(variant)
        targets = [members[name] for name in dict.fromkeys(options.compute_capabilities)]
        targets = targets or [trt.ComputeCapability.CURRENT]
        config.num_compute_capabilities = len(targets)
        for index, target in enumerate(targets):
            config.set_compute_capability(target, index)
    return config


def _inspect(variant: Variant, parsed: ParsedGraph, plan: Any) -> dict[str, Any]:
    """Return the facts "kernels" and "products" of a built engine; see `Build`.

    If they cannot be read, the build does not fail: "kernels_missing" is then the reason.
    """
    trt = variant.module
    try:
        products = asked_products(trt, parsed.network)
        if variant.name == "tensorrt_rtx":  # its builder's log lists them, also without a GPU
            kernels = read_log(parsed.logger.kernels)
        else:
            engine = trt.Runtime(parsed.logger).deserialize_cuda_engine(plan)
            form = trt.LayerInformationFormat.JSON
            kernels = read_inspector(engine.create_engine_inspector().get_engine_information(form))
    except Exception as error:  # whatever the bindings raise, also of an engine that is None
        missing = {"kernels_missing": f"{type(error).__name__}: {error}"}
        return {"kernels": [], "products": {}, **missing}
    missing = {} if kernels else {"kernels_missing": "the builder listed none"}
    return {"kernels": [asdict(kernel) for kernel in kernels], "products": products, **missing}


def _peak_bytes() -> int | None:
    """Return the most bytes of memory that this process has held at a time (VmHWM).

    The result is None where the kernel hides it.
    """
    try:
        said = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    except OSError:
        return None
    return int(said[1]) << 10 if said else None


def _attach_timing(config: Any, earlier: bytes) -> Any:
    """Give the build an earlier timing cache, or an empty one if TensorRT does not accept it.

    Returns:
        TensorRT's timing cache, to which the build adds its times.
    """
    timing = config.create_timing_cache(earlier)
    if timing is None or not config.set_timing_cache(timing, ignore_mismatch=False):
        timing = config.create_timing_cache(b"")
        config.set_timing_cache(timing, ignore_mismatch=False)
    return timing


def _describe(error: Any, logged: list[str]) -> str:
    """Describe the node and operator that TensorRT's parser refused, and why.

    Args:
        error: The parser's error.
        logged: The lines that TensorRT logged, which name a file that could not be opened.
    """
    reason = f"{error.code().name}: {' '.join(error.desc().split())}"
    if error.node() < 0:  # the file itself; the log names what could not be opened
        said = [line for line in logged if "Failed to open" in line]
        return "; ".join([reason, *said])
    name = error.node_name() or f"number {error.node()}"
    return f"node {name} ({error.node_operator()}): {reason} ({error.func()})"


def _explain(variant: Variant, onnx: Path, options: EngineOptions, errors: list[str]) -> str:
    reason = "; ".join(errors) or "it gave no reason"
    if options.workspace_bytes is not None and "workspace" in reason:
        advice = f"Give more than the {options.workspace_bytes} bytes of workspace."
    elif "cudaError" in reason and not options.compute_capabilities:
        advice = "No GPU answers here: name a compute capability to build for another machine."
    elif "memory" in reason.lower():
        advice = "Close other programs, or give a smaller workspace and optimization level 0."
    else:
        advice = "Use the backend onnxruntime meanwhile."
    return f"{variant.title} cannot build {onnx}: {reason.rstrip('.')}. {advice}"
