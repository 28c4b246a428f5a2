"""Read the kernels that TensorRT made of a graph, their types, and the nodes that each computes.

TensorRT lists them in two ways, both with the names of the graph's nodes:

    IEngineInspector   JSON, from a loaded engine: needs the GPU
    the builder's log  one line a kernel, at the end of a build: TensorRT-RTX, without a GPU

The lists contain the types that a kernel reads and writes, not the types in which it computes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LOG_START = "Layers:\n"
"""First line of the message in the builder's log that lists the kernels."""

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
"""Names of kernels that hold a product: a generated one is named by what it does."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One layer of an engine; types are numpy's names, "unknown" where TensorRT names none.

    Attributes:
        kind: TensorRT's word, such as "gemm", or "kgen" for a kernel that it generated.
        reads, weights, writes: Types of inputs, constants and outputs.
        nodes: The graph's nodes that it computes, wholly or in part.
        tactic: The implementation that TensorRT chose.
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
        """Whether both products of an attention and its softmax are in it."""
        return "mha" in f"{self.name} {self.tactic}".lower()


def read_inspector(text: str) -> list[Kernel]:
    """Read the JSON of IEngineInspector.

    TensorRT 10 writes a tensor's type into "Format/Datatype", as a word or within a sentence; newer
    versions have "Datatype". An engine that was built without details has only names.

    Raises:
        ValueError: The text is not JSON of an inspector.
    """
    content = json.loads(text)
    layers = content.get("Layers") if isinstance(content, dict) else content
    if not isinstance(layers, list):
        raise ValueError("the inspector's JSON has no list of layers")
    return [_kernel({"Name": layer} if isinstance(layer, str) else layer) for layer in layers]


def read_log(message: str) -> list[Kernel]:
    """Read the message of the builder's log that begins with `LOG_START`."""
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
    """List the matrix products that the graph computes in a narrow type.

    Args:
        trt: TensorRT's module.
        network: A parsed network.

    Returns:
        The type by node: "float16", or "int8" where both factors come from an int8 grid.
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

    Returns:
        "int8", "float16" or "float32"; "unknown" where no kernel names the node, or where a kernel
        that TensorRT generated reads int8 and its type of multiplication is not listed.
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
