"""Facts about ONNX operators that several parts of the exporter need, each stated once.

    elementwise  a number comes from the numbers at the same place: its node may move over reshapes
    unary        of one tensor, and each row of a convolution may pass through it by itself
    binary       likewise of two tensors
    moves        the bytes may keep their order, so that a Reshape does the same
    last_axis    works along its last axis: the others may be reshaped
    product      a sum of products
    bounded      its output is small whatever its input is
    half         may run in float16 next to products, which `product` and `bounded` may as well
    scaled       keeps a scale: int8 values pass through it

An operator that is not here has none of these properties, and is correct, but perhaps slower or
wider than it could be. The types that generated C computes in are facts of its rule.
"""

from __future__ import annotations

FACTS: dict[str, str] = {
    "Abs": "elementwise unary half",
    "Add": "elementwise binary half",
    "Cast": "elementwise",
    "Clip": "elementwise half",
    "Concat": "scaled half",
    "Conv": "product",
    "Cos": "elementwise",
    "Div": "elementwise binary",
    "Elu": "unary",
    "Erf": "elementwise unary bounded",
    "Exp": "elementwise unary",
    "Expand": "moves scaled half",
    "Flatten": "moves half",
    "Gather": "moves half",
    "Gelu": "half",
    "Gemm": "product",
    "Identity": "moves scaled half",
    "LayerNormalization": "last_axis bounded",
    "LeakyRelu": "elementwise unary half",
    "Log": "elementwise",
    "MatMul": "product",
    "Max": "elementwise binary half",
    "Min": "elementwise binary half",
    "Mul": "elementwise binary half",
    "Neg": "elementwise half",
    "PRelu": "binary",
    "Pad": "half",
    "Pow": "elementwise binary",
    "Reciprocal": "elementwise",
    "ReduceMax": "moves",
    "ReduceMean": "moves",
    "ReduceMin": "moves",
    "ReduceProd": "moves",
    "ReduceSum": "moves",
    "Relu": "elementwise unary half",
    "Reshape": "moves scaled half",
    "Sigmoid": "elementwise unary bounded",
    "Sin": "elementwise",
    "Slice": "moves scaled half",
    "Softmax": "last_axis bounded",
    "Softplus": "elementwise unary",
    "Split": "last_axis half",
    "Sqrt": "elementwise unary",
    "Squeeze": "moves scaled half",
    "Sub": "elementwise binary half",
    "Tanh": "elementwise unary bounded",
    "Tile": "half",
    "Transpose": "moves scaled half",
    "Unsqueeze": "moves scaled half",
    "Where": "elementwise half",
}


def having(*properties: str) -> frozenset[str]:
    """Return the operators that have at least one of the properties."""
    return frozenset(name for name, facts in FACTS.items() if {*properties} & {*facts.split()})
