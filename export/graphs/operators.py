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
    broadcasts   widens its operands to one shape
    reduces      makes one number of those along some axes, and may keep the axes
    axes_18      took its axes as an attribute before version 18
    normalises   its output has one size whatever the size of its input is
    views        keeps all bytes in order, always

An operator that is not here has none of these properties, and is correct, but perhaps slower or
wider than it could be. The types that generated C computes in are facts of its rule.
"""

from __future__ import annotations

FACTS: dict[str, str] = {
    "Abs": "elementwise unary half",
    "Add": "elementwise binary half broadcasts",
    "And": "broadcasts",
    "ArgMax": "reduces",
    "ArgMin": "reduces",
    "Cast": "elementwise",
    "Clip": "elementwise half",
    "Concat": "scaled half",
    "Conv": "product",
    "Cos": "elementwise",
    "Div": "elementwise binary broadcasts",
    "Elu": "unary",
    "Equal": "broadcasts",
    "Erf": "elementwise unary bounded",
    "Exp": "elementwise unary",
    "Expand": "moves scaled half",
    "Flatten": "moves half views",
    "Gather": "moves half",
    "Gelu": "half",
    "Gemm": "product",
    "Greater": "broadcasts",
    "GreaterOrEqual": "broadcasts",
    "Identity": "moves scaled half views",
    "InstanceNormalization": "normalises",
    "LayerNormalization": "last_axis bounded normalises",
    "LeakyRelu": "elementwise unary half",
    "Less": "broadcasts",
    "LessOrEqual": "broadcasts",
    "Log": "elementwise",
    "MatMul": "product",
    "Max": "elementwise binary half broadcasts",
    "Min": "elementwise binary half broadcasts",
    "Mod": "broadcasts",
    "Mul": "elementwise binary half broadcasts",
    "Neg": "elementwise half",
    "Or": "broadcasts",
    "PRelu": "binary",
    "Pad": "half",
    "Pow": "elementwise binary broadcasts",
    "Reciprocal": "elementwise",
    "ReduceL1": "reduces axes_18",
    "ReduceL2": "reduces axes_18",
    "ReduceLogSum": "reduces axes_18",
    "ReduceLogSumExp": "reduces axes_18",
    "ReduceMax": "moves reduces axes_18",
    "ReduceMean": "moves reduces axes_18",
    "ReduceMin": "moves reduces axes_18",
    "ReduceProd": "moves reduces axes_18",
    "ReduceSum": "moves reduces",
    "ReduceSumSquare": "reduces axes_18",
    "Relu": "elementwise unary half",
    "Reshape": "moves scaled half views",
    "Sigmoid": "elementwise unary bounded",
    "Sin": "elementwise",
    "Slice": "moves scaled half",
    "Softmax": "last_axis bounded normalises",
    "Softplus": "elementwise unary",
    "Split": "last_axis half",
    "Sqrt": "elementwise unary",
    "Squeeze": "moves scaled half views",
    "Sub": "elementwise binary half broadcasts",
    "Tanh": "elementwise unary bounded",
    "Tile": "half",
    "Transpose": "moves scaled half",
    "Unsqueeze": "moves scaled half views",
    "Where": "elementwise half broadcasts",
}


def having(*properties: str) -> frozenset[str]:
    """Return the operators that have at least one of the properties."""
    return frozenset(name for name, facts in FACTS.items() if {*properties} & {*facts.split()})
