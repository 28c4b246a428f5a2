"""List properties of ONNX operators that several parts of the exporter need, each in one place.

An operator with the property ...

    elementwise  computes each number from the numbers at the same place: may move across a Reshape
    unary        computes each number from one tensor: can be applied to each row of a convolution
    binary       does so from two tensors
    moves        gives, with some shapes, its input's numbers in order: then a Reshape does the same
    last_axis    works along its last axis: the other axes may be reshaped
    product      adds products
    bounded      gives small numbers, however large its input is
    half         may run in float16 next to products, as operators of `product` and `bounded` may
    scaled       lets int8 values pass without a change of their scale
    broadcasts   repeats its operands along axes until they have one shape
    reduces      makes one number of all numbers along some axes, and may keep these axes
    axes_18      had its axes as an attribute before version 18 of the operators
    normalises   gives numbers of one magnitude, whatever the magnitude of its input is
    views        always keeps all numbers in order

An operator that is not here has none of these properties. It is exported correctly, but perhaps
runs slower, or in a wider type, than it could. The rules of generated C state their own types.
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
    """Return the names of all operators that have one of the properties, such as "elementwise"."""
    return frozenset(name for name, facts in FACTS.items() if {*properties} & {*facts.split()})
