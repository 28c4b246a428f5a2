"""Write as text how a bundle's engines in the cache were built, and their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgefold.cli.text.numbers import format_bytes
from edgefold.runtime.backends.tensorrt.engine_cache import Entry
from edgefold.runtime.backends.tensorrt.engine_facts import (
    describe_modes,
    kernels_of,
    products_of,
)
from edgefold.runtime.backends.tensorrt.inspection import Kernel
from edgefold.runtime.backends.tensorrt.variant import Variant

KERNEL = "    {:<40} {:<15} {:<16} {:<16} {:<16} {}"
RTX = (
    "  TensorRT-RTX makes the code of gemm and runtime_fusion on the GPU, when a stream opens.\n"
    "  Listed is what its builder chose, which needs no GPU."
)
ATTENTION = (
    "their sums may be float16 (TensorRT's are before 11.3); `edgefold check --backend tensorrt`\n"
    "    tells whether the bundle bears that"
)


def listing(entries: Iterable[Entry], names: Mapping[str, str], now: Mapping[str, Any]) -> str:
    """Return a table of a bundle's engines, grouped by the GPU that they were built for.

    Args:
        entries: The bundle's engines in the cache.
        names: Name of each graph by the SHA-256 of its file.
        now: Present conditions of the machine, compared with those of the build.
    """
    head = f"  {'graph':<14}{'engine MB':>10}{'built in':>11}{'peak':>11}   file"
    groups = []
    for title, group in _grouped(entries).items():
        lines = [f"{title}\n", head]
        for entry in _in_order(group, names):
            seconds, peak = entry.facts.get("seconds"), entry.facts.get("peak_bytes")
            lines.append(
                f"  {names[entry.key.graph_sha256]:<14}{entry.n_bytes / 1e6:>10.2f}"
                f"{'-' if seconds is None else f'{seconds:.1f} s':>11}"
                f"{'-' if peak is None else format_bytes(peak):>11}   {entry.path.name}"
                + (f"   not used: {entry.reason}" if entry.reason else "")
            )
        modes = describe_modes((entry.facts for entry in group), now)
        groups.append("\n".join([*lines, *([f"  {modes}"] if modes else []), ""]))
    return "\n".join(groups)


def inspection(entries: Iterable[Entry], names: Mapping[str, str]) -> str:
    """Return a table of all kernels of a bundle's engines, with a summary at the end.

    Args:
        entries: The bundle's engines in the cache.
        names: Name of each graph by the SHA-256 of its file.
    """
    blocks = []
    for title, group in _grouped(entries).items():
        ordered = _in_order(group, names)
        lines = [title, ""]
        for entry in ordered:
            lines += [*_kernel_lines(names[entry.key.graph_sha256], entry.facts), ""]
        if any(entry.key.variant == "tensorrt_rtx" for entry in ordered):
            lines += [RTX, ""]
        lines.append(f"  {'graph':<14}{'kernels':>8}{'nodes':>7}   of which")
        for entry in ordered:
            lines.append(_summary(names[entry.key.graph_sha256], kernels_of(entry.facts)))
        lines += ["", *_verdicts(ordered, names), ""]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def _grouped(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        key = entry.key
        variant = Variant(key.variant, None, key.version)
        title = f"{variant.title} for compute capability {key.compute_capability}"
        groups.setdefault(title + (f", {key.device}" if key.device else ""), []).append(entry)
    return dict(sorted(groups.items()))


def _in_order(entries: Iterable[Entry], names: Mapping[str, str]) -> list[Entry]:
    """Return the engines in the order in which the bundle lists its graphs."""
    return sorted(entries, key=lambda entry: list(names).index(entry.key.graph_sha256))


def _kernel_lines(name: str, facts: Mapping[str, Any]) -> list[str]:
    kernels = kernels_of(facts)
    if not kernels:
        reason = facts.get("kernels_missing", "it was built by an older edgefold")
        return [f"  {name}: its kernels are not known ({reason}); build it again with --rebuild"]
    lines = [f"  {_birth(name, facts)}"]
    lines.append(KERNEL.format("kernel", "kind", "reads", "weights", "writes", "computes"))
    for kernel in kernels:
        types = (_types(tensors) for tensors in (kernel.reads, kernel.weights, kernel.writes))
        lines.append(
            KERNEL.format(_cut(kernel.name, 40), kernel.kind, *types, _nodes(kernel)).rstrip()
        )
    return lines


def _birth(name: str, facts: Mapping[str, Any]) -> str:
    """Return a line on how graph `name`'s engine was built: time, memory, power mode and clocks."""
    peak, workspace = facts.get("peak_bytes"), facts.get("workspace_bytes")
    level, conditions = facts.get("optimization_level"), facts.get("conditions") or {}
    words = [f"built in {facts.get('seconds', 0.0):.1f} s"]
    words += [] if peak is None else [f"builder's resident peak {format_bytes(peak)}"]
    words += [] if workspace is None else [f"workspace {workspace / (1 << 20):g} MiB"]
    words += [] if level is None else [f"optimization level {level}"]
    words += [f"power mode {conditions['power_mode']}"] if "power_mode" in conditions else []
    low, high = conditions.get("gpu_min_hz"), conditions.get("gpu_max_hz")
    if low is not None and high is not None:
        moved = " (not fixed while kernels were timed: run jetson_clocks)" if low < high else ""
        words.append(f"GPU clock {low / 1e6:.0f} to {high / 1e6:.0f} MHz{moved}")
    return f"{name}: {', '.join(words)}"


def _types(types: Sequence[str]) -> str:
    return "+".join(sorted(set(types))) or "-"


def _nodes(kernel: Kernel) -> str:
    shown, rest = kernel.nodes[:4], len(kernel.nodes) - 4
    return " ".join([*shown, *([f"and {rest} more"] if rest > 0 else [])]) or "moves data"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _summary(name: str, kernels: Sequence[Kernel]) -> str:
    nodes = {node for kernel in kernels for node in kernel.nodes}
    kinds = Counter(kernel.kind for kernel in kernels)
    counts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    n_fused = sum(len(kernel.nodes) > 1 for kernel in kernels)
    return f"  {name:<14}{len(kernels):>8}{len(nodes):>7}   {counts}; {n_fused} join several nodes"


def _verdicts(entries: Sequence[Entry], names: Mapping[str, str]) -> list[str]:
    """Return lines on how many products run in the float16 or int8 that the graphs ask for.

    A last line counts the attentions that TensorRT fused into one kernel of float16.
    """
    lines, fused = [], {}
    for entry in entries:
        name = names[entry.key.graph_sha256]
        products = products_of(entry.facts)
        for narrow in sorted({asked for asked, _ in products.values()}):
            asked = {node: real for node, (kind, real) in products.items() if kind == narrow}
            n_kept = sum(real == narrow for real in asked.values())
            lines.append(f"  {name}: {n_kept} of {len(asked)} {narrow} products run in {narrow}")
            for real in sorted(set(asked.values()) - {narrow}):
                which = " ".join(node for node, result in asked.items() if result == real)
                words = "not told" if real == "unknown" else f"stayed {real}"
                lines.append(f"    {words}: {which}")
        kernels = kernels_of(entry.facts)
        fused[name] = sum(k.is_fused_attention and "float16" in k.reads for k in kernels)
    counted = ", ".join(f"{name} {n}" for name, n in fused.items() if n)
    if counted:
        lines.append(f"  attentions in one kernel of float16: {counted};\n    {ATTENTION}")
    return lines
