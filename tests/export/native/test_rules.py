"""Every rule of the generator against onnxruntime, on graphs of a few nodes, in one library."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefold.export.graphs.static_graph import inferred, shapes_of
from edgefold.export.native.c_pieces import needed
from edgefold.export.native.generator import FOLDER, PARTS, write_function
from edgefold.export.native.program.constants import Constants
from edgefold.export.native.program.extremes import with_extremes
from edgefold.export.native.rules import RULES
from edgefold.export.native.toolchain.compilers import compile_library
from edgefold.runtime.bundle.manifest import Tensor
from tests.export.native.rule_cases import (
    RANDOM,
    Array,
    Case,
    i64,
    integers,
    node,
    normal,
    one,
    two,
)
from tests.native_builds import compiler_or_skip

onnxruntime = pytest.importorskip("onnxruntime")
TOLERANCE = 2e-6
"""Of results around 1: the same float32 sums in another order."""


UNARY = (
    *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Round", "Sigmoid", "Sign"),
    *("Sin", "Softplus", "Tanh", "Identity", "Elu"),
)
ERF = (node("Sub", ["a", "b"], ["c"]), node("Erf", ["c"], ["d"]))
COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
INFINITE = np.array([[1, np.nan], [np.inf, np.nan], [np.inf, 1], [-np.inf, -np.inf]], np.float32)
ATTENTION = Case(
    "Attention",
    (
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["heads"]),
        node("Transpose", ["heads"], ["turned"], perm=[1, 0, 2]),
        node("Reshape", ["turned", "shape"], ["out"]),
    ),
    {name: normal(3, 24, 8) for name in "qkv"},
    {"scale": np.float32(0.35), "shape": i64(24, 24)},
)
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -2.0, 3.0, 0.5, 3.4e38], np.float32)
PAIRS = {name: m.reshape(-1).copy() for name, m in zip("ab", np.meshgrid(ODD, ODD), strict=True)}
"""Every pair of odd numbers."""


def chosen(name: str, comparison: str, inputs: dict[str, Array]) -> Case:
    """A case of the larger or smaller of two numbers, written as graphs of bundles write it."""
    nodes = node(comparison, ["a", "b"], ["t"]), node("Where", ["t", "b", "a"], ["out"])
    return Case(name, nodes, inputs)


def recurrent(name: str, op: str, gates: int, outputs: list[str], **attributes: Any) -> Case:
    """A case of a recurrence of 3 times, 2 streams, 5 inputs and 8 units, with all its weights."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    initial = ["h", "c"] if op == "LSTM" else ["h"]
    inputs = ["x", "w", "r", "b", "", *initial]
    return Case(
        name,
        (node(op, inputs, outputs, hidden_size=8, **attributes),),
        {"x": normal(3, 2, 5), **{key: normal(ways, 2, 8) for key in initial}},
        {
            "w": normal(ways, 8 * gates, 5),
            "r": normal(ways, 8 * gates, 8),
            "b": normal(ways, 16 * gates),
        },
    )


CASES = (
    ATTENTION,
    *(chosen(f"{of}-pairs", of, PAIRS) for of in ("Less", "Greater")),
    chosen("Less-int", "Less", {"a": integers(4, 5), "b": integers(5)}),
    chosen("Greater-int", "Greater", {"a": integers(4, 5), "b": integers(5)}),
    *(one(op, op, normal(3, 21) * 3) for op in UNARY),
    *(one(op, op, np.abs(normal(3, 21)) + 0.1) for op in ("Log", "Sqrt", "Reciprocal")),
    *(one(op, op, normal(4, 1, 5), normal(3, 5)) for op in ("Add", "Sub", "Mul", "Div")),
    *(one(f"{op}-int", op, integers(4, 5), integers(5) + 1) for op in ("Add", "Mul", "Div", "Mod")),
    *(one(op, op, normal(4, 5), normal(4, 1), normal(5)) for op in ("Max", "Min", "Sum")),
    *(one(op, op, integers(4, 5), integers(5)) for op in COMPARED),
    *(one(op, op, integers(9) > 2, integers(9) > 2) for op in ("And", "Or", "Xor")),
    one("Div-by-number", "Div", normal(4, 5), np.float32(1.4142135), constants=1),
    one("Div-by-zero", "Div", normal(4, 5), np.float32(0), constants=1),
    one("Not", "Not", integers(9) > 2),
    one("Mod-negative", "Mod", integers(30, high=9) - 4, i64(3)),
    one("Mod-by-negative", "Mod", integers(30, high=9) - 4, i64(-3)),
    one("Where", "Where", integers(3, 1) > 2, normal(3, 17), normal(17)),
    one("Where-int", "Where", integers(6) > 2, integers(6), integers(6)),
    one("Clip", "Clip", normal(20), np.float32(-0.5), np.float32(0.5), constants=2),
    one("Pow-2", "Pow", normal(20), np.float32(2), constants=1),
    one("Pow-half", "Pow", np.abs(normal(20)), np.float32(0.5), constants=1),
    one("Pow", "Pow", np.abs(normal(20)) + 0.1, normal(20)),
    one("Pow-whole", "Pow", normal(3, 5), np.array([-6, 0, 1, 3, 15], np.float32), constants=1),
    *(
        Case(f"Pow-of-{name}", (node("Pow", ["w", "a"], ["out"]),), {"a": 3 * normal(4, 3)},
             {"w": np.array(base, np.float32)})
        for name, base in {"constants": [0.5, 0.98, 1e20], "2": 2, "1": [1, 2, 3]}.items()
    ),
    one("Cast-to-int", "Cast", normal(20) * 9, to=TensorProto.INT64),
    one("Cast-to-bool", "Cast", integers(20, high=2), to=TensorProto.BOOL),
    one("Cast-to-float", "Cast", integers(20), to=TensorProto.FLOAT),
    one("Transpose", "Transpose", normal(2, 3, 4), perm=[2, 0, 1]),
    one("Reshape", "Reshape", normal(2, 3, 4), i64(6, 4), constants=1),
    one("Expand", "Expand", normal(3, 1), i64(2, 3, 4), constants=1),
    one("Slice", "Slice", normal(4, 9), i64(1), i64(8), i64(1), i64(3), constants=4),
    one("Slice-backwards", "Slice", normal(9), i64(-1), i64(-100), i64(0), i64(-2), constants=4),
    one("Concat", "Concat", normal(2, 3), normal(2, 1), normal(2, 5), axis=-1),
    one("Tile", "Tile", normal(2, 3), i64(2, 3), constants=1),
    one("Pad", "Pad", normal(2, 3), i64(1, 0, 0, 2), np.float32(7), constants=2),
    one("Pad-reflect", "Pad", normal(2, 6), i64(0, 3, 0, 2), constants=1, mode="reflect"),
    one("Pad-edge", "Pad", normal(2, 6), i64(0, 3, 1, 2), constants=1, mode="edge"),
    one("ConstantOfShape", "ConstantOfShape", i64(2, 3), constants=1),
    one("ReduceSum-last", "ReduceSum", normal(3, 37), i64(-1), constants=1, keepdims=0),
    one("ReduceSum-first", "ReduceSum", normal(5, 3, 17), i64(0), constants=1),
    one("ReduceSum-many", "ReduceSum", normal(70, 17), i64(0), constants=1, keepdims=0),
    one("ReduceSum-middle", "ReduceSum", normal(3, 5, 7), i64(1), constants=1),
    one("ReduceSum-two", "ReduceSum", normal(3, 5, 7), i64(0, 2), constants=1),
    one("ReduceSum-all", "ReduceSum", normal(3, 5), keepdims=0),
    one("ReduceSum-int", "ReduceSum", integers(3, 5), i64(1), constants=1),
    one("ReduceMax", "ReduceMax", normal(3, 40), axes=[1]),
    one("ReduceMax-first", "ReduceMax", normal(40, 3), axes=[0], keepdims=0),
    one("ReduceMin", "ReduceMin", normal(3, 40), axes=[1]),
    one("ReduceMean", "ReduceMean", normal(3, 4, 5), axes=[1]),
    one("ReduceLogSumExp", "ReduceLogSumExp", normal(3, 40), axes=[1]),
    one("Softmax", "Softmax", normal(3, 40) * 9),
    one("Softmax-first", "Softmax", normal(40, 3), axis=0),
    one("LogSoftmax", "LogSoftmax", normal(3, 40)),
    one("LayerNormalization", "LayerNormalization", normal(3, 4, 21), normal(21), normal(21),
        constants=2),
    one("ArgMax", "ArgMax", normal(3, 9), axis=1),
    one("CumSum", "CumSum", normal(3, 9), i64(0), constants=1),
    one("CumSum-int", "CumSum", integers(3, 9), i64(1), constants=1),
    one("Gather", "Gather", normal(4, 6, 3), integers(2, 5), axis=1),
    one("Gather-negative", "Gather", normal(6, 3), integers(5) - 5),
    one("Gather-steps", "Gather", normal(2, 9), i64(1, 3, 5), constants=1, axis=1),
    one("Gather-number", "Gather", normal(4, 9), np.int64(2), constants=1),
    one("GatherElements", "GatherElements", normal(4, 5), integers(4, 3), axis=1),
    one("GatherND", "GatherND", normal(5, 5, 3), integers(4, 2)),
    one("GatherND-batch", "GatherND", normal(2, 5, 3), integers(2, 4, 1), batch_dims=1),
    one("MatMul", "MatMul", normal(2, 7, 5), normal(2, 5, 37)),
    one("MatMul-broadcast", "MatMul", normal(3, 2, 7, 5), normal(2, 5, 16)),
    one("MatMul-weights", "MatMul", normal(3, 7, 65), normal(65, 29), constants=1),
    one("MatMul-weights-batch", "MatMul", normal(2, 1, 9), normal(2, 9, 40), constants=1),
    one("MatMul-streams", "MatMul", normal(3, 4, 2, 9), normal(4, 9, 40), constants=1),
    one("MatMul-streams-of-one", "MatMul", normal(3, 4, 2, 9), normal(1, 1, 9, 40), constants=1),
    one("MatMul-streams-late", "MatMul", normal(3, 4, 2, 9), normal(3, 1, 9, 40)),
    one("MatMul-turned", "MatMul", normal(1, 4), normal(4, 1)),
    one("MatMul-one-column", "MatMul", normal(2, 3, 19, 24), normal(2, 3, 24, 1)),
    one("MatMul-two-columns", "MatMul", normal(3, 15, 15), normal(3, 15, 2)),
    one("MatMul-outer", "MatMul", normal(3, 15, 2), normal(3, 2, 15)),
    one("Gemm", "Gemm", normal(9, 33), normal(33, 63), normal(63), constants=2),
    one("Gemm-turned", "Gemm", normal(33, 9), normal(63, 33), normal(9, 63),
        transA=1, transB=1, alpha=0.5, beta=2.0),
    one("Gemm-weights-turned", "Gemm", normal(1, 33), normal(19, 33), normal(19), constants=2,
        transB=1, alpha=0.5, beta=2.0),
    one("Gemm-bias-column", "Gemm", normal(4, 8), normal(8, 20), normal(4, 1), constants=2),
    one("Conv", "Conv", normal(1, 3, 20), normal(6, 3, 4), normal(6), constants=2,
        strides=[2], pads=[1, 2], dilations=[2]),
    one("Conv-groups", "Conv", normal(2, 4, 9, 8), normal(6, 2, 3, 2), constants=1, group=2),
    one("ConvTranspose", "ConvTranspose", normal(1, 3, 7), normal(3, 5, 4), normal(5), constants=2,
        strides=[2], pads=[1, 1], output_padding=[1]),
    Case("Split", (node("Split", ["a"], ["b", "c"], axis=1), node("Sub", ["b", "c"], ["out"])),
         {"a": normal(3, 8)}),
    Case("TopK", (node("TopK", ["a", "k"], ["b", "i"], axis=0),
                  node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
                  node("Add", ["b", "c"], ["out"])),
         {"a": normal(9, 3)}, {"k": i64(4)}),
    Case("TopK-smallest", (node("TopK", ["a", "k"], ["out", "rest"], largest=0),),
         {"a": normal(3, 9)}, {"k": i64(4)}),
    *(Case(f"TopK-whole-{largest}", (node("TopK", ["a", "k"], ["b", "i"], largest=largest),
                                     node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
                                     node("Add", ["b", "c"], ["out"])),
           {"a": np.array([[1, -0.0, 0, -np.inf, -0.0, np.inf, -2, 1e-30]], np.float32)},
           {"k": i64(8)}) for largest in (0, 1)),
    Case("LSTM", (node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["all", "out"], hidden_size=8),),
         {"x": normal(3, 2, 5), "h": normal(1, 2, 8), "c": normal(1, 2, 8)},
         {"w": normal(1, 32, 5), "r": normal(1, 32, 8), "b": normal(1, 64)}),
    *(one(op, op, normal(3, 21) * 3)
      for op in ("LeakyRelu", "HardSwish", "HardSigmoid", "Selu", "Celu", "Softsign")),
    *(one(f"{op}-alpha", op, normal(3, 21) * 3, alpha=0.3)
      for op in ("LeakyRelu", "HardSigmoid", "Selu", "Celu", "Elu")),
    one("PRelu", "PRelu", normal(2, 4, 9), normal(4, 1), constants=1),
    replace(one("Mish", "Mish", normal(3, 21) * 3), opset=18),
    *(replace(one(f"Gelu-{form}", "Gelu", normal(3, 21) * 3, approximate=form), opset=20)
      for form in ("none", "tanh")),
    *(one(op, op, normal(3, 40), axes=[1]) for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare")),
    one("ReduceL2-first", "ReduceL2", normal(7, 3, 5), axes=[0], keepdims=0),
    one("InstanceNormalization", "InstanceNormalization", normal(2, 3, 4, 5), normal(3), normal(3),
        constants=2, epsilon=1e-3),
    one("MaxPool", "MaxPool", normal(2, 3, 20), kernel_shape=[3], strides=[2], pads=[1, 1],
        ceil_mode=1),
    one("MaxPool-2", "MaxPool", normal(1, 3, 9, 8), kernel_shape=[3, 2], dilations=[2, 1],
        pads=[1, 0, 0, 1]),
    one("MaxPool-wide", "MaxPool", normal(1, 3, 90), kernel_shape=[40], strides=[10]),
    *(one(f"AveragePool-{include}", "AveragePool", normal(2, 3, 20), kernel_shape=[3],
          strides=[2], pads=[1, 1], count_include_pad=include) for include in (0, 1)),
    one("AveragePool-2", "AveragePool", normal(1, 3, 9, 8), kernel_shape=[3, 2], strides=[3, 2]),
    one("AveragePool-ceil", "AveragePool", normal(1, 3, 10), kernel_shape=[3], strides=[2],
        ceil_mode=1),
    one("AveragePool-one", "AveragePool", normal(1, 3, 9), kernel_shape=[9]),
    *(one(op, op, normal(2, 3, 4, 5)) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(recurrent(f"LSTM-{way}", "LSTM", 4, outputs, direction=way)
      for way, outputs in (("reverse", ["all", "", "out"]), ("bidirectional", ["out"]),
                           ("bidirectional", ["", "out", "cell"]))),
    *(recurrent(f"GRU-{way}-{last}", "GRU", 3, outputs, direction=way, linear_before_reset=last)
      for way, outputs in (("forward", ["out"]), ("reverse", ["", "out"]),
                           ("bidirectional", ["out", "last"]), ("bidirectional", ["all", "out"]))
      for last in (0, 1)),
    *(recurrent(f"RNN-{name}", "RNN", 1, ["out", "last"], activations=[name])
      for name in ("Tanh", "Relu")),
    recurrent("RNN-bidirectional", "RNN", 1, ["all", "out"], direction="bidirectional"),
    *(Case(f"GRU-bare-{last}", (node("GRU", ["x", "w", "r"], ["out"], hidden_size=8,
                                     linear_before_reset=last),),
           {"x": normal(3, 2, 5)}, {"w": normal(1, 24, 5), "r": normal(1, 24, 8)})
      for last in (0, 1)),
    Case("Quantized", (node("QuantizeLinear", ["a", "s", "z"], ["q"]),
                       node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                       node("DequantizeLinear", ["w", "t", "zw"], ["v"], axis=1),
                       node("MatMul", ["d", "v"], ["out"])),
         {"a": normal(5, 40)},
         {"s": np.float32(0.05), "z": np.int8(3),
          "w": RANDOM.integers(-127, 128, (40, 57)).astype(np.int8),
          "t": np.abs(normal(57)) * 0.01, "zw": np.zeros(57, np.int8)}),
    Case("Halves", (node("Cast", ["a"], ["h"], to=TensorProto.FLOAT16),
                    node("MatMul", ["h", "w"], ["m"]), node("Add", ["m", "b"], ["o"]),
                    node("Cast", ["o"], ["out"], to=TensorProto.FLOAT)),
         {"a": normal(2, 24)},
         {"w": normal(24, 37).astype(np.float16), "b": normal(37).astype(np.float16)}),
    Case("Chain", (node("Sub", ["a", "b"], ["c"]), node("Exp", ["c"], ["d"]),
                   node("Mul", ["d", "a"], ["e"]), node("Add", ["e", "c"], ["f"]),
                   node("Transpose", ["f"], ["g"], perm=[1, 0]),
                   node("MatMul", ["g", "e"], ["out"])),
         {"a": normal(6, 11), "b": normal(11)}),
    Case("MatMul-spread", (node("Expand", ["x", "s"], ["e"]), node("MatMul", ["a", "e"], ["out"])),
         {"a": normal(3, 4), "x": normal(1, 5)}, {"s": i64(4, 5)}),
    Case("MatMul-spread-columns",
         (node("Expand", ["x", "s"], ["e"]), node("MatMul", ["a", "e"], ["out"])),
         {"a": normal(9, 4), "x": normal(4, 1)}, {"s": i64(4, 2)}),
    Case("MatMul-computed-left", (*ERF, node("MatMul", ["d", "w"], ["out"])),
         {"a": normal(3, 33, 1), "b": normal(3, 1, 24), "w": normal(3, 24, 1)}),
    Case("MatMul-computed-right", (*ERF, node("MatMul", ["w", "d"], ["out"])),
         {"a": normal(3, 1, 9), "b": normal(3, 14, 1), "w": normal(3, 1, 14)}),
    Case("MatMul-computed-uneven", (*ERF, node("MatMul", ["d", "w"], ["out"])),
         {"a": normal(3, 17, 5), "b": normal(3, 1, 5), "w": normal(3, 5, 1)}),
    Case("MatMul-computed-twice", (*ERF, node("MatMul", ["d", "w"], ["m"]),
                                   node("MatMul", ["v", "d"], ["n"]),
                                   node("Add", ["m", "n"], ["out"])),
         {"a": normal(8, 1), "b": normal(1, 8), "w": normal(8, 1), "v": normal(1, 8)}),
    Case("Gemm-spread", (node("Expand", ["x", "s"], ["e"]), node("Gemm", ["a", "e"], ["out"])),
         {"a": normal(3, 4), "x": normal(1, 5)}, {"s": i64(4, 5)}),
    one("Cast-of-tiny-halves", "Cast", np.array([1e-5, -3e-5, 6e-8, 1e-4], np.float16),
        to=TensorProto.FLOAT),
    one("Pow-2-spread", "Pow", normal(3), np.full((1, 1), 2, np.float32), constants=1),
    one("Pow-half-spread", "Pow", abs(normal(3)), np.full((1, 1), 0.5, np.float32), constants=1),
    two("Neg-int8", "Neg", np.array([-128, 5], np.int8), "Cast", to=TensorProto.FLOAT),
    two("Abs-int8", "Abs", np.array([-128, 5], np.int8), "Cast", to=TensorProto.FLOAT),
    Case("Add-int32", (node("Add", ["a", "a"], ["b"]), node("Less", ["b", "z"], ["out"])),
         {"a": np.array([2**31 - 1, 5], np.int32)}, {"z": np.int32(0)}),
    one("Relu-int", "Relu", np.array([2**24 + 1, -4], np.int32)),
    two("Sign-int", "Sign", i64(-3, 0, 2**40), "Mul", i64(5, 6, 7)),
    one("Abs-int64", "Abs", i64(-(2**63), -4, 5)),
    one("Neg-int64", "Neg", i64(-(2**63), -4, 5)),
    one("Max-smallest", "Max", i64(1, 2, 3), i64(-(2**63), 5, 2**40), constants=1),
    one("LayerNormalization-spread", "LayerNormalization", normal(2, 3, 5), normal(1, 5),
        constants=1, axis=1, epsilon=1.0),
    one("LayerNormalization-0", "LayerNormalization", normal(2, 5), normal(5), constants=1,
        epsilon=0.0),
    Case("Halves-normalized", (node("Cast", ["a"], ["h"], to=TensorProto.FLOAT16),
                               node("LayerNormalization", ["h", "w"], ["m"]),
                               node("Cast", ["m"], ["out"], to=TensorProto.FLOAT)),
         {"a": normal(3, 5)}, {"w": normal(5).astype(np.float16)}),
    Case("Zeros-of-two-signs", (node("Div", ["a", "z"], ["b"]), node("Tanh", ["b"], ["out"])),
         {"a": np.ones(2, np.float32)}, {"z": np.array([0.0, -0.0], np.float32)}),
    Case("LSTM-turned", (node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
                         node("LSTM", ["t", "w", "r"], ["", "out"], hidden_size=4)),
         {"x": normal(2, 3, 5)}, {"w": normal(1, 16, 5), "r": normal(1, 16, 4)}),
    Case("Softmax-of-a-product", (node("MatMul", ["a", "b"], ["s"]), node("Softmax", ["s"], ["p"]),
         node("MatMul", ["p", "a"], ["out"])), {"a": normal(5, 7), "b": normal(7, 5)}),
    Case("Softmax-of-a-product-read-twice", (node("MatMul", ["a", "b"], ["s"]),
         node("Reshape", ["s", "shape"], ["r"]), node("Softmax", ["s"], ["p"]),
         node("MatMul", ["p", "r"], ["out"])),
         {"a": normal(5, 7), "b": normal(7, 5)}, {"shape": i64(5, 5)}),
    one("Transpose-blocks", "Transpose", normal(3, 9, 14), perm=[0, 2, 1]),
    one("Transpose-apart", "Transpose", normal(7, 2, 12), perm=[2, 1, 0]),
    one("Transpose-short", "Transpose", normal(5, 3, 16), perm=[0, 2, 1]),
    one("Transpose-10-axes", "Transpose", normal(*[2] * 10), perm=[*range(9, -1, -1)]),
    one("Tile-5-axes", "Tile", normal(*[2] * 5), i64(2, 2, 2, 2, 2), constants=1),
    Case("DequantizeLinear-number", (node("DequantizeLinear", ["w", "s"], ["d"]),
                                     node("Mul", ["a", "d"], ["out"])),
         {"a": normal(3)}, {"w": np.int8(4), "s": np.float32(0.5)}),
    Case("Pad-by-one", (node("Pad", ["a", "n", "v"], ["out"]),),
         {"a": normal(2, 3), "v": normal(1)}, {"n": i64(1, 0, 0, 2)}),
    Case("Neg-of-constants", (node("Neg", ["z"], ["n"]), node("Neg", ["i"], ["m"]),
                              node("Add", ["a", "n"], ["b"]), node("Min", ["b", "m"], ["out"])),
         {"a": normal(3)}, {"z": np.float32(-0.0), "i": np.float32(-np.inf)}),
    one("Concat-float64", "Concat", np.ones(2), np.full(2, -np.inf), constants=1, axis=0),
    Case("Names", (node("Sqrt", ["sqrtf"], ["edgefold_exp"]), node("Exp", ["a.b"], ["e"]),
                   node("Add", ["e", "edgefold_exp"], ["f"]), node("Add", ["f", "a_b"], ["g"]),
                   node("Cast", ["int64_t"], ["i"], to=TensorProto.FLOAT),
                   node("Softmax", ["i"], ["NULL"]), node("Gemm", ["g", "NULL"], ["out"])),
         {"sqrtf": abs(normal(3, 3)), "a.b": normal(3, 3), "a_b": normal(3, 3),
          "int64_t": integers(3, 3)}),
    Case("Names-with-numbers", (node("Pad", ["y_2", "n"], ["y"]), node("Softmax", ["y"], ["out"])),
         {"y_2": normal(3, 4)}, {"n": i64(1, 1, 1, 1)}),
    one("ReduceLogSumExp-inf", "ReduceLogSumExp", INFINITE, axes=[1]),
    one("IsNaN", "IsNaN", np.array([1, np.nan, -np.inf], np.float32)),
    one("IsInf", "IsInf", np.array([1, np.nan, -np.inf, np.inf], np.float32)),
    one("ArgMin", "ArgMin", normal(3, 9), axis=1),
    one("ArgMin-first", "ArgMin", integers(9, 3).astype(np.float32), axis=0, keepdims=0),
    Case("Passed-on", (node("Reshape", ["a", "s"], ["out"]),),
         {"a": normal(2, 6)}, {"s": i64(3, 4)}),
    Case("Unread", (node("Exp", ["a"], ["b"]), node("MatMul", ["b", "w"], ["c"]),
                    node("Exp", ["c"], ["d"]), node("Add", ["d", "d"], ["e"]),
                    node("Split", ["a"], ["f", "g"], axis=1),
                    node("Concat", ["g", "f"], ["h"], axis=1), node("Abs", ["b"], ["out"])),
         {"a": normal(2, 6)}, {"w": normal(6, 9)}, opset=13),
    Case("Parts-of-parts", (node("Exp", ["a"], ["b"]), node("Concat", ["b", "a"], ["c"], axis=0),
                            node("Concat", ["c", "b"], ["out"], axis=0)), {"a": normal(2, 3)}),
)  # fmt: skip


def model_of(case: Case) -> onnx.ModelProto:
    """The case as a model with all shapes told."""

    def told(name: str, array: Array) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        return helper.make_tensor_value_info(name, kind, np.shape(array))

    graph = helper.make_graph(
        case.nodes,
        case.name,
        [told(name, array) for name, array in case.inputs.items()],
        [onnx.ValueInfoProto(name="out")],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in case.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)])
    model.ir_version = 8
    return inferred(model)


def tensors_of(model: onnx.ModelProto) -> tuple[Tensor, ...]:
    shapes = shapes_of(model)
    infos = (*model.graph.input, *model.graph.output)
    return tuple(
        Tensor(
            info.name,
            "cache",
            info.name,
            shapes[info.name],
            helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).name,
        )
        for info in infos
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All cases as functions `case_K(tensors, arena)`."""
    constants = Constants("case")
    functions, calls = [], []
    for k, case in enumerate(CASES):
        model = model_of(case)
        tensors = tensors_of(model)
        text, _ = write_function(model, f"run_{k}", tensors, constants)
        functions.append(text)
        given = ", ".join(f"tensors[{at}]" for at in range(len(tensors)))
        head = f"void case_{k}(void *const *tensors, void *arena)"
        calls.append(f"{head};\n{head}\n{{\n    run_{k}({given}, arena);\n}}\n")
    code = "\n".join([*functions, *calls])
    parts = needed([(FOLDER / part).read_text() for part in PARTS], code)
    source = "\n".join([parts, constants.declarations(), code])
    data = (FOLDER / "data.c").read_text() + constants.definitions()
    compiler = compiler_or_skip(flags=("-O1",))
    folder = tmp_path_factory.mktemp("cases")
    return ctypes.CDLL(
        str(compile_library({"case.c": source, "case_data.c": data}, compiler, folder))
    )


def aligned(array: Array) -> Array:
    """A copy that begins at a multiple of 64 bytes."""
    array = np.asarray(array)
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    made = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_a_rule_gives_what_onnxruntime_gives(number: int, library: ctypes.CDLL) -> None:
    case = CASES[number]
    model = model_of(case)
    options = onnxruntime.SessionOptions()
    # As the graph is written: a product that onnxruntime joins with its quantisations adds pairs of
    # products in 16 bits, which saturate where a processor has AVX2 without VNNI.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {name: np.asarray(array) for name, array in case.inputs.items()}
    expected = session.run(["out"], feed)[0]
    arrays = [aligned(feed[name]) for name in case.inputs]
    arrays.append(aligned(np.zeros(expected.shape, expected.dtype)))
    tensors = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    arena = aligned(np.full(1 << 20, 0xA5, np.uint8))  # whatever it held before
    getattr(library, f"case_{number}")(tensors, ctypes.c_void_p(arena.ctypes.data))
    for array, name in zip(arrays, case.inputs, strict=False):
        np.testing.assert_array_equal(array, feed[name])
    if expected.dtype.kind == "f":
        loose = (
            4e-3 if case.name.startswith("Halves") else TOLERANCE
        )  # onnxruntime rounds to 16 bits
        size = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
        np.testing.assert_allclose(arrays[-1], expected, rtol=0, atol=loose * size)
    else:
        np.testing.assert_array_equal(arrays[-1], expected)


@pytest.mark.parametrize("comparison", ["Less", "Greater"])
def test_a_choice_of_two_numbers_keeps_the_sign_of_zero(
    comparison: str, library: ctypes.CDLL
) -> None:
    """By numpy: onnxruntime's Where adds 0 to what it chooses, which turns -0 into 0."""
    number = [case.name for case in CASES].index(f"{comparison}-pairs")
    a, b = (aligned(PAIRS[name]) for name in "ab")
    out, arena = aligned(np.zeros_like(a)), aligned(np.zeros(1 << 16, np.uint8))
    tensors = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in (a, b, out)))
    getattr(library, f"case_{number}")(tensors, ctypes.c_void_p(arena.ctypes.data))
    expected = np.where(a < b if comparison == "Less" else a > b, b, a)
    np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))


def test_every_rule_has_a_case() -> None:
    written = [with_extremes(model_of(case)).graph.node for case in CASES]
    shown = {
        node.op_type for nodes in (*(case.nodes for case in CASES), *written) for node in nodes
    }
    alike = {"Flatten", "Squeeze", "Unsqueeze"}  # the rule of Reshape
    assert set(RULES) - shown == alike


def test_the_same_graph_gives_the_same_text() -> None:
    def written() -> list[str]:
        constants = Constants("case")
        texts = [
            write_function(model, f"run_{k}", tensors_of(model), constants)[0]
            for k, model in enumerate(map(model_of, CASES))
        ]
        return [*texts, constants.definitions()]

    assert written() == written()
