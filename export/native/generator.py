"""Write a bundle's graphs as C: one source file, one header, one file of constants.

    bundle ─> each graph ─> program (lowering) ─> joined loops, arena (program) ─> C text (loops)
    weights ──────────────> arrays, packed as the kernels read them (constants)

One version writes the same text for the same bundle on every machine. The code needs only C's
library of mathematics, uses only the memory that it declares, and starts no thread. The code around
the graphs (state, commit, scaling, snapshots) is written by
`edgefold.export.native.interface.interface`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from edgefold.export.native.c_pieces import needed
from edgefold.export.native.interface.graph_function import GraphFunction
from edgefold.export.native.interface.interface import arena_sizes, flash_bytes, interface_of
from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.licence import LICENCE, WEIGHTS_LICENCE
from edgefold.export.native.program.arena import ArenaPlan, planned
from edgefold.export.native.program.bounds import outside
from edgefold.export.native.program.c_loops import statement_text
from edgefold.export.native.program.c_words import model_identifier
from edgefold.export.native.program.constants import Constants
from edgefold.export.native.program.coverage import UncoveredError, UncoveredNode
from edgefold.export.native.program.extremes import with_extremes
from edgefold.export.native.program.head_loops import nested
from edgefold.export.native.program.lowering import c_name, lowered
from edgefold.export.native.program.statements import joined, needed_only, with_locals
from edgefold.export.native.program.values import Buffer
from edgefold.export.native.rules import RULES
from edgefold.export.native.sensors.engine import engine_bytes
from edgefold.export.native.verified_graph import read_weights, verified_graph
from edgefold.runtime.bundle.manifest import Graph, Manifest, Tensor
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ExportError

FOLDER = Path(__file__).parent / "c"
PARTS = ("prelude.c", "mathematics.c", "halves.c", "lanes.c", "products.c", "rows.c")
"""Files of C: each generated source begins with the pieces of them that it needs, in this order."""
WIDTH = 100


@dataclass(frozen=True, slots=True)
class NativeSource:
    """Holds a bundle as C.

    Attributes:
        name: NAME in the names of the struct and of all functions, `edgefold_NAME`.
        header, source, data: Texts of the three files.
        arenas: Places of each graph's intermediate values in the arena, by the graph's name.
        struct_bytes: Bytes of the struct, one for each stream.
        arena_bytes: Bytes of the arena, a static array in which one graph at a time computes.
        loading_bytes: Bytes of the arena if snapshots can be loaded; then it must hold the rings.
        weight_bytes: Bytes of the weights.
        flash_bytes: Bytes of all constants: weights, scaling, first values of the state.
    """

    name: str
    header: str
    source: str
    data: str
    arenas: Mapping[str, ArenaPlan]
    struct_bytes: int
    arena_bytes: int
    loading_bytes: int
    weight_bytes: int
    flash_bytes: int

    @property
    def files(self) -> dict[str, str]:
        """Return the texts of the three files by file name."""
        stem = f"edgefold_{self.name}"
        return {f"{stem}.h": self.header, f"{stem}.c": self.source, f"{stem}_data.c": self.data}


def generate(bundle: Path, name: str | None = None) -> NativeSource:
    """Generate the C of a bundle and return it.

    Args:
        bundle: Folder of the bundle; its hashes are verified.
        name: A C identifier for its struct and functions; the model's name by default.

    Raises:
        BundleError: The bundle is damaged, or a graph is not as the manifest describes it.
        ExportError: A graph has operators that are not covered; the message names every node.
    """
    manifest = load_manifest(bundle)
    name = model_identifier(name or str(manifest.model.get("name", "model")))
    constants = Constants(f"edgefold_{name}")
    functions = functions_of(manifest, constants)
    header, around = interface_of(manifest, name, functions, constants.n_bytes)
    code = "\n".join([*(function.source for function in functions), around])
    parts = needed([(FOLDER / part).read_text() for part in PARTS], code)
    include = f'#include "edgefold_{name}.h"\n'
    source = "\n".join([include, _included_once(parts), constants.declarations(), code])
    data = (
        f"{WEIGHTS_LICENCE}"
        f"/* The constants of edgefold_{name}.c, in the order in which it was written. */\n"
        f"{(FOLDER / 'data.c').read_text()}\n{constants.definitions()}"
    )
    struct = StreamStruct(manifest, f"edgefold_{name}")
    engine, search = engine_bytes(manifest)
    arena, loading = arena_sizes(struct, functions)
    return NativeSource(
        name,
        LICENCE + header,
        LICENCE + source,
        data,
        {function.graph.name: function.arena for function in functions},
        struct.n_bytes + engine,
        arena,
        max(loading, search),
        constants.n_bytes,
        flash_bytes(manifest, constants.n_bytes),
    )


def refusal(bundle: Path) -> tuple[str, ...]:
    """Return why `generate` refuses a bundle, in lines; none if it does not.

    They name each operator that is not covered, its nodes, and what to write instead.

    Raises:
        BundleError: The bundle is damaged.
    """
    manifest, constants = load_manifest(bundle), Constants("edgefold_model")
    try:
        interface_of(manifest, "model", functions_of(manifest, constants), constants.n_bytes)
    except UncoveredError as error:
        return error.lines()
    except ExportError as error:
        return (str(error),)
    return ()


def _included_once(text: str) -> str:
    """Return a C text without #include lines that repeat an earlier one, as joined pieces do."""
    includes: set[str] = set()
    lines = []
    for line in text.splitlines(keepends=True):
        if not line.startswith("#include") or line not in includes:
            lines.append(line)
        includes.add(line)
    return "".join(lines)


def functions_of(manifest: Manifest, constants: Constants) -> list[GraphFunction]:
    """Return each graph's C function, and add its weights to `constants`.

    Raises:
        BundleError: A graph is not valid, or its inputs and outputs are not the manifest's.
        UncoveredError: The graphs have operators that are not covered; it names every such node.
        ExportError: A step would read or write outside of its buffers.
    """
    weights = read_weights(manifest)
    graphs = [*manifest.graphs.values()]
    models = [verified_graph(manifest, graph, weights) for graph in graphs]
    functions: list[GraphFunction] = []
    errors: list[UncoveredError] = []
    nodes: list[UncoveredNode] = []
    for model, graph in zip(models, graphs, strict=True):
        try:
            functions.append(_function(model, graph, constants))
        except UncoveredError as error:
            errors.append(error)
            nodes += [replace(node, graph=graph.name) for node in error.nodes]
    if errors:
        raise UncoveredError(nodes) from errors[0].__cause__
    return functions


def _function(model: onnx.ModelProto, graph: Graph, constants: Constants) -> GraphFunction:
    name = f"run_{c_name(graph.name)}"
    source, arena = write_function(model, name, (*graph.inputs, *graph.outputs), constants)
    return GraphFunction(graph, name, source, arena)


def write_function(
    model: onnx.ModelProto, name: str, tensors: Sequence[Tensor], constants: Constants
) -> tuple[str, ArenaPlan]:
    """Write a graph with fixed shapes as a static C function.

    Args:
        model: The graph with its weights inside and the shapes of all values.
        name: Name of the function.
        tensors: The graph's inputs, then its outputs: the function's parameters.
        constants: Collects the weights.

    Returns:
        The text of the function, and the places of its intermediate values in the arena.

    Raises:
        UncoveredError: The graph has operators that are not covered; it names every such node.
        ExportError: A step would read or write outside of its buffers.
    """
    arguments: dict[str, Buffer] = {}
    for t in tensors:
        text = c_name(t.name)
        while text in {other.name for other in arguments.values()}:
            text += "_"
        arguments[t.name] = Buffer(text, t.dtype, math.prod(t.shape), "argument")
    program = lowered(with_extremes(model), arguments, constants, RULES)
    statements = with_locals(joined(needed_only(program.statements)))
    if place := outside(statements):
        raise ExportError(
            f"no C is written for graph {name}, because a step would leave its memory: {place}. "
            "Run the bundle on onnxruntime."
        )
    statements = nested(statements)
    plan = planned(statements, program.arena)
    inputs = {info.name for info in model.graph.input}
    parameters = [
        f"{'const ' * (tensor in inputs)}{buffer.c_type} *{buffer.name}"
        for tensor, buffer in arguments.items()
    ]
    lines = [f"static void {name}(", *_wrapped([*parameters, "unsigned char *arena"]), "{"]
    for b in plan.buffers:
        lines.append(f"    {b.c_type} *const {b.name} = ({b.c_type} *)(arena + {b.start});")
    lines.append("    const edgefold_mode mode = edgefold_flush_tiny();")
    used = {buffer for s in statements for buffer in s.reads | s.writes}
    idle = [b.name for b in arguments.values() if b not in used] + ["arena"] * (not plan.buffers)
    lines += [f"    (void){unused};" for unused in idle]
    for statement in statements:
        lines += [f"    {line}" for line in statement_text(statement)]
    return "\n".join([*lines, "    edgefold_restore(mode);", "}", ""]), plan


def _wrapped(parameters: Sequence[str]) -> list[str]:
    """Return the lines of a function's parameters, as many on each line as fit."""
    lines = ["    " + parameters[0]]
    for parameter in parameters[1:]:
        if len(lines[-1]) + len(parameter) + 3 > WIDTH:
            lines[-1] += ","
            lines.append("    " + parameter)
        else:
            lines[-1] += f", {parameter}"
    return [*lines[:-1], lines[-1] + ")"]
