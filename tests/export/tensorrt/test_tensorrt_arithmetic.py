"""The compensated sum survives NVIDIA's graph compiler, read from the kernel that it wrote.

A compiler that reassociates turns TwoSum's error term into zero, and the state drifts unseen. An
engine of TensorRT-RTX holds its elementwise kernels as CUDA source, which is interpreted here, one
numpy operation a line, as it stands and with every product contracted into the sum that follows it
(fused multiply-add), which CUDA's own compiler may still do and does nothing beyond.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgefold.export.graphs.step_graphs import Sizes
from edgefold.export.lowering.steps import lower
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.builder import build_plan
from edgefold.runtime.backends.tensorrt.variant import find_variant
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.train.models.registry import create_model

pytest.importorskip(
    "tensorrt_rtx",
    reason="TensorRT-RTX is not installed; pip install tensorrt-rtx (x86-64 only)",
)

Values = NDArray[np.float32]
EXAMPLES = Path(__file__).parents[3] / "examples"
ARGUMENTS = re.compile(r"\bargs=\{([^}]*)\}")
BODY = re.compile(r'extern "C" __global__ void \w+\((.*?)\)\s*\{(.*?)\n\}', re.DOTALL)
LOAD = re.compile(r"(__v\d+) = \(\(__myln_float\*\)(__v\d+)\)\[")
STORE = re.compile(r"\(\(__myln_float\*\)(__v\d+)\)\[.*\] = (__v\d+);")
CALL = re.compile(r"(__v\d+) = __myln_([a-z]+)___\w+?\(([^)]*)\);")
MOVE = re.compile(r"(__v\d+) = (__v\d+|-?0x[0-9a-f.]+p[-+]\d+)f?;")
BITS = re.compile(r"(__v\d+) = __int_as_float\((0x[0-9a-f]+)\);")


class Kernel:
    """The longest kernel of an elementwise engine; calling it maps arrays by tensor name.

    The others move the constants that the recent sums start from again.
    """

    def __init__(self, plan: bytes, contracted: bool):
        text = plan.decode("latin-1")
        kernels = list(zip(ARGUMENTS.finditer(text), BODY.finditer(text), strict=True))
        if not kernels:
            pytest.skip("this version of TensorRT-RTX does not hold its kernels as source")
        named, found = max(kernels, key=lambda kernel: len(kernel[1][2]))
        names = [name.removesuffix(".1") for name in re.findall(r'"([^"]*)"', named[1])]
        slots = re.findall(r"__v\d+", found[1])
        self._names = dict(zip(slots, names, strict=True))
        self._lines = found[2].splitlines()
        self._contracted = contracted

    def __call__(self, inputs: dict[str, Values]) -> dict[str, Values]:
        # What is no tensor of the graph is a scalar of the engine's own: the graph's zero.
        known: dict[str, Any] = {
            slot: inputs.get(name, np.float32(0)) for slot, name in self._names.items()
        }
        products: dict[str, NDArray[np.float64]] = {}
        stored: dict[str, Values] = {}
        for line in self._lines:
            if match := STORE.search(line):
                stored[self._names[match[1]]] = known[match[2]]
            elif match := LOAD.search(line):
                known[match[1]] = known[match[2]]
            elif match := CALL.search(line):
                target, op = match[1], match[2]
                used = [name.strip() for name in match[3].split(",")]
                known[target] = OPERATIONS[op](*(known[name] for name in used))
                if op == "mul":
                    left, right = (np.asarray(known[name], np.float64) for name in used)
                    products[target] = left * right  # exact: two float32 fit
                elif op in ("add", "sub") and self._contracted:
                    known[target] = _fused(op, used, known, products)
            elif match := MOVE.search(line):
                known[match[1]] = (
                    known[match[2]] if match[2] in known else np.float32(float.fromhex(match[2]))
                )
            elif match := BITS.search(line):  # infinity has no other form in a source
                known[match[1]] = np.array(int(match[2], 16), np.uint32).view(np.float32)
        return stored


def _fused(
    op: str, used: list[str], known: dict[str, Any], products: dict[str, NDArray[np.float64]]
) -> Values:
    """a + b or a - b in one rounding, where an operand is a product: the second if both are."""
    left, right = (np.asarray(known[name], np.float64) for name in used)
    if used[1] in products:
        right = products[used[1]]
    elif used[0] in products:
        left = products[used[0]]
    return (left + right if op == "add" else left - right).astype(np.float32)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "exp": np.exp,
    "lt": np.less,
    "select": np.where,
    "move": lambda value: value,
}


@pytest.fixture(scope="module")
def plan(bundles: Path) -> bytes:
    """The engine of the tiny bundle's consolidation."""
    graph = load_manifest(bundles / "tiny").graphs["consolidate"]
    options = EngineOptions(compute_capabilities=("8.6",))
    return build_plan(find_variant("tensorrt_rtx"), bundles / "tiny" / graph.file, options).plan


@pytest.mark.long
@pytest.mark.parametrize("contracted", [False, True])
def test_ten_thousand_consolidations_lose_nothing(plan: bytes, contracted: bool) -> None:
    """Weights of 1e6 in all, where plain float32 sums are off by 5e-6."""
    consolidate = Kernel(plan, contracted)
    random = np.random.default_rng(0)
    shape, n = (1, 4, 17, 16), 10_000
    peaks = np.zeros((1, 4, 1, 16), np.float32)
    state = {"base_sums": np.zeros(shape, np.float32), "base_rest": np.zeros(shape, np.float32)}
    state["base_peak"] = peaks - 3
    exact, plain = np.zeros(shape), np.zeros(shape, np.float32)
    for step in range(n):
        recent = random.uniform(50, 150, shape).astype(np.float32)
        peak = peaks if step else peaks - 2  # the base is rescaled once
        after = consolidate({"recent_sums": recent, "recent_peak": peak, **state})
        state = {name: after[f"next_{name}"] for name in state}
        weight = np.exp(peak.astype(np.float64))
        exact += recent * weight
        plain += recent * weight.astype(np.float32)
    assert np.all(state["base_peak"] == 0)
    found = state["base_sums"].astype(np.float64) + state["base_rest"]
    # Sum and rest carry 48 bits between them: 1e-12 was found, with and without contraction.
    assert np.abs(found / exact - 1).max() < 1e-10
    assert np.abs(plain / exact - 1).max() > 1e-6


def test_float32_products_are_not_rounded_to_ten_bits(plan: bytes) -> None:
    """The engine itself says that TF32 is off, and that its work can be captured."""
    if b"tf32=" not in plan:
        pytest.skip("this version of TensorRT-RTX does not say")
    assert b"tf32=0" in plan and b"tf32=1" not in plan
    assert b"stream_capturable=1" in plan


@pytest.mark.long
def test_the_guard_of_a_step_compares_in_the_kernel(tmp_path: Path) -> None:
    """A product with 0 could be folded to 0; a comparison with infinity cannot."""
    model = create_model(str(EXAMPLES / "gru.py:Gru"), {"width": 4})
    (update,) = lower(model, Sizes(4, 1, 1)).of_step("update")
    path = tmp_path / "update.onnx"
    onnx.save(update.model, path)
    options = EngineOptions(compute_capabilities=("8.6",))
    text = build_plan(find_variant("tensorrt_rtx"), path, options).plan.decode("latin-1")
    kernels = [body[2] for body in BODY.finditer(text)]
    if not kernels:
        pytest.skip("this version of TensorRT-RTX does not hold its kernels as source")
    guards = [body for body in kernels if "__myln_abs_" in body and "__myln_lt_" in body]
    assert guards and all("__myln_select_" in body for body in guards)
