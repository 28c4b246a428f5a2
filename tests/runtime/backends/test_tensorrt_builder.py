"""The builder against a stand-in for TensorRT 10.3's bindings: what is asked of it, and in words
what it refuses. The real builder is held in tests/export/tensorrt/test_tensorrt_rtx.py."""

from __future__ import annotations

from enum import Enum, IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.builder import (
    build_plan,
    require_buildable,
    require_runnable,
    supported_capabilities,
    with_board_defaults,
)
from edgefold.runtime.backends.tensorrt.driver import Device
from edgefold.runtime.backends.tensorrt.variant import Variant
from edgefold.runtime.errors import BackendError

ONNX = Path("bundle/update.onnx")


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    VERBOSE = 4


NETWORK = SimpleNamespace(num_layers=0)


class ErrorCode(Enum):
    UNSUPPORTED_NODE = 8
    INVALID_GRAPH = 5


class ParserError:
    def __init__(self, node: int, name: str, desc: str):
        self._of = node, name, desc

    def node(self) -> int:
        return self._of[0]

    def node_name(self) -> str:
        return self._of[1]

    def node_operator(self) -> str:
        return "Det"

    def desc(self) -> str:
        return self._of[2]

    def func(self) -> str:
        return "checkDet"

    def code(self) -> ErrorCode:
        return ErrorCode.UNSUPPORTED_NODE


class Timing:
    def __init__(self, content: bytes):
        self.content = content

    def serialize(self) -> bytes:
        return self.content + b"+update"


class Config:
    """An IBuilderConfig that notes what is set; no attribute beyond these may be."""

    __slots__ = (
        *("builder_optimization_level", "calls", "max_aux_streams", "profiling_verbosity"),
        *("timing", "trt"),
    )

    def __init__(self, trt: TensorRt):
        self.trt = trt
        self.calls: list[tuple[Any, ...]] = []
        self.builder_optimization_level = 3
        self.profiling_verbosity = ""

    def clear_flag(self, flag: str) -> None:
        self.calls.append(("clear", flag))

    def set_flag(self, flag: str) -> None:
        self.calls.append(("set", flag))

    def set_memory_pool_limit(self, pool: str, n_bytes: int) -> None:
        self.calls.append((pool, n_bytes))

    def create_timing_cache(self, content: bytes) -> Timing | None:
        return None if content == b"garbage" else Timing(content)

    def set_timing_cache(self, timing: Timing, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        accepted = timing.content != b"of another device"
        if accepted:
            self.timing = timing
        return accepted


class RtxConfig(Config):
    __slots__ = ("num_compute_capabilities",)

    def set_compute_capability(self, capability: str, index: int) -> bool:
        self.calls.append((capability, index))
        return True

    def create_timing_cache(self, content: bytes) -> Timing | None:
        raise DeprecationWarning("Timing cache operations are no-ops in TensorRT-RTX.")


class Capability(Enum):
    NONE = 0
    CURRENT = 1
    SM75 = 75
    SM86 = 86
    SM89 = 89
    SM120 = 120


class TensorRt(SimpleNamespace):
    """The module. Set what goes wrong: no_gpu, parser_errors, build_error; `listed` is logged."""

    def __init__(self, config: type[Config] = Config):
        super().__init__(
            no_gpu=False,
            parser_errors=[],
            said="",
            build_error="",
            flags=None,
            listed="",
            config=config(self),
        )
        self.NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
        self.BuilderFlag = SimpleNamespace(TF32="TF32", REQUIRE_USER_ALLOCATION="own memory")
        self.MemoryPoolType = SimpleNamespace(WORKSPACE="WORKSPACE")
        self.ComputeCapability = Capability
        self.ILogger = type("ILogger", (), {"Severity": Severity, "log": None})
        self.ProfilingVerbosity = SimpleNamespace(DETAILED="names and types")
        self.LayerInformationFormat = SimpleNamespace(JSON="JSON")
        self.LayerType = SimpleNamespace(MATRIX_MULTIPLY="product", DEQUANTIZE="from a grid")
        self.float16 = "HALF"
        self.inspected: str | None = '{"Layers": [{"Name": "neg", "LayerType": "kgen"}]}'

    def Runtime(self, logger: Any) -> Any:  # noqa: N802  (TensorRT's name)
        def deserialize(plan: bytes) -> Any:
            assert plan == b"plan"
            inspector = SimpleNamespace(get_engine_information=lambda told: self.inspected)
            return SimpleNamespace(create_engine_inspector=lambda: inspector)

        return SimpleNamespace(deserialize_cuda_engine=deserialize)

    def Builder(self, logger: Any) -> Any:  # noqa: N802  (TensorRT's name)
        if self.no_gpu:
            logger.log(Severity.ERROR, "CUDA initialization failure with error: 35.")
            raise TypeError("pybind11::init(): factory function returned nullptr")

        def create_network(flags: int) -> Any:
            self.flags = flags
            return NETWORK

        def build(network: Any, config: Config) -> bytes | None:
            assert network is NETWORK
            if config.profiling_verbosity == "names and types" and self.listed:
                logger.log(Severity.VERBOSE, self.listed)
            if self.build_error:
                logger.log(Severity.ERROR, self.build_error)
                return None
            return b"plan"

        return SimpleNamespace(
            create_network=create_network,
            create_builder_config=lambda: self.config,
            build_serialized_network=build,
        )

    def OnnxParser(self, network: Any, logger: Any) -> Any:  # noqa: N802  (TensorRT's name)
        def parse_from_file(path: str) -> bool:
            assert path == str(ONNX)
            if self.said:
                logger.log(Severity.ERROR, self.said)
            return not self.parser_errors

        return SimpleNamespace(
            parse_from_file=parse_from_file,
            num_errors=len(self.parser_errors),
            get_error=lambda index: self.parser_errors[index],
        )


@pytest.fixture
def trt() -> TensorRt:
    return TensorRt()


def variant(trt: TensorRt) -> Variant:
    return Variant("tensorrt", trt, "10.3.0.26")


def rtx(trt: TensorRt) -> Variant:
    return Variant("tensorrt_rtx", trt, "1.7.1.116")


def refusal(of: Variant, options: EngineOptions | None = None) -> str:
    with pytest.raises(BackendError) as refused:
        build_plan(of, ONNX, options or EngineOptions())
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_network_is_strongly_typed_and_float32_is_not_rounded(trt: TensorRt) -> None:
    build = build_plan(variant(trt), ONNX, EngineOptions())
    assert (build.plan, build.timing) == (b"plan", b"+update")
    assert trt.flags == 1 << 1
    assert trt.config.calls == [("clear", "TF32")]
    assert trt.config.max_aux_streams == 0
    assert trt.config.builder_optimization_level == 3


def test_nan_is_strict_where_tensorrt_has_the_flag(trt: TensorRt) -> None:
    """TensorRT has it from 10.6 on, JetPack 6 has 10.3."""
    trt.BuilderFlag.STRICT_NANS = "NaN"
    build_plan(variant(trt), ONNX, EngineOptions())
    assert trt.config.calls == [("clear", "TF32"), ("set", "NaN")]


def test_workspace_and_level_reach_the_builder(trt: TensorRt) -> None:
    build_plan(variant(trt), ONNX, EngineOptions(None, 1 << 28, 0))
    assert ("WORKSPACE", 1 << 28) in trt.config.calls
    assert trt.config.builder_optimization_level == 0


@pytest.mark.parametrize(
    ("earlier", "used"), [(b"old", b"old"), (b"garbage", b""), (b"of another device", b"")]
)
def test_a_timing_cache_grows_and_one_that_does_not_fit_is_left_out(
    trt: TensorRt, earlier: bytes, used: bytes
) -> None:
    assert build_plan(variant(trt), ONNX, EngineOptions(), earlier).timing == used + b"+update"
    assert trt.config.timing.content == used


def test_rtx_builds_for_the_capabilities_asked_and_has_no_timing_cache() -> None:
    trt = TensorRt(RtxConfig)
    asked = EngineOptions(compute_capabilities=("8.6", "12.0", "8.6"))
    build = build_plan(rtx(trt), ONNX, asked, b"old")
    assert (build.plan, build.timing) == (b"plan", b"")
    assert trt.config.num_compute_capabilities == 2
    expected = [("clear", "TF32"), ("set", "own memory")]
    assert trt.config.calls == [*expected, (Capability.SM86, 0), (Capability.SM120, 1)]


def test_rtx_builds_for_this_machine_unless_told_otherwise() -> None:
    trt = TensorRt(RtxConfig)
    build_plan(rtx(trt), ONNX, EngineOptions())
    assert trt.config.num_compute_capabilities == 1
    assert trt.config.calls[2:] == [(Capability.CURRENT, 0)]


def test_what_rtx_does_not_know_is_refused_with_what_it_knows(trt: TensorRt) -> None:
    assert supported_capabilities(rtx(trt)) == ("8.6", "8.9", "12.0")
    with pytest.raises(BackendError, match=r"8\.7; it knows 8\.6, 8\.9, 12\.0\. A Jetson"):
        require_buildable(rtx(trt), ("8.7",))


def test_tensorrt_builds_for_no_other_device(trt: TensorRt) -> None:
    assert supported_capabilities(variant(trt)) == ()
    require_buildable(variant(trt), ())
    message = refusal(variant(trt), EngineOptions(compute_capabilities=("8.6",)))
    assert "on the board itself" in message and "tensorrt-rtx" in message


def test_a_machine_without_a_gpu_is_told_so(trt: TensorRt) -> None:
    trt.no_gpu = True
    message = refusal(variant(trt))
    assert "CUDA initialization failure with error: 35" in message
    assert "onnxruntime" in message


def test_an_operator_that_tensorrt_does_not_know_is_named_with_its_node(trt: TensorRt) -> None:
    trt.parser_errors = [ParserError(7, "det_3", "false"), ParserError(9, "", "no\n  such type")]
    message = refusal(variant(trt))
    assert "node det_3 (Det): UNSUPPORTED_NODE: false (checkDet)" in message
    assert "node number 9 (Det): UNSUPPORTED_NODE: no such type" in message
    assert str(ONNX) in message and "TensorRT 10.3.0.26" in message


def test_missing_weights_are_named(trt: TensorRt) -> None:
    trt.parser_errors = [ParserError(-1, "", "Failed to import initializer: c_1")]
    trt.said = "WeightsContext.cpp:203: Failed to open file: bundle/weights.bin"
    assert "Failed to open file: bundle/weights.bin" in refusal(variant(trt))


@pytest.mark.parametrize(
    ("said", "workspace", "advice"),
    [
        ("no tactics within workspace limit.", 1 << 20, "Give more than the 1048576 bytes"),
        ("cudaError 35: CUDA driver version", None, "name a compute capability"),
        ("Error Code 2: OutOfMemory (Requested size was 9 bytes.)", None, "optimization level 0"),
        ("Error Code 10: Could not find any implementation", None, "the backend onnxruntime"),
    ],
)
def test_a_failed_build_says_why_and_what_to_do(
    trt: TensorRt, said: str, workspace: int | None, advice: str
) -> None:
    trt.build_error = said
    message = refusal(variant(trt), EngineOptions(None, workspace))
    assert said.rstrip(".") in message and advice in message


def test_a_build_tells_how_it_was_made_and_which_kernels_it_has(trt: TensorRt) -> None:
    facts = build_plan(variant(trt), ONNX, EngineOptions(None, 1 << 28, 2)).facts
    assert facts["workspace_bytes"] == 1 << 28 and facts["optimization_level"] == 2
    assert facts["seconds"] >= 0 and facts["peak_bytes"] > 1 << 20  # Python alone takes more
    assert [kernel["name"] for kernel in facts["kernels"]] == ["neg"]
    assert "kernels_missing" not in facts


def test_rtx_tells_its_kernels_in_the_log_of_the_build() -> None:
    trt = TensorRt(RtxConfig)
    trt.listed = (
        "Layers:\nName: neg, LayerType: kgen, Inputs: [], Outputs: [], TacticName: , StreamId: 0, "
        "Metadata: [ONNX Layer: neg_1]"
    )
    options = EngineOptions(compute_capabilities=("8.6",))
    (kernel,) = build_plan(rtx(trt), ONNX, options).facts["kernels"]
    assert kernel["nodes"] == ("neg_1",)
    trt.listed = ""  # the list of an earlier build is not taken for this one's
    facts = build_plan(rtx(trt), ONNX, options).facts
    assert facts["kernels"] == [] and facts["kernels_missing"]


@pytest.mark.parametrize("inspected", ["no JSON", "{}", None])
def test_an_engine_whose_kernels_are_not_told_is_built_all_the_same(
    trt: TensorRt, inspected: str | None
) -> None:
    trt.inspected = inspected
    build = build_plan(variant(trt), ONNX, EngineOptions())
    assert build.plan == b"plan" and build.facts["kernels"] == []
    assert build.facts["kernels_missing"]


@pytest.mark.parametrize("capability", ["9.0", "8.7", "7.5", "11.0"])
def test_a_gpu_that_rtx_does_not_know_is_refused_with_the_tensorrt_to_install(
    trt: TensorRt, capability: str
) -> None:
    device = Device("H100", capability, 80 << 30)
    with pytest.raises(BackendError, match="pip install tensorrt-cu13"):
        require_runnable(rtx(trt), device)
    require_runnable(variant(trt), device)
    require_runnable(rtx(trt), Device("RTX A2000", "8.6", 6 << 30))


def test_a_gpu_in_the_processors_memory_has_a_workspace_unless_one_was_given() -> None:
    board, card = Device("Orin", "8.7", 8 << 30, 8, True), Device("A2000", "8.6", 6 << 30)
    assert with_board_defaults(EngineOptions(), board).workspace_bytes == 256 << 20
    assert with_board_defaults(EngineOptions(), card).workspace_bytes is None
    asked = EngineOptions(workspace_bytes=1 << 20)
    assert with_board_defaults(asked, board) == asked


@pytest.mark.parametrize("options", [(0, None), (2**63, None), (None, 6), (None, -1)])
def test_impossible_options_are_refused(options: tuple[int | None, int | None]) -> None:
    with pytest.raises(BackendError, match="give "):
        EngineOptions(None, *options)
