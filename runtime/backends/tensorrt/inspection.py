"""Read which kernels TensorRT made from a graph, their types, and the nodes that each computes.

A kernel is a program that runs on the GPU. TensorRT lists the kernels of an engine in two ways,
both with the names of the graph's nodes:

    IEngineInspector   JSON, from a loaded engine: needs the GPU
    the builder's log  one line a kernel, at the end of a build: TensorRT-RTX, without a GPU

Both lists contain the types that a kernel reads and writes, not the type in which it computes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LOG_START = "Layers:\n"
"""The message in the builder's log that lists the kernels begins with this line."""

_TYPES = {
    **{"float": "float32", "fp32": "float32", "half": "float16", "fp16": "float16"},
    **{"bfloat16": "bfloat16", "bf16": "bfloat16", "fp8": "float8", "int8": "int8"},
    **{"int4": "int4", "uint8": "uint8", "int32": "int32", "int64": "int64", "bool": "bool"},
}
_TYPE = re.compile(rf"\b({'|'.join(_TYPES)})\b", re.IGNORECASE)
_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_LINE = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<kind>\w+), Inputs: \[(?P<reads>.*?)\](?=, [CO])"
    r"(?:, Constants: \[(?P<weights>.*?)\](?=, O))?, Outputs: \[(?P<writes>.*?)\](?=, T)"
    r", TacticName: (?P<tactic>.*?), StreamId: \d+, Metadata: (?P<nodes>.*)"
)
_MULTIPLIES = re.compile(r"MulSum|gemm|matmul|conv|mha|fc_|fc\b", re.IGNORECASE)
"""Matches the names of kernels that compute a product; a generated kernel is named by its work."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Describes one kernel of an engine.

    Types are numpy's names of element types; "unknown" where TensorRT names no type.

    Attributes:
        name: TensorRT's name of the kernel.
        kind: TensorRT's word, such as "gemm", or "kgen" for a kernel that TensorRT generated.
        reads, weights, writes: Types of the kernel's inputs, constants and outputs.
        nodes: Names of the graph's nodes that the kernel computes, wholly or in part.
        tactic: Name of the implementation that TensorRT chose.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    weights: tuple[str, ...]
    writes: tuple[str, ...]
    nodes: tuple[str, ...]
    tactic: str

    @property
    def is_fused_attention(self) -> bool:
        """Return whether the kernel computes an attention's two products and softmax together."""
        return "mha" in f"{self.name} {self.tactic}".lower()


def read_inspector(text: str) -> list[Kernel]:
    """Read the kernels of an engine from the JSON text of TensorRT's IEngineInspector.

    TensorRT 10 writes a tensor's type into "Format/Datatype", as a word or within a sentence; newer
    versions have "Datatype". Kernels of an engine that was built without details have
    a name, and all other fields empty.

    Raises:
        ValueError: The text is not JSON of an inspector.
    """
    content = json.loads(text)
    layers = content.get("Layers") if isinstance(content, dict) else content
    if not isinstance(layers, list):
        raise ValueError("the inspector's JSON has no list of layers")
    return [_kernel({"Name": layer} if isinstance(layer, str) else layer) for layer in layers]


def read_log(message: str) -> list[Kernel]:
    """Read the kernels of an engine from the message in the builder's log that lists them.

    Args:
        message: The message, which begins with `LOG_START`; lines that are not understood are
            passed over.
    """
    kernels = []
    for line in message.removeprefix(LOG_START).splitlines():
        if found := _LINE.match(line):
            kernels.append(
                Kernel(
                    name=found["name"],
                    kind=found["kind"],
                    reads=_types(found["reads"]),
                    weights=_types(found["weights"] or ""),
                    writes=_types(found["writes"]),
                    nodes=tuple(_NODE.findall(found["nodes"])),
                    tactic=found["tactic"],
                )
            )
    return kernels


def asked_products(trt: Any, network: Any) -> dict[str, str]:
    """List the matrix products that should be computed in a narrow type, as the graph states.

    Args:
        trt: TensorRT's module.
        network: The parsed network of the graph.

    Returns:
        The type of each such product by its node's name: "float16", or "int8" where both factors
        are int8 numbers with a scale.
    """
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    grids = (layer for layer in layers if layer.type == trt.LayerType.DEQUANTIZE)
    on_grid = {layer.get_output(0).name for layer in grids}
    asked = {}
    for layer in layers:
        if layer.type != trt.LayerType.MATRIX_MULTIPLY:
            continue
        node = next(iter(_NODE.findall(layer.metadata)), layer.name)
        if {layer.get_input(0).name, layer.get_input(1).name} <= on_grid:
            asked[node] = "int8"
        elif layer.get_output(0).dtype == trt.float16:
            asked[node] = "float16"
    return asked


def product_type(node: str, asked: str, kernels: Sequence[Kernel]) -> str:
    """Return the type in which an engine computes a product.

    Args:
        node: Name of the product's node in the graph.
        asked: The type that the graph states, "float16" or "int8".
        kernels: The engine's kernels.

    Returns:
        "int8", "float16" or "float32"; "unknown" where no kernel names the node, or where a kernel
        that TensorRT generated reads int8 factors but the type in which it multiplies is not
        listed.
    """
    naming = [kernel for kernel in kernels if node in kernel.nodes]
    holding = [k for k in naming if _MULTIPLIES.search(f"{k.kind} {k.name} {k.tactic}")] or naming
    factors = [(kernel, (*kernel.reads, *kernel.weights)) for kernel in holding]
    if asked == "int8":
        both = [kernel for kernel, types in factors if types.count("int8") >= 2]
        if any(kernel.kind != "kgen" for kernel in both):
            return "int8"
        if both:
            return "unknown"
    for narrow in ("float16", "float32"):
        if any(narrow in types for _, types in factors):
            return narrow
    return "unknown"


def _kernel(layer: dict[str, Any]) -> Kernel:
    constants = [*layer.get("Constants", ()), layer.get("Weights", {})]
    return Kernel(
        name=str(layer.get("Name", "")),
        kind=str(layer.get("LayerType", "")),
        reads=tuple(_type_of(tensor) for tensor in layer.get("Inputs", ())),
        weights=tuple(_type_of(tensor) for tensor in constants if tensor),
        writes=tuple(_type_of(tensor) for tensor in layer.get("Outputs", ())),
        nodes=tuple(_NODE.findall(str(layer.get("Metadata", "")))),
        tactic=str(layer.get("TacticName", "")),
    )


def _type_of(tensor: dict[str, Any]) -> str:
    texts = (tensor.get(name) for name in ("Datatype", "Format/Datatype", "Type", "Format"))
    match = _TYPE.search(str(next((text for text in texts if text), "")))
    return _TYPES[match[0].lower()] if match else "unknown"


def _types(tensors: str) -> tuple[str, ...]:
    names = re.findall(r"Datatype: (\w+)", tensors)
    return tuple(_TYPES.get(name.lower(), "unknown") for name in names)
