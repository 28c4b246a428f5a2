"""Read the facts that are stored with an engine: how and where it was built, and its kernels.

Nothing that runs depends on them. TensorRT times its kernels in the power mode of the build, so an
engine that was built in another mode runs, but is tuned for other clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefold.runtime.backends.tensorrt.inspection import Kernel, product_type

BIRTH = ("seconds", "peak_bytes", "workspace_bytes", "optimization_level", "conditions")


def birth(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an engine's build, without its kernels."""
    return {name: facts[name] for name in BIRTH if name in facts}


def describe_modes(built: Iterable[Mapping[str, Any]], now: Mapping[str, Any]) -> str:
    """Describe in which power mode engines were built and this machine runs.

    Args:
        built: The facts of engines.
        now: The machine's conditions, as `EngineOptions.conditions` returns them.

    Returns:
        "built in 25W, running in MAXN_SUPER", or one of both; "" where neither is known.
    """
    modes = {str(mode) for facts in built if (mode := _mode(facts.get("conditions")))}
    running = _mode(now)
    words = [f"built in {', '.join(sorted(modes))}"] if modes else []
    words += [f"running in {running}"] if running else []
    return ", ".join(words)


def kernels_of(facts: Mapping[str, Any]) -> list[Kernel]:
    """Return the kernels of an engine, in the order in which they run."""
    kernels = []
    for form in facts.get("kernels", ()):
        fields: dict[str, Any] = {n: tuple(v) if type(v) is list else v for n, v in form.items()}
        kernels.append(Kernel(**fields))
    return kernels


def products_of(facts: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the narrow products of a graph by node: the type asked for, and the engine's type."""
    kernels = kernels_of(facts)
    asked = facts.get("products", {}).items()
    return {node: (narrow, product_type(node, narrow, kernels)) for node, narrow in asked}


def _mode(conditions: Any) -> str | None:
    mode = conditions.get("power_mode") if isinstance(conditions, Mapping) else None
    return None if mode is None else str(mode)
