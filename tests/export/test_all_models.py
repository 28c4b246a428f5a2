"""One suite for every model that comes with Edgefold: PyTorch, bundles of 1 and of 3 streams, C.

A model that is not in `TINY` fails here, so that none can be forgotten. Nothing is trained: a law
of the contract holds for any weights. `make test` holds each model to every law in one form, forms
taking turns and PyTorch every second one; `make test-all` takes all forms, and what is marked slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.checks.laws import CHECKS, PASSED, SKIPPED, Law
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.export.checks.subjects import StreamSubject, Subject
from edgefold.export.native.toolchain.compilers import compile_library
from edgefold.runtime import Stream
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.checking.golden import check_bundle
from edgefold.train.contract import StreamingModel
from edgefold.train.models.registry import MODELS, create_model
from tests.made_once import made_once
from tests.native_builds import (
    QUICK,
    STRICT,
    Native,
    build,
    c_files,
    compiler_or_skip,
    prove_with_sanitizers,
    stays_with_onnxruntime,
)
from tests.pairwise import in_turn

N_STEPS = 60
"""Of the long checks; `make test-all` takes 10,000."""
ATTENTION = {"width": 16, "n_heads": 2}
KEPT = {**ATTENTION, "capacity": 12}
TRANSFORMER = {**KEPT, "n_layers": 2, "feedforward": 16}
ENCODER = {**ATTENTION, "n_inputs": 3, "n_classes": 4, "n_layers": 2, "feedforward": 16}
WINDOW = {**ENCODER, "window": 12}
LATENTS = {**ATTENTION, "n_blocks": 2, "n_latents": 8, "feedforward": 16}
TINY: dict[str, dict[str, Any]] = {
    "anp": {**KEPT, "n_samples": 3},
    "banp": {**KEPT, "n_samples": 3},
    "banp-drawn": {**KEPT, "n_samples": 3, "counts": "drawn"},
    "bnp": {"width": 16, "n_samples": 3},
    "bnp-two-stages": {
        **{"width": 16, "n_samples": 3, "capacity": 12},
        **{"stages": 2, "counts": "drawn"},
    },
    "canp": KEPT,
    "cmanp": LATENTS,
    "cmanp-and": {**LATENTS, "block": 2},
    "cmanp-forgetting": {**LATENTS, "half_lives": (2.0, 20.0, 0.0)},
    "cmhp": {**LATENTS, "n_latents": 2, "n_components": 8},
    "cmhp-published": {  # 6 components: with 8, quantiles are 36 units, of which float32 loses 1e-4
        **{**LATENTS, "n_latents": 2, "n_components": 6, "tokens": "time"},
        **{"residual": "normalised", "forgetting": False, "dependent_marks": False},
    },
    "cnp": {"width": 16},
    "continual-nystrom": {**WINDOW, "n_landmarks": 3},
    "continual-nystrom-prompt": {**WINDOW, "n_landmarks": 3, "landmark_serves": "last"},
    "continual-transformer": WINDOW,
    "convcnp": {"points_per_unit": 8, "channels": 4, "n_halvings": 2},
    "convcnp-published": {
        **{"points_per_unit": 8, "channels": 4, "n_halvings": 2, "margin": 0.1},
        **{"nodes": "fitted", "density": "plain", "length_scales": "channels"},
        **{"unit_bumps": False, "least_std": 0.0},
    },
    "eqtnp": TRANSFORMER,
    "hawkes": {"n_decays": 2},
    "hopping-nystrom": {**WINDOW, "n_landmarks": 3},
    "lbanp": {**LATENTS, "capacity": 12},
    "lbanp-end": {**LATENTS, "capacity": 12, "n_target_latents": 4},
    "lbanp-end-published": {
        **LATENTS,
        **{"capacity": 12, "n_target_latents": 4, "bottleneck": "pre-norm", "least": 0.0},
        **{"residual": "normalised", "queries": "last"},
    },
    "lbanp-nd": {**LATENTS, "capacity": 12},
    "np": {"width": 16, "n_samples": 3},
    "perceiver-io": LATENTS,
    "perceiver-io-iterative": {**LATENTS, "reads_context": "each-block", "capacity": 12},
    "poisson": {},
    "sensors": {"longest": 48, "values": 192},
    "retreever": {**KEPT, "n_encoder_layers": 1, "feedforward": 16},
    "thp": {**ATTENTION, "n_layers": 2, "feedforward": 16, "window": 5},
    "thp-published": {
        **{**ATTENTION, "n_layers": 2, "feedforward": 16, "window": 5, "n_components": 8},
        **{"encoder": "published", "head": "mixture", "dependent_marks": False},
    },
    "tnp-a": TRANSFORMER,
    "tnp-d": TRANSFORMER,
    "tnp-nd": TRANSFORMER,
    "tnp-nd-low-rank": {**TRANSFORMER, "covariance": "low-rank"},
    "transformer-ca": TRANSFORMER,
    "window-nystrom": {**WINDOW, "n_landmarks": 3},
    "window-transformer": WINDOW,
}
"""Settings with which a model's steps take least time."""
VARIANTS = {
    "banp-drawn": "banp",
    "bnp-two-stages": "bnp",
    "cmanp-forgetting": "cmanp",
    "cmhp-published": "cmhp",
    "continual-nystrom-prompt": "continual-nystrom",
    "convcnp-published": "convcnp",
    "lbanp-end-published": "lbanp-end",
    "perceiver-io-iterative": "perceiver-io",
    "tnp-nd-low-rank": "tnp-nd",
    "thp-published": "thp",
}
"""Settings that give a model other graphs."""
OVERWRITING = [name for name in MODELS if "capacity" in TINY.get(name, {})]
Export = Callable[[str, int, str], Path]


def tiny(name: str, when_full: str = "") -> StreamingModel:
    """A model of these settings with the same weights each time."""
    torch.manual_seed(0)
    model = VARIANTS.get(name, name)
    return create_model(model, TINY[name] | ({"when_full": when_full} if when_full else {}))


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Bundles by model, number of streams and rule, each exported once."""

    def export(name: str, n_streams: int, when_full: str = "") -> Path:
        def make(folder: Path) -> None:
            config = ExportConfig(chunk=4, targets=3, streams=n_streams, parity_steps=24)
            model = tiny(name, when_full)
            export_bundle(model, {"name": "untrained"}, folder / "bundle", config)

        kind = f"{name}-{n_streams}-{when_full}"
        return made_once(tmp_path_factory, f"model-{kind}", make) / "bundle"

    return export


@pytest.fixture(scope="session")
def unoptimised(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], EngineOptions]:
    """Compiles a bundle without optimisation, which takes gcc a fifth of the time of -O1.

    Neither level contracts products and sums; the slow test below compiles with -O1.
    """
    compiler = compiler_or_skip(flags=("-O0",))
    return lambda bundle: build(bundle, tmp_path_factory.mktemp("native"), compiler)


NAMES = sorted((*MODELS, *VARIANTS))
FORMS = "bundle of 1 stream", "PyTorch", "bundle of 3 streams", "compiled C"
TURNS = [FORMS[at] for at in (0, 1, 2, 1, 3, 1, 0, 1, 2, 1)]  # C takes longest
SLOWEST = "continual-nystrom", "sensors"
"""Models whose laws `make test-all` holds here: the first keeps them in test_continual_models.py,
too, and hundreds of tests run the shipped bundle of the second."""
CHOSEN = in_turn([name for name in NAMES if name not in SLOWEST], TURNS)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def cases(form: str, *values: Any) -> list[Any]:
    """Every model with a form's values; those that this form's turn leaves out are `product`."""
    return [
        pytest.param(name, *values, marks=() if (name, form) in CHOSEN else pytest.mark.product)
        for name in NAMES
    ]


def hold(subject: Subject, checks: tuple[Law, ...], n_steps: int) -> None:
    """Run checks on a subject; all that failed are told at once."""
    verdicts = [check.verdict(subject, n_steps) for check in checks]
    failed = [f"{v.name}: {v.detail}" for v in verdicts if v.verdict not in (PASSED, SKIPPED)]
    assert not failed, "\n".join(failed)


def test_every_model_has_its_settings_here() -> None:
    assert MODELS.keys() <= TINY.keys()


def about(model: StreamingModel) -> tuple[Any, ...]:
    """What a bundle's subject must know of its model."""
    return model.ordered, model.input_range, model.plausible_inputs


@pytest.mark.parametrize("name", cases(FORMS[1]))
def test_a_model_keeps_the_contract_in_pytorch(name: str) -> None:
    hold(TorchSubject(tiny(name)), (*MODEL_CHECKS, *CHECKS), N_STEPS)


@pytest.mark.parametrize(("name", "n_streams"), cases(FORMS[0], 1) + cases(FORMS[2], 3))
def test_a_bundle_of_a_model_keeps_the_contract(
    name: str, exported: Export, n_streams: int
) -> None:
    bundle = exported(name, n_streams, "")
    assert check_bundle(bundle, "onnxruntime").passed
    with Stream.open(bundle, "onnxruntime") as stream:
        model = tiny(name)
        assert (stream.manifest.capacity, stream.manifest.when_full) == (
            model.capacity,
            model.when_full,
        )
        hold(StreamSubject(stream, *about(model)), CHECKS, N_STEPS)


LOOPS = {"CumSum", "GRU", "If", "LSTM", "Loop", "RNN", "Scan"}
"""Operators that TensorRT 10.3 makes a loop of, or that are one: no step could be captured."""


def loops_of(bundle: Path) -> list[str]:
    """Each loop of a bundle's graphs, as "file: operator"."""
    graphs = {
        path.name: onnx.load(path, load_external_data=False) for path in bundle.glob("*.onnx")
    }
    return [
        f"{name}: {node.op_type}"
        for name, model in graphs.items()
        for node in model.graph.node
        if node.op_type in LOOPS
    ]


@pytest.mark.parametrize(("name", "n_streams"), cases(FORMS[0], 1) + cases(FORMS[2], 3))
def test_no_graph_of_a_model_has_a_loop(name: str, exported: Export, n_streams: int) -> None:
    assert loops_of(exported(name, n_streams, "")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERWRITING)
def test_no_graph_of_a_reservoir_has_a_loop(name: str, exported: Export) -> None:
    """Its random numbers pass through a CumSum over one term in PyTorch."""
    assert loops_of(exported(name, 1, "reservoir")) == []


def int8_cases() -> list[Any]:
    """Every model, of which `make test-all` alone takes all but the one with a rare query."""
    marks = {name: () if name == "retreever" else pytest.mark.slow for name in NAMES}
    return [pytest.param(name, marks=marks[name]) for name in NAMES if name not in WITHOUT_INT8]


WITHOUT_INT8 = {
    "convcnp": "its convolutions bear no int8",
    "hawkes": "it has no product",
    "poisson": "it has no product",
}


@pytest.mark.parametrize("name", int8_cases())
def test_a_model_is_exported_in_int8(name: str, tmp_path: Path) -> None:
    """The query of retreever reads the state next to the cache."""
    config = ExportConfig(chunk=4, targets=3, parity_steps=24, precision="int8", accept_loss=True)
    export_bundle(tiny(name), {"name": "untrained"}, tmp_path / "bundle", config)
    with Stream.open(tmp_path / "bundle", "onnxruntime") as stream:
        assert stream.manifest.precision["name"] == "int8"


@pytest.mark.parametrize("name", cases(FORMS[3]))
def test_a_model_as_compiled_c_keeps_the_contract(
    name: str, exported: Export, unoptimised: Callable[[Path], EngineOptions]
) -> None:
    bundle, model = exported(name, 3, ""), tiny(name)
    with Stream.open(bundle, "native", engine=unoptimised(bundle)) as stream:
        hold(StreamSubject(stream, *about(model)), CHECKS, N_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("when_full", ["", "overwrite", "reservoir"])
def test_compiled_c_stays_with_onnxruntime_over_10_000_points(
    name: str, exported: Export, native: Native, when_full: str
) -> None:
    if when_full and name not in OVERWRITING:
        pytest.skip("this model forgets nothing")
    bundle, model = exported(name, 1, when_full), tiny(name, when_full)
    told = about(model)
    with (
        Stream.open(bundle, "native", engine=native(bundle)) as compiled,
        Stream.open(bundle, "onnxruntime") as stream,
    ):
        stays_with_onnxruntime(StreamSubject(compiled, *told), StreamSubject(stream, *told))
        hold(StreamSubject(compiled, *told), CHECKS, 10_000)


@pytest.mark.slow
def test_the_c_of_a_model_has_no_warnings_and_passes_the_sanitizers(
    name: str, exported: Export, tmp_path: Path
) -> None:
    bundle = exported(name, 3, "")
    for compiler in ("gcc", "clang"):
        strict = compiler_or_skip(compiler, (*QUICK, *STRICT))
        compile_library(c_files(bundle), strict, tmp_path)
    prove_with_sanitizers(bundle, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("when_full", ["overwrite", "reservoir"])
@pytest.mark.parametrize("name", OVERWRITING)
def test_a_model_that_forgets_keeps_the_contract(
    name: str, exported: Export, when_full: str
) -> None:
    model = tiny(name, when_full)
    hold(TorchSubject(model), (*MODEL_CHECKS, *CHECKS), 10 * N_STEPS)
    with Stream.open(exported(name, 3, when_full), "onnxruntime") as stream:
        hold(StreamSubject(stream, *about(model)), CHECKS, 10_000)


@pytest.mark.slow
def test_a_model_s_state_holds_after_10_000_points(name: str, exported: Export) -> None:
    when_full = "overwrite" if name in OVERWRITING else ""
    model = tiny(name, when_full)
    with Stream.open(exported(name, 1, when_full), "onnxruntime") as stream:
        hold(StreamSubject(stream, *about(model)), CHECKS, 10_000)
