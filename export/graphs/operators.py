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
    float32      generated C computes it in single precision only

An operator that is not here has none of these properties. A new operator of generated C is a rule
in `edgefold.export.native.rules` and, where a property holds, a line here.
"""

from __future__ import annotations

FACTS: dict[str, str] = {
    "Abs": "elementwise unary half",
    "Add": "elementwise binary half",
    "ArgMax": "float32",
    "ArgMin": "float32",
    "Cast": "elementwise",
    "Ceil": "float32",
    "Clip": "elementwise half",
    "Concat": "scaled half",
    "Conv": "product",
    "Cos": "elementwise float32",
    "Div": "elementwise binary",
    "Elu": "unary",
    "Erf": "elementwise unary bounded float32",
    "Exp": "elementwise unary float32",
    "Expand": "moves scaled half",
    "Flatten": "moves half",
    "Floor": "float32",
    "Gather": "moves half",
    "Gelu": "half",
    "Gemm": "product",
    "Identity": "moves scaled half",
    "IsInf": "float32",
    "IsNaN": "float32",
    "LayerNormalization": "last_axis bounded float32",
    "LeakyRelu": "elementwise unary half",
    "Log": "elementwise float32",
    "LogSoftmax": "float32",
    "MatMul": "product",
    "Max": "elementwise binary half",
    "Min": "elementwise binary half",
    "Mul": "elementwise binary half",
    "Neg": "elementwise half",
    "PRelu": "binary",
    "Pad": "half",
    "Pow": "elementwise binary float32",
    "QuantizeLinear": "float32",
    "Reciprocal": "elementwise float32",
    "ReduceLogSumExp": "float32",
    "ReduceMax": "moves",
    "ReduceMean": "moves float32",
    "ReduceMin": "moves",
    "ReduceProd": "moves",
    "ReduceSum": "moves",
    "Relu": "elementwise unary half",
    "Reshape": "moves scaled half",
    "Round": "float32",
    "Sigmoid": "elementwise unary bounded float32",
    "Sin": "elementwise float32",
    "Slice": "moves scaled half",
    "Softmax": "last_axis bounded float32",
    "Softplus": "elementwise unary float32",
    "Split": "last_axis half",
    "Sqrt": "elementwise unary float32",
    "Squeeze": "moves scaled half",
    "Sub": "elementwise binary half",
    "Tanh": "elementwise unary bounded float32",
    "Tile": "half",
    "TopK": "float32",
    "Transpose": "moves scaled half",
    "Unsqueeze": "moves scaled half",
    "Where": "elementwise half",
}


def having(*properties: str) -> frozenset[str]:
    """Return the operators that have at least one of the properties."""
    return frozenset(name for name, facts in FACTS.items() if {*properties} & {*facts.split()})
