"""NaN passes through extremes on every target, and no target learns what another refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from edgefold.export.graphs.comparisons import compared
from edgefold.export.graphs.static_graph import inferred
from edgefold.export.native.program.extremes import with_extremes
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.graphs.tensorrt_rules import PoisonedGraph, as_tensorrt
from tests.export.test_all_models import NAMES, OVERWRITING, Export
from tests.export.test_all_models import exported as exported

ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -2.0, 3.0, 0.5, 3.4e38], np.float32)
A, B = (m.reshape(-1).copy() for m in np.meshgrid(ODD, ODD))
"""Every pair of odd numbers."""

EXTREMES = {
    "clip": "y = Clip (a, low, high)",
    "clip below": "y = Clip (a, low)",
    "clip above": "y = Clip (a, , high)",
    "clip between values": "y = Clip (a, low, b0)",
    "max": "y = Max (a, b)",
    "min": "y = Min (a, b)",
    "max of a constant": "y = Max (low, a)",
    "min of three": "y = Min (a, high, b)",
    "sign": "y = Sign (a)",
    "max of all": "y = ReduceMax <axes = [0]> (c)",
    "min of all": "y = ReduceMin <axes = [0], keepdims = 0> (c)",
}
SHARED = ("tiny", "scaled", "streams", "foreign")


def a_graph(line: str) -> onnx.ModelProto:
    n, keeps = len(A), "axes = [0]>" in line
    out = f"[1,{n}]" if keeps else f"[{n}]"
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[{n}] a, float[{n}] b, float b0, float[2,{n}] c) => (float{out} y)
        <float low = {{-1.0}}, float high = {{2.0}}> {{ {line} }}"""
    return inferred(onnx.parser.parse_model(text))


def run(model: onnx.ModelProto) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    values = {"a": A, "b": B, "b0": np.array(2, np.float32), "c": np.stack([A, B])}
    values = {given.name: values[given.name] for given in session.get_inputs()}
    return np.asarray(session.run(None, values)[0]).reshape(-1)


def expected(name: str) -> np.ndarray:
    """Each extreme by numpy, whose functions pass NaN on."""
    low, high = np.float32(-1), np.float32(2)
    return {
        "clip": np.clip(A, low, high),
        "clip below": np.maximum(A, low),
        "clip above": np.minimum(A, high),
        "clip between values": np.clip(A, low, high),
        "max": np.maximum(A, B),
        "min": np.minimum(A, B),
        "max of a constant": np.maximum(low, A),
        "min of three": np.minimum(np.minimum(A, high), B),
        "sign": np.sign(A),
        "max of all": np.maximum(A, B),
        "min of all": np.minimum(A, B),
    }[name]


@pytest.mark.parametrize("name", EXTREMES)
def test_an_extreme_gives_the_same_numbers_by_the_rules_of_onnx_and_of_tensorrt(name: str) -> None:
    model = a_graph(EXTREMES[name])
    made = compared(model)
    np.testing.assert_array_equal(run(made), expected(name))
    np.testing.assert_array_equal(run(as_tensorrt(made)), expected(name))


@pytest.mark.parametrize("name", EXTREMES)
def test_the_emulation_of_tensorrt_loses_nan_without_comparisons(name: str) -> None:
    found = run(as_tensorrt(a_graph(EXTREMES[name])))
    missing = np.isnan(expected(name)) & ~np.isnan(found)
    assert missing.any()


@pytest.mark.parametrize("name", [n for n in EXTREMES if "all" not in n and n != "sign"])
def test_generated_c_reads_comparisons_as_one_operator_each(name: str) -> None:
    model = a_graph(EXTREMES[name])
    kinds = Counter(node.op_type for node in with_extremes(compared(model)).graph.node)
    assert kinds.keys() <= {"Above", "Below", "Max", "Min"} and kinds.total() <= 2


def test_extremes_that_cannot_meet_nan_stay_as_they_are() -> None:
    model = a_graph("d = Greater (a, b) e = Cast <to = 1> (d) y = Clip (e, low, high)")
    assert compared(model) is model


def test_a_maximum_stays_whose_distances_are_computed() -> None:
    model = a_graph("m = ReduceMax <axes = [0]> (c) d = Sub (c, m) y = ReduceMean <axes = [0]> (d)")
    assert compared(model) is model


def learned(graph: PoisonedGraph, n: int, seed: int) -> tuple[int, list[str]]:
    """Return how many of n poisoned calls are refused by ONNX's rules, and those learned by others.

    The state moves on between the calls; up to three places are poisoned at a time.
    """
    random = np.random.default_rng(seed)
    base, refused, wrong = graph.clean(random), 0, list[str]()
    of_state = {tensor.name for tensor in graph.graph.inputs if tensor.role == "state"}
    for number in range(n):
        base |= {k: v for k, v in graph.clean(random).items() if k not in of_state}
        if number % 4 == 3:
            outputs, _ = graph.run(base)
            if graph.accepts(outputs).all():
                graph.advance(base, outputs)
        arrays = {name: array.copy() for name, array in base.items()}
        graph.poison(arrays, random, 1 + int(random.integers(3)))
        here, there = graph.run(arrays)
        refused += int(not graph.accepts(here).all())
        if (graph.accepts(there) & ~graph.accepts(here)).any():
            wrong.append(f"{graph.graph.name}, seed {seed}, call {number}")
    return refused, wrong


def all_learned(graphs: Iterator[PoisonedGraph], n: int) -> tuple[int, list[str]]:
    total, all_wrong = 0, list[str]()
    for number, graph in enumerate(graphs):
        refused, wrong = learned(graph, n, number)
        total, all_wrong = total + refused, all_wrong + wrong
    return total, all_wrong


@pytest.mark.parametrize("name", SHARED)
def test_a_poisoned_step_that_the_cpu_refuses_is_refused_by_tensorrts_rules(
    bundles: Path, name: str
) -> None:
    refused, wrong = all_learned(PoisonedGraph.all_of(bundles / name), 40)
    assert refused > 20 and wrong == []


def test_a_poisoned_row_of_sensors_that_the_cpu_refuses_is_refused_by_tensorrts_rules() -> None:
    """Without comparisons, half of the refused states are learned."""
    refused, wrong = all_learned(PoisonedGraph.all_of(shipped_bundle()), 60)
    assert refused > 20 and wrong == []


N_CALLS = 210
"""Poisoned calls of each graph that writes state, some 50 graphs of all models: over 10,000."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "when_full"), [*((n, "") for n in NAMES), *((n, "reservoir") for n in OVERWRITING)]
)
def test_no_model_learns_by_tensorrts_rules_what_the_cpu_refuses(
    exported: Export, name: str, when_full: str
) -> None:
    bundle = exported(name, 1, when_full)
    _, wrong = all_learned(PoisonedGraph.all_of(bundle), N_CALLS)
    assert wrong == []
