"""Write the C function of each step: it fills a graph's inputs, runs it, and checks its outputs.

State tensors have two sides (copies): a step reads the current side and writes the other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefold.export.native.interface.graph_function import GraphFunction
from edgefold.export.native.interface.state_text import array_text
from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.program.c_words import c_identifier
from edgefold.runtime.bundle.manifest import Graph, Manifest, Scaling

Functions = Mapping[str, GraphFunction]
SCALED = {"points.x": "x", "points.y": "y", "targets.x": "x"}
SIZES = {"inputs": "N_INPUTS", "outputs": "N_OUTPUTS", "streams": "STREAMS", "targets": "TARGETS"}
"""Sizes that a shared library reports to a caller who cannot read the header, by their names."""
GENERATOR = "edgefold native 1"
"""Version of the generator: a library that another version made is not opened."""


def step_words(struct: StreamStruct, functions: Functions) -> dict[str, Any]:
    """Return the C texts of the steps, by the word that each replaces in a template of C."""
    m = struct.manifest
    every = m.consolidate_every
    graphs = [g for g in m.graphs.values() if g.step != "query"]
    graphs = [g for g in graphs if g.step != "consolidate" or every]
    queries = m.of_step("query")
    steps = [_compute(struct, functions[g.name], g) for g in graphs]
    steps += [_answer(struct, functions[g.name], g) for g in queries]
    flips = {
        g.step: sum({1 << struct.group_of[t.of] for t in g.outputs if t.role == "state"})
        for g in graphs
    }
    one = m.learns_from[0]
    words = {
        f"flip_{step}": f"{flips.get(step, 0)}u" for step in ("consolidate", "condition", "merge")
    }
    used = {role for g in m.learns_from for role in SCALED if g.with_role(role)}
    unused = [f"    (void){w};" for w in "xy" if f"points.{w}" not in used]
    unused += [] if used else ["    (void)n;"]
    return words | {
        "flip_one": f"{flips[one.step]}u",
        "steps": "\n".join(steps),
        "unscaled": _unscaled(m),
        "scaled": "\n".join(
            scaled_function(word, scaling)
            for word, scaling in (("x", m.scaling_x), ("y", m.scaling_y))
            if any(g.with_role(r) for g in m.graphs.values() for r in SCALED if SCALED[r] == word)
        ),
        "scale_one": _filled_inputs(struct, one, "row", "1", "        "),
        "scale_chunk": "".join(
            _filled_inputs(struct, g, "start", "count", "    ") for g in m.of_step("condition")
        ),
        "unused": "\n".join(unused),
        "queries": _choice(queries),
    }


def scaled_function(word: str, scaling: Scaling) -> str:
    """Return the C function that scales a raw number of x or y; `word` is "x" or "y"."""
    head = f"static double scaled_{word}(double raw, size_t column)\n{{\n"
    if scaling.is_identity:
        return head + "    (void)column;\n    return raw;\n}\n"
    tables = (
        array_text(f"{word}_{part}", "float64", np.array(getattr(scaling, part)))
        for part in ("shift", "scale")
    )
    return (
        "".join(tables)
        + head
        + f"    return (raw - {word}_shift[column]) / {word}_scale[column];\n}}\n"
    )


def _filled_inputs(struct: StreamStruct, graph: Graph, start: str, count: str, lead: str) -> str:
    """Return C statements that scale `count` rows of the caller into the inputs of a graph.

    They also set the masks: 1 for these rows, 0 for the rest of the graph's width. `start` and
    `count` are C expressions, `start` the caller's first row; `lead` is the indentation.
    """
    lines = []
    for role, word in SCALED.items():
        if member := struct.only(graph, role):
            n = struct.manifest.n_outputs if word == "y" else struct.manifest.n_inputs
            lines.append(
                f"{lead}scale_rows(stream->{member.name}, {graph.width}, {word}, n, {start}, "
                f"{count}, {n}, scaled_{word});"
            )
    for role in ("points.mask", "targets.mask"):
        if mask := struct.only(graph, role):
            turns = f"for (size_t i = 0; i < {mask.size}; i++)"
            lines.append(f"{lead}{turns} stream->{mask.name}[i] = i % {graph.width} < {count};")
    return "\n".join(lines)


def _run(struct: StreamStruct, function: GraphFunction, sides: str) -> list[str]:
    """Return the lines of C that run a graph; it reads the state's current copies.

    `sides` is a C expression: bit G says which copy, 0 or 1, is current for the tensors of group G.
    The state tensors that the same steps write are a group.
    """
    graph, lines = function.graph, []
    now, following, others = (
        {struct.group_of[t.of] for t in tensors if t.role == role and struct.is_pair(t.of)}
        for tensors, role in (
            (graph.inputs, "state"),
            (graph.outputs, "state"),
            (graph.inputs, "other"),
        )
    )
    for group in sorted(now | following):
        lines.append(f"    const unsigned now_{group} = {sides} >> {group} & 1u;")
    lines += [f"    const unsigned next_{g} = 1u - now_{g};" for g in sorted(following)]
    of_other = "last_commit(other).sides"
    lines += [f"    const unsigned others_{g} = {of_other} >> {g} & 1u;" for g in sorted(others)]
    call = f"{function.c_name}({', '.join(struct.arguments(graph))});"
    return lines + textwrap.wrap(call, 96, initial_indent="    ", subsequent_indent=" " * 8)


def _compute(struct: StreamStruct, function: GraphFunction, graph: Graph) -> str:
    """Return the C function that runs a step on the state's current copies, and checks outputs."""
    lines = _run(struct, function, "sides")
    if "sides" not in "".join(lines):
        lines.insert(0, "    (void)sides;")
    if finite := struct.only(graph, "finite"):
        lines.append(f"    if (!all_finite(stream->{finite.name})) return EDGEFOLD_NOT_FINITE;")
    for ring in struct.manifest.state:
        if ring.slot is not None and ring.ring is not None and graph.with_role("row"):
            slots, n = struct.slots_of(ring), ring.shape[ring.ring]
            lines += [
                f"    for (size_t i = 0; i < {slots.size}; i++) {{",
                f"        if (stream->{slots.name}[i] < 0 || stream->{slots.name}[i] >= {n}) {{",
                "            return EDGEFOLD_BAD_SLOT;\n        }\n    }",
            ]
    if graph.step == "step":
        lines += _told(struct, graph, "1")
    head = f"static enum edgefold_status compute_{graph.step}"
    stream = struct.c_name
    parameters = f"(struct {stream} *stream, uint32_t sides)"
    if graph.step == "merge":
        parameters = (
            f"(\n    struct {stream} *stream, const struct {stream} *other, uint32_t sides)"
        )
    return "\n".join([head + parameters, "{", *lines, "    return EDGEFOLD_OK;", "}", ""])


def _answer(struct: StreamStruct, function: GraphFunction, graph: Graph) -> str:
    """Return the C function that predicts up to `graph.width` targets."""
    run = _run(struct, function, "sides")
    filled = _filled_inputs(struct, graph, "0", "n", "    ")
    stream = struct.c_name
    lines = [
        f"static enum edgefold_status answer_{c_identifier(graph.name)}(",
        f"    struct {stream} *stream, size_t n, const double *x)",
        "{",
        *["    const uint32_t sides = last_commit(stream).sides;"] * ("sides" in "".join(run)),
        *[line for line in run if line.startswith("    const")],
        *["    (void)x;"] * (not graph.with_role("targets.x")),
        *[filled] * bool(filled),
        *[line for line in run if not line.startswith("    const")],
        *_told(struct, graph, "n"),
        "    return EDGEFOLD_OK;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _told(struct: StreamStruct, graph: Graph, n: str) -> list[str]:
    """Return C statements that write a graph's predictions, in raw units, into the struct.

    They return EDGEFOLD_NOT_FINITE for a prediction that is not finite. `n` is a C expression of
    the number of targets.
    """
    lines = []
    for tensor, source in zip(struct.manifest.prediction_tensors, struct.given(graph), strict=True):
        member, unscale = struct.predictions[tensor.name], c_identifier(tensor.unscale)
        size = source.size // (struct.manifest.n_streams * graph.width)
        n_columns = 1 if tensor.unscale == "none" else struct.manifest.n_outputs
        is_score = int(tensor.unscale in ("none", "log-density"))
        lines.append(
            f"    if (!tell_{tensor.dtype}(stream->{member.name}, stream->{source.name}, "
            f"{graph.width}, {n}, {size},\n"
            f"              {unscale}_times, {unscale}_plus, {n_columns}, {is_score})) {{\n"
            "        return EDGEFOLD_NOT_FINITE;\n    }"
        )
    return lines


def _unscaled(m: Manifest) -> str:
    """Return the C tables of factors and summands that turn predictions into raw units."""
    texts = []
    for unscale in sorted({tensor.unscale for tensor in m.prediction_tensors}):
        # Minus zero changes no number, where zero would change the sign of minus zero.
        one, nothing = np.ones(1), np.full(1, -0.0)
        times, plus = (one, nothing) if unscale == "none" else m.scaling_y.of(unscale)
        name = c_identifier(unscale)
        texts.append(array_text(f"{name}_times", "float64", np.asarray(times)))
        texts.append(array_text(f"{name}_plus", "float64", np.asarray(plus)))
    return "".join(texts)


def _choice(queries: list[Graph]) -> str:
    """Return C statements that call the query graph of the least width that takes n targets."""
    lines = [
        f"    if (n <= {graph.width}) return answer_{c_identifier(graph.name)}(stream, n, x);"
        for graph in queries[:-1]
    ]
    lines += [f"    return answer_{c_identifier(g.name)}(stream, n, x);" for g in queries[-1:]]
    return "\n".join(lines)


def library(struct: StreamStruct, functions: Functions, words: Mapping[str, Any]) -> str:
    """Return the C functions by which a shared library lets Python's runtime run each graph.

    Each takes the addresses of inputs and outputs, and of an arena of `words["arena_bytes"]` bytes.
    """
    m = struct.manifest
    lines = ["#ifdef EDGEFOLD_LIBRARY /* for edgefold.runtime.backends.native */"]
    for graph in m.graphs.values():
        tensors = [f"tensors[{i}]" for i in range(len((*graph.inputs, *graph.outputs)))]
        call = f"{functions[graph.name].c_name}({', '.join([*tensors, 'arena'])});"
        name = f"edgefold_native_{c_identifier(graph.name)}"
        lines += [
            f"void {name}(void *const *tensors, void *arena);",
            f"void {name}(void *const *tensors, void *arena)",
            "{",
            *textwrap.wrap(call, 96, initial_indent="    ", subsequent_indent=" " * 8),
            "}\n",
        ]
    facts = {
        "const size_t edgefold_native_arena_bytes": words["arena_bytes"],
        "const size_t edgefold_native_stream_bytes": f"sizeof(struct {struct.c_name})",
        **{
            f"const size_t edgefold_native_{what}": f"{struct.c_name.upper()}_{size}"
            for what, size in SIZES.items()
        },
        "const char edgefold_native_bundle[65]": f"{struct.c_name.upper()}_BUNDLE",
        "const char edgefold_native_generator[]": f'"{GENERATOR}"',
    }
    lines += [f"extern {what};\n{what} = {value};" for what, value in facts.items()]
    return "\n".join([*lines, "#endif", ""])
