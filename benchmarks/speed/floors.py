"""How close do exported graphs run to the floor that their own operations set?

Every model of the registry at its published size, untrained, with room for 100 points. For each
step's graph as onnxruntime has optimised it:

    graph    one call with bound inputs and outputs, no Python of ours
    nodes    the sum over its nodes of what one more such node costs, alone: a session that runs a
             node `COPIES` times, less one that runs it once, with the shapes and values that it
             meets in the graph
    call     what a call costs beside its nodes: a graph with these inputs, whose outputs are
             copies of constants, less those copies
    floor    nodes + call

A node alone finds its operands in the nearest cache; in the graph it finds there what other nodes
left. Nodes that only rename a tensor (Reshape and its like) count as the cheapest of all nodes.
A graph is node-bound where its nodes take at most `NODE_BOUND_S` on average: there the number of
nodes decides, and the project asks for at most `BOUND` times the floor.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from benchmarks.models.family import child
from benchmarks.record import Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.speed.floors_table import floor_s
from benchmarks.tables import as_text
from edgefold.runtime.backends.onnxruntime_session import onnxruntime

QUESTION = "How close do exported graphs run to the floor that their own operations set?"
N_POINTS = 100
COPIES = 33
ROUNDS, BLOCK_S = 11, 2e-3
STEPS = ("update", "refresh", "query_one")
BOUND = 1.1
NODE_BOUND_S = 2e-6
RENAMES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}

Arrays = dict[str, Any]


def session_of(model: ModelProto | Path, optimised: Path | None = None) -> Any:
    """A session of one thread, as the runtime opens it; `optimised` takes what it made of a graph.

    A model in memory is run as it is.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    if isinstance(model, ModelProto):
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model.SerializeToString() if isinstance(model, ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class Bound:
    """A session whose inputs and outputs are bound to fixed buffers, and the least it took."""

    def __init__(self, session: Any, inputs: Arrays):
        binding = session.io_binding()
        fed = {wanted.name: inputs[wanted.name] for wanted in session.get_inputs()}
        as_value = onnxruntime.OrtValue.ortvalue_from_numpy
        for name, array in fed.items():
            binding.bind_ortvalue_input(name, as_value(np.ascontiguousarray(array)))
        for output, array in zip(session.get_outputs(), session.run(None, fed), strict=True):
            binding.bind_ortvalue_output(output.name, as_value(np.array(array)))
        self._call = partial(session.run_with_iobinding, binding)
        self._n = 3
        self.least_s = math.inf
        self._n = max(1, round(BLOCK_S / self.time_block()))

    def time_block(self) -> float:
        """Seconds of a call in one more block of them; the least of all is kept."""
        start = time.thread_time_ns()
        for _ in range(self._n):
            self._call()
        taken_s = max(time.thread_time_ns() - start, 1) / self._n / 1e9
        self.least_s = min(self.least_s, taken_s)
        return taken_s


def graph_inputs(session: Any) -> Arrays:
    """Plausible values: of a state with some points, and of points and targets between -1 and 1."""
    random = np.random.default_rng(0)
    found: Arrays = {}
    for wanted in session.get_inputs():
        kind = wanted.type.removeprefix("tensor(").removesuffix(")")
        if kind in ("float", "double"):
            values = random.uniform(-1, 1, wanted.shape)
            found[wanted.name] = values.astype(np.float32 if kind == "float" else np.float64)
        elif kind == "bool":
            found[wanted.name] = np.ones(wanted.shape, bool)
        else:
            found[wanted.name] = np.full(wanted.shape, N_POINTS // 2, kind)
    return found


def all_values(model: ModelProto, inputs: Arrays) -> Arrays:
    """Every tensor of a graph for these inputs, weights too, by name."""
    told = ModelProto()
    told.CopyFrom(model)
    del told.graph.output[:]
    names = [name for node in told.graph.node for name in node.output if name]
    told.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    values = dict(zip(names, session_of(told).run(None, inputs), strict=True))
    weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    return {**inputs, **weights, **values}


def node_alone(model: ModelProto, node: NodeProto, values: Arrays, copies: int) -> ModelProto:
    """A model of a node and its copies: the same operands, results of their own.

    Only the last results are outputs: in a graph, too, most results are memory of onnxruntime's.
    """
    weights = {w.name: w for w in model.graph.initializer}
    used = dict.fromkeys(name for name in node.input if name)
    fed = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
        )
        for name in used
        if name not in weights
    ]
    nodes = []
    for copy in range(copies):
        again = NodeProto()
        again.CopyFrom(node)
        again.name = f"{node.name}_{copy}"
        del again.output[:]
        again.output.extend(f"{name}_{copy}" if name else "" for name in node.output)
        nodes.append(again)
    outputs = [helper.make_empty_tensor_value_info(name) for name in again.output if name]
    graph = helper.make_graph(
        nodes, "alone", fed, outputs, [weights[name] for name in used if name in weights]
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def key_of(node: NodeProto, values: Arrays) -> tuple[Any, ...]:
    """Equal for nodes that cost the same."""
    attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
    shapes = tuple((values[n].shape, values[n].dtype.str) if n else () for n in node.input)
    return node.op_type, attributes, shapes


def without_work(model: ModelProto, values: Arrays) -> ModelProto:
    """A model with the inputs and outputs of a graph, whose outputs are copies of constants."""
    outputs = [output.name for output in model.graph.output]
    graph = helper.make_graph(
        [helper.make_node("Identity", [f"of_{name}"], [name]) for name in outputs],
        "call",
        model.graph.input,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(values[name], f"of_{name}") for name in outputs],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


class Nodes:
    """Nodes alone, each kind once: a session of one, and a session of `COPIES`."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], tuple[Bound, Bound]] = {}

    def add(self, model: ModelProto, node: NodeProto, values: Arrays) -> tuple[Any, ...]:
        """The kind of a node, by which `cost_s` knows it."""
        key = key_of(node, values)
        if key not in self._kinds:
            fed = {name: values[name] for name in node.input if name}
            one, many = (
                Bound(session_of(node_alone(model, node, values, n)), fed) for n in (1, COPIES)
            )
            self._kinds[key] = one, many
        return key

    def time_block(self) -> None:
        """Time every kind once more."""
        for one, many in self._kinds.values():
            one.time_block()
            many.time_block()

    def cost_s(self, key: tuple[Any, ...]) -> float:
        """Return the seconds that one more node of a kind takes."""
        one, many = self._kinds[key]
        return max(0.0, (many.least_s - one.least_s) / (COPIES - 1))


def measure_graph(path: Path) -> dict[str, Any]:
    """One graph's times, and the kinds of nodes that take most; writes a file beside it.

    Graph, call and nodes take turns, so that the machine's changes of speed meet all of them.
    """
    optimised = path.with_name(f"optimised-{path.name}")  # beside the weights, which it names
    session = session_of(path, optimised)
    model = onnx.load(optimised)
    inputs = graph_inputs(session)
    values = all_values(model, inputs)
    nodes = Nodes()
    keys = [
        (node.op_type, nodes.add(model, node, values))
        for node in model.graph.node
        if node.op_type not in RENAMES
    ]
    without = without_work(model, values)
    constants = {w.name: numpy_helper.to_array(w) for w in without.graph.initializer}
    copies = [nodes.add(without, node, constants) for node in without.graph.node]
    whole, call = Bound(session, inputs), Bound(session_of(without), inputs)
    for _ in range(ROUNDS):
        whole.time_block()
        call.time_block()
        nodes.time_block()
    spent: dict[str, float] = {}
    for op, key in keys:
        spent[op] = spent.get(op, 0.0) + nodes.cost_s(key)
    least_s = min(map(nodes.cost_s, [*copies, *(key for _, key in keys)]))
    most = sorted(spent, key=lambda op: -spent[op])[:3]
    return {
        "n_nodes": len(model.graph.node),
        "graph_s": whole.least_s,
        "nodes_s": sum(spent.values()) + (len(model.graph.node) - len(keys)) * least_s,
        "call_s": call.least_s - sum(map(nodes.cost_s, copies)),
        "most": {op: spent[op] for op in most},
    }


def measure(name: str, preset: str, steps: Sequence[str]) -> dict[str, Any]:
    """Every step's graph of one model."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="edgefold-floors-") as folder:
        bundle = Path(folder) / "bundle"
        child("export", name, preset, str(N_POINTS), str(bundle))
        graphs = json.loads((bundle / "manifest.json").read_text())["graphs"]
        for step in steps:
            if step in graphs:
                found[step] = measure_graph(bundle / graphs[step]["file"])
    return found


def requirements(models: dict[str, Any]) -> list[Requirement]:
    """Every node-bound graph runs close to its floor."""
    return [
        at_most(f"{name}, {step}: graph over floor", times["graph_s"] / floor_s(times), BOUND, "")
        for name, steps in models.items()
        for step, times in steps.items()
        if times["nodes_s"] <= NODE_BOUND_S * times["n_nodes"]
    ]


def main() -> None:
    """Measure every model, and record."""
    from edgefold.train.models.registry import learners

    parser = arguments(__doc__ or "", "floors")
    parser.add_argument("--models", nargs="+", choices=learners(), help="default: all")
    parser.add_argument("--preset", default="paper", help="default paper")
    args = parser.parse_args()
    before = conditions()
    chosen = args.models or (["cnp"] if args.quick else learners())
    models = {}
    for done, name in enumerate(chosen):
        progress(f"{name}, {done + 1} of {len(chosen)}")
        models[name] = measure(name, args.preset, STEPS)
    data = {"preset": args.preset, "n_points": N_POINTS, "models": models}
    finish(args, "floors", QUESTION, before, data, requirements(models), as_text)


if __name__ == "__main__":
    main()
