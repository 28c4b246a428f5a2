"""Read the facts that are stored with an engine: how and where it was built, and its kernels.

The facts are only reported: no engine runs differently because of them. TensorRT measures kernels
in the power mode of the build, so an engine that was built in another mode runs, but is tuned for
other clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefold.runtime.backends.tensorrt.inspection import Kernel, product_type

BIRTH = ("seconds", "peak_bytes", "workspace_bytes", "optimization_level", "conditions")


def birth(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return those facts that describe an engine's build, such as its seconds and peak memory."""
    return {name: facts[name] for name in BIRTH if name in facts}


def describe_modes(built: Iterable[Mapping[str, Any]], now: Mapping[str, Any]) -> str:
    """Describe in which power modes engines were built, and in which one this machine runs.

    Args:
        built: The facts of each engine.
        now: The machine's conditions, as `EngineOptions.conditions` returns them.

    Returns:
        Text such as "built in 25W, running in MAXN_SUPER". A part that is not known is left out;
        "" where neither is known.
    """
    modes = {str(mode) for facts in built if (mode := _mode(facts.get("conditions")))}
    running = _mode(now)
    words = [f"built in {', '.join(sorted(modes))}"] if modes else []
    words += [f"running in {running}"] if running else []
    return ", ".join(words)


def kernels_of(facts: Mapping[str, Any]) -> list[Kernel]:
    """Return the kernels that an engine's facts list, in the order in which they run."""
    kernels = []
    for form in facts.get("kernels", ()):
        fields: dict[str, Any] = {n: tuple(v) if type(v) is list else v for n, v in form.items()}
        kernels.append(Kernel(**fields))
    return kernels


def products_of(facts: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the types of a graph's matrix products that should be computed in a narrow type.

    Returns:
        For each product, by the name of its node: the type that the graph states ("float16" or
        "int8"), and the type in which the engine computes it; see `product_type`.
    """
    kernels = kernels_of(facts)
    asked = facts.get("products", {}).items()
    return {node: (narrow, product_type(node, narrow, kernels)) for node, narrow in asked}


def _mode(conditions: Any) -> str | None:
    mode = conditions.get("power_mode") if isinstance(conditions, Mapping) else None
    return None if mode is None else str(mode)
