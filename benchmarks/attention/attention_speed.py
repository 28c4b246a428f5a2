"""How long does a step of continual attention take, next to the batch and published forms?

The attention alone at the sizes of Carreto Picon et al., Table III (n 120, d 192, 16 heads, m 4),
then over window lengths. In one run, one thread, in turns:

    graph     our cores as exported, in onnxruntime with bound buffers, no Python of ours
    step      the same through Stream.step, with its share of Python
    eager     the published forms and the batch forms in PyTorch, as papers compare them
    as graph  these exported in the same way

    round     1                              2
    ┌─────────┴─────────────────────────────┐┌──────────
    │ noise │ a block of core 1 │ of core 2 │ ...       every round begins with another core

Of two of them it is told which nodes of the graph the time goes to (as in `floors`).
Where a core does something only every so many tokens (`consolidate`; a landmark that moves), the
mean over such a period is told, and the worst step beside it. Times are of the thread's own clock,
which counts no neighbour of the machine. State is what the manifest says, beside the papers' count
of numbers (their valley cost, times 4 bytes). Draws docs/img/attention_speed.png.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.attention.attention_cores import Shape, our_core, write_bundle
from benchmarks.attention.published_batch import PublishedCore
from benchmarks.attention.published_cores import PUBLISHED, CoNySiCont
from benchmarks.record import (
    IMAGES,
    Noise,
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.speed.floors import Bound, measure_graph, session_of
from benchmarks.tables import as_text
from edgefold.export.graphs.step_graphs import Sizes, StepGraphs
from edgefold.export.lowering.steps import lower
from edgefold.runtime import Stream
from edgefold.train.contract import Prediction, State, StreamingModel, advance

QUESTION = "How long does a step of continual attention take?"
LENGTHS = (60, 120, 240, 480, 1000, 2000)
OURS = (
    *("single", "nystrom fixed folded", "nystrom fixed", "nystrom means"),
    *("hopping folded", "hopping", "retroactive"),
    *("nystrom fixed retroactive", "nystrom means retroactive"),
)
ON_THE_RUNTIME = ("single", "nystrom fixed", "nystrom means", "hopping")
OVER_LENGTHS = ("single", "nystrom fixed folded", "nystrom means", "hopping folded")
SINGLE_S, NYSTROM_S = 34e-6, 12e-6
N_TOKENS = 130
PUBLISHED_BYTES: dict[str, Callable[[int, int, int], int]] = {
    "Att": lambda n, d, m: 3 * (n - 1) * d,
    "Ny": lambda n, d, m: 3 * (n - 1) * d,
    "NyFix": lambda n, d, m: 3 * (n - 1) * d + 2 * d * m + m**2,
    "CoRe": lambda n, d, m: 4 * (n - 1) * d + n - 1,
    "CoSi": lambda n, d, m: 2 * (n - 1) * d,
    "CoNyReFix": lambda n, d, m: n * m + 3 * d * m + m**2 + m,
    "CoNySiFix": lambda n, d, m: 3 * d * m + m**2 + m,
    "CoNyReCont": lambda n, d, m: (
        3 * (n - 1) * d + 2 * n * m + 4 * d * m + 2 * m**2 - 2 * m - 3
    ),
    "CoNySiCont": lambda n, d, m: 2 * (n - 1) * d + 4 * d * m + 2 * m**2,
}  # fmt: skip
"""Appendix B, valley cost in numbers; n d - 1 there is read as (n - 1) d."""
PAPER_FORM = {
    **{"single": "CoSi", "nystrom fixed": "CoNySiFix", "nystrom fixed folded": "CoNySiFix"},
    **{"nystrom means": "CoNySiCont", "retroactive": "CoRe"},
    **{"hopping": "CoNySiFix", "hopping folded": "CoNySiFix"},
    **{"nystrom fixed retroactive": "CoNyReFix", "nystrom means retroactive": "CoNyReCont"},
}
BATCH_FORM = {"single": "Att", "nystrom fixed folded": "NyFix", "nystrom means": "Ny"}


@dataclass(slots=True)
class Contender:
    """Contenders that are timed in turns: blocks of calls, each in seconds a call.

    Attributes:
        blocks: By part: "step", "rare" (what comes beside a step, or replaces it, each period).
        period: Steps for one `rare`; 0 without one.
        replaces: Whether `rare` takes the place of a step.
        facts: More to record.
    """

    blocks: dict[str, Callable[[], float]]
    period: int = 0
    replaces: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)

    def time(self) -> None:
        """A block of each part."""
        for part, block in self.blocks.items():
            self.times.setdefault(part, []).append(block())

    def told(self) -> dict[str, Any]:
        """Seconds of a step on average, alone, at worst; medians over rounds, with a spread."""
        step = np.array(self.times["step"])
        rare = np.array(self.times.get("rare", [0.0] * len(step)))
        mean, worst = step, step
        if self.period:
            mean = (step * (self.period - self.replaces) + rare) / self.period
            worst = rare if self.replaces else step + rare
        p10, p50, p90 = (float(q) for q in np.quantile(mean, (0.1, 0.5, 0.9)))
        return {
            "mean_s": p50,
            "p10_s": p10,
            "p90_s": p90,
            "step_s": float(np.median(step)),
            "worst_s": float(np.median(worst)),
            "period": self.period,
            **self.facts,
        }


def graph_block(graphs: StepGraphs, step: str, n_tokens: int) -> Callable[[], float]:
    """Blocks of calls of an exported step with a full window."""
    (graph,) = graphs.of_step(step)
    with tempfile.TemporaryDirectory(prefix="edgefold-attention-") as folder:
        path = Path(folder) / "step.onnx"
        path.write_bytes(graph.model.SerializeToString())
        session = session_of(path)
    random = np.random.default_rng(0)
    inputs = {}
    for wanted in session.get_inputs():
        if wanted.type == "tensor(float)":
            inputs[wanted.name] = random.uniform(0.1, 1, wanted.shape).astype(np.float32)
        else:
            inputs[wanted.name] = np.full(wanted.shape, n_tokens, np.int64)
    return Bound(session, inputs).time_block


def our_graph(kind: str, shape: Shape) -> Contender:
    """One of our cores as a graph; `rare` is its consolidation."""
    torch.manual_seed(0)
    core = our_core(kind, shape)
    graphs = lower(core.eval(), Sizes(2, 1, 1))
    n_tokens = 10 * shape.window + 7
    blocks = {"step": graph_block(graphs, "step", n_tokens)}
    (step,) = graphs.of_step("step")
    facts = {"state_bytes": sum(a.nbytes for a in graphs.state.values())}
    facts["n_nodes"] = len(step.model.graph.node)
    if core.consolidate_every:
        blocks["rare"] = graph_block(graphs, "consolidate", n_tokens)
    return Contender(blocks, core.consolidate_every, False, facts)


class Branch(StreamingModel):
    """One of the two cases of a published form with continual landmarks, as a model of its own."""

    n_outputs = 0

    def __init__(self, core: CoNySiCont, is_moving: bool):
        super().__init__()
        self.core, self.is_moving = core, is_moving
        self.prediction, self.n_inputs = core.prediction, core.n_inputs

    def initial_state(self, n_streams: int = 1) -> State:
        return self.core.initial_state(n_streams)

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        core, shape = self.core, self.core.shape
        q, k, v = x.view(len(x), 3, shape.n_heads, 1, shape.head_width).unbind(1)
        if self.is_moving:
            written, found = core.changed(state, q, k, v, core.due(state))
        else:
            written, found = core.unchanged(state, q, k, v)
        written |= {"n_tokens": state["n_tokens"] + 1, "finite": torch.zeros_like(x[:, 0])}
        return written, {"found": found[:, :, 0] if core.is_single else found}


def published_graph(name: str, shape: Shape) -> Contender:
    """A published form as a graph; `rare` is a step that moves a landmark."""
    torch.manual_seed(0)
    core = PUBLISHED[name](shape)
    n_tokens = 10 * shape.window - 1
    if not isinstance(core, CoNySiCont):
        graphs = lower(core.eval(), Sizes(2, 1, 1))
        return Contender({"step": graph_block(graphs, "step", n_tokens)})
    both = {
        part: graph_block(lower(Branch(core, moving).eval(), Sizes(2, 1, 1)), "step", n_tokens)
        for part, moving in (("step", False), ("rare", True))
    }
    return Contender(both, shape.window // shape.n_landmarks, True)


def eager(name: str, shape: Shape) -> Contender:
    """A published form in PyTorch, after some tokens; `rare` is a step that moves a landmark."""
    torch.manual_seed(0)
    core: PublishedCore = PUBLISHED[name](shape).eval()
    state = core.initial_state(1)
    facts = {"state_bytes": sum(t.nbytes for t in state.values())}
    tokens = 0.3 * torch.randn(N_TOKENS, 1, core.n_inputs)
    with torch.inference_mode():
        for x in tokens:
            state = advance(core, state, core.step(state, x)[0])
    row = tokens[0].view(1, 3, shape.n_heads, 1, shape.head_width).unbind(1)
    if not isinstance(core, CoNySiCont):
        return Contender({"step": python_block(partial(core.attend, state, *row))}, facts=facts)
    still = {**state, "n_tokens": torch.tensor([0])}
    moving = {**state, "n_tokens": torch.tensor([shape.window - 1])}
    blocks = {
        part: python_block(partial(core.attend_one, given, *row))
        for part, given in (("step", still), ("rare", moving))
    }
    return Contender(blocks, shape.window // shape.n_landmarks, True, facts)


def python_block(call: Callable[[], Any], n_calls: int = 12) -> Callable[[], float]:
    """Blocks of a call of PyTorch."""

    @torch.inference_mode()
    def block() -> float:
        taken = []
        for _ in range(n_calls):
            start = time.thread_time_ns()
            call()
            taken.append(time.thread_time_ns() - start)
        return statistics.median(taken) / 1e9

    return block


def on_the_runtime(kind: str, shape: Shape, folder: Path) -> Contender:
    """A core through Stream.step: a block is some periods, the mean of all its steps."""
    torch.manual_seed(0)
    core = our_core(kind, shape, with_ones=True)
    path = folder / kind.replace(" ", "-")
    write_bundle(core, path)
    stream = Stream.open(path, backend="onnxruntime")
    tokens = np.random.default_rng(0).uniform(-1, 1, (960, core.n_inputs)).astype(np.float32)

    def block() -> float:
        start = time.thread_time_ns()
        for x in tokens:
            stream.step(x)
        return (time.thread_time_ns() - start) / len(tokens) / 1e9

    block()
    return Contender({"step": block})


def in_turns(contenders: dict[str, Contender], n_rounds: int) -> dict[str, Any]:
    """Time all in turns: what each tells, and the machine's noise."""
    names, noise = list(contenders), Noise()
    for turn in range(n_rounds):
        shift = turn % len(names)
        noise.sample()
        for name in (*names[shift:], *names[:shift]):
            contenders[name].time()
        progress(f"round {turn + 1} of {n_rounds}", last=turn + 1 == n_rounds)
    return {
        "noise": noise.summary(),
        **{name: contender.told() for name, contender in contenders.items()},
    }


def measure(shape: Shape, n_rounds: int, is_quick: bool, folder: Path) -> dict[str, Any]:
    """All at the paper's sizes."""
    ours = OURS[:2] if is_quick else OURS
    published = ("CoSi", "CoNySiFix", "Att", "NyFix") if is_quick else tuple(PUBLISHED)
    contenders: dict[str, Contender] = {}
    for kind in ours:
        progress(f"exporting {kind}")
        contenders[f"graph: {kind}"] = our_graph(kind, shape)
    for kind in ON_THE_RUNTIME[: 1 if is_quick else None]:
        contenders[f"step: {kind}"] = on_the_runtime(kind, shape, folder)
    for name in published:
        contenders[f"eager: {name}"] = eager(name, shape)
        contenders[f"as graph: {name}"] = published_graph(name, shape)
    return in_turns(contenders, n_rounds)


def nodes_of(kinds: tuple[str, ...], shape: Shape, folder: Path) -> dict[str, Any]:
    """Return the time of each graph by kinds of nodes; see `benchmarks.speed.floors`."""
    found = {}
    for kind in kinds:
        progress(f"timing the nodes of {kind}")
        torch.manual_seed(0)
        for graph in lower(our_core(kind, shape).eval(), Sizes(2, 1, 1)).steps:
            path = folder / f"{graph.name}.onnx"
            path.write_bytes(graph.model.SerializeToString())
            found[f"{kind}, {graph.name}"] = measure_graph(path)
    return found


def over_lengths(n_rounds: int, lengths: tuple[int, ...]) -> dict[str, Any]:
    """The newest token's forms against the window's length."""
    contenders = {}
    for n in lengths:
        progress(f"exporting for a window of {n:,}")
        for kind in OVER_LENGTHS:
            contenders[f"{kind}, {n}"] = our_graph(kind, Shape(window=n))
    return in_turns(contenders, n_rounds)


def requirements(times: dict[str, Any]) -> list[Requirement]:
    """The bounds of the two cores, and that they are faster than what they replace."""
    single, fixed = (times[f"graph: {kind}"]["mean_s"] for kind in OURS[:2])
    found = [
        at_most("single output in the graph", single * 1e6, SINGLE_S * 1e6, "µs"),
        at_most(
            "continual Nyström, fixed landmarks, in the graph, consolidation included",
            fixed * 1e6,
            NYSTROM_S * 1e6,
            "µs",
        ),
    ]
    for kind, batch in BATCH_FORM.items():
        if f"graph: {kind}" not in times:
            continue
        ours = times[f"graph: {kind}"]["mean_s"]
        for what, name in (("published", PAPER_FORM[kind]), ("batch", batch)):
            for way in ("eager", "as graph"):
                ratio = times[f"{way}: {name}"]["mean_s"] / ours
                found.append(
                    at_least(f"{kind}: {what} {name}, {way}, over ours", ratio, 1, "times")
                )
    return found


def main() -> None:
    """Measure, draw and record."""
    parser = arguments(__doc__ or "", "attention_speed")
    parser.add_argument("--rounds", type=int, default=41, help="default 41")
    args = parser.parse_args()
    before = conditions()
    torch.set_num_threads(1)
    n_rounds = 3 if args.quick else args.rounds
    shape = Shape()
    with tempfile.TemporaryDirectory(prefix="edgefold-attention-") as folder:
        times = measure(shape, n_rounds, args.quick, Path(folder))
        nodes = nodes_of(OURS[: 1 if args.quick else 2], shape, Path(folder))
    lengths = over_lengths(n_rounds, LENGTHS[:2] if args.quick else LENGTHS)
    n, d, m = shape.window, shape.width, shape.n_landmarks
    data = {
        "n": n,
        "d": d,
        "m": m,
        "n_heads": shape.n_heads,
        "rounds": n_rounds,
        "times": times,
        "lengths": lengths,
        "nodes": nodes,
        "paper_bytes": {name: 4 * of(n, d, m) for name, of in PUBLISHED_BYTES.items()},
        "paper_form": PAPER_FORM,
    }
    if not args.quick:
        from benchmarks.attention.attention_plots import draw_speed

        draw_speed(data, IMAGES / "attention_speed.png")
    finish(args, "attention_speed", QUESTION, before, data, requirements(times), as_text)


if __name__ == "__main__":
    main()
