"""What TensorRT tells of its kernels, from recordings; recorded/README.md says which are real."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.runtime.backends.tensorrt.engine_facts import (
    birth,
    describe_modes,
    kernels_of,
    products_of,
)
from edgefold.runtime.backends.tensorrt.inspection import (
    Kernel,
    asked_products,
    product_type,
    read_inspector,
    read_log,
)

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> list[Kernel]:
    return read_log((RECORDED / f"tensorrt-rtx-1.7.1-{name}.txt").read_text())


def test_the_log_of_a_build_gives_every_kernel_with_types_and_nodes() -> None:
    kernels = recorded("float16-query_one")
    assert len(kernels) == 12
    assert kernels[0].nodes == ("gemm_1", "gemm_3", "relu_4", "sin_2")
    attention = kernels[7]
    assert (attention.name, attention.kind) == ("_gemm_mha_v2_myl0_7", "kgen")
    assert attention.reads == ("float16",) * 3 and attention.weights == ()
    assert attention.writes == ("float16",)
    assert attention.nodes == ("matmul_12", "softmax_11", "matmul_10")
    assert [kernel for kernel in kernels if kernel.is_fused_attention] == [attention]


def test_int8_products_that_stayed_float32_are_told_from_those_that_did_not() -> None:
    kernels = recorded("int8-refresh")
    assert product_type("reshape_18_product", "int8", kernels) == "int8"
    # Its weights are turned into float32 by a kernel of their own, and multiplied by another.
    assert product_type("layernormalization_35_product", "int8", kernels) == "float32"
    assert product_type("no_such_node", "int8", kernels) == "unknown"


def test_float16_products_are_those_whose_kernel_reads_float16() -> None:
    kernels = recorded("float16-query_one")
    assert product_type("gemm_8", "float16", kernels) == "float16"
    assert product_type("matmul_10", "float16", kernels) == "float16"
    assert product_type("gemm_3", "float16", kernels) == "float32"


def test_a_generated_kernel_that_reads_two_int8_does_not_tell_how_it_multiplies() -> None:
    types: dict[str, Any] = {"weights": (), "writes": ("float32",), "nodes": ("p",), "tactic": ""}
    generated = Kernel(name="__myl_MulSum", kind="kgen", reads=("int8", "int8"), **types)
    assert product_type("p", "int8", [generated]) == "unknown"
    library = Kernel(name="p", kind="gemm", reads=("int8", "int8"), **types)
    assert product_type("p", "int8", [generated, library]) == "int8"


def test_the_inspectors_json_as_documented_is_read() -> None:
    (kernel,) = read_inspector((RECORDED / "inspector-documented.json").read_text())
    assert kernel.kind == "CaskConvolution"
    assert kernel.reads == kernel.writes == kernel.weights == ("int8",)
    assert "i8i8_i8i32" in kernel.tactic


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [
        ({"Format/Datatype": "Half"}, "float16"),  # TensorRT 10's compiler
        ({"Format/Datatype": "Row major linear FP16 format"}, "float16"),  # its older layers
        ({"Format/Datatype": "Row major linear FP32"}, "float32"),
        ({"Datatype": "Float", "Format": "(Linear) Row major linear format"}, "float32"),
        ({"Datatype": "Int8"}, "int8"),
        ({"Datatype": "BFloat16"}, "bfloat16"),
        ({"Name": "x"}, "unknown"),
    ],
)
def test_a_tensors_type_is_found_in_both_layouts(tensor: dict[str, Any], dtype: str) -> None:
    layer = {"Name": "a", "LayerType": "kgen", "Inputs": [tensor], "Outputs": []}
    layer["Metadata"] = "[ONNX Layer: one]\x1e[ONNX Layer: two]"
    for text in (json.dumps({"Layers": [layer]}), json.dumps([layer])):
        (kernel,) = read_inspector(text)
        assert kernel.reads == (dtype,) and kernel.nodes == ("one", "two")


def test_an_engine_built_without_details_has_names_alone() -> None:
    (kernel,) = read_inspector('{"Layers": ["gemm_1 + relu_2"], "Bindings": []}')
    assert kernel == Kernel("gemm_1 + relu_2", "", (), (), (), (), "")


@pytest.mark.parametrize("text", ["", "null", "3", "{}", '{"Layers": 3}'])
def test_what_is_no_inspectors_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no list of layers|Expecting value"):
        read_inspector(text)


def test_narrow_products_are_found_in_the_parsed_network() -> None:
    trt = SimpleNamespace(
        LayerType=SimpleNamespace(MATRIX_MULTIPLY="product", DEQUANTIZE="from a grid"),
        float16="half",
    )

    def layer(kind: str, name: str, inputs: list[str], dtype: str = "float") -> Any:
        return SimpleNamespace(
            type=kind,
            name=name,
            metadata="" if name == "bare" else f"[ONNX Layer: {name}]",
            get_input=lambda index: SimpleNamespace(name=inputs[index]),
            get_output=lambda index: SimpleNamespace(name=f"{name}_out", dtype=dtype),
        )

    layers = [
        layer("from a grid", "x_on_grid", ["x"]),
        layer("from a grid", "w_on_grid", ["w"]),
        layer("product", "quantised", ["x_on_grid_out", "w_on_grid_out"]),
        layer("product", "half_on_grid", ["x_on_grid_out", "w"]),
        layer("product", "bare", ["a", "b"], "half"),
        layer("relu", "relu", ["a"], "half"),
    ]
    network = SimpleNamespace(num_layers=len(layers), get_layer=lambda index: layers[index])
    assert asked_products(trt, network) == {"quantised": "int8", "bare": "float16"}


def test_kernels_come_back_from_json_as_they_were() -> None:
    kernels = recorded("int8-refresh")
    facts = {
        "kernels": [asdict(kernel) for kernel in kernels],
        "products": {"reshape_18_product": "int8", "layernormalization_35_product": "int8"},
    }
    again = json.loads(json.dumps(facts))
    assert kernels_of(again) == kernels
    assert products_of(again) == {
        "reshape_18_product": ("int8", "int8"),
        "layernormalization_35_product": ("int8", "float32"),
    }
    assert kernels_of({}) == [] and products_of({}) == {}


def test_an_engines_birth_leaves_its_kernels_out() -> None:
    facts = {"seconds": 2.0, "kernels": [1], "conditions": {"power_mode": "25W"}}
    assert birth(facts) == {"seconds": 2.0, "conditions": {"power_mode": "25W"}}
    assert birth({}) == {}


@pytest.mark.parametrize(
    ("built", "now", "words"),
    [
        (["25W"], "MAXN_SUPER", "built in 25W, running in MAXN_SUPER"),
        (["25W", None], "25W", "built in 25W, running in 25W"),
        (["7W", "25W", "7W"], None, "built in 25W, 7W"),
        ([None], "25W", "running in 25W"),
        ([], None, ""),
    ],
)
def test_the_modes_of_build_and_run_are_told(
    built: list[str | None], now: str | None, words: str
) -> None:
    facts = [{} if mode is None else {"conditions": {"power_mode": mode}} for mode in built]
    assert describe_modes(facts, {"power_mode": now} if now else {}) == words
