"""Keep engines on disk by the rules of `CodeCache`, so that a board builds each graph once.

<folder>/<digest of the key>.engine     the plan, TensorRT's serialized engine
<folder>/<digest of the key>.timing     TensorRT's own timing cache, which makes later builds faster
<folder>/<digest of the key>.kernels    kernels that TensorRT-RTX compiles when it runs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from edgefold.runtime.backends.code_cache import CodeCache, facts_of
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS

MAGIC = b"edgefold engine 1\n"
"""Every file begins with this line.

The number in it rises when the builder's fixed settings change what engines compute.
"""


@dataclass(frozen=True, slots=True)
class EngineKey:
    """Names everything that an engine depends on, except build options.

    Build options change only the speed, and an engine that was built with little memory should be
    used also by a process that has more.

    Attributes:
        graph_sha256, weights_sha256: Hashes of the graph's file and of the bundle's weights.
        variant: "tensorrt" or "tensorrt_rtx".
        version: TensorRT's version.
        device: `Device.kind` of the GPU; "" for TensorRT-RTX, whose engines fit every GPU of a
            compute capability.
        compute_capability: The GPU's compute capability, such as "8.7".
        precision: The bundle's precision, as its manifest names it.
    """

    graph_sha256: str
    weights_sha256: str
    variant: str
    version: str
    device: str
    compute_capability: str
    precision: str
    suffix: ClassVar[str] = "engine"


@dataclass(frozen=True, slots=True)
class TimingKey:
    """Names everything that TensorRT's timing cache depends on; see `EngineKey` for the fields.

    The timing cache holds the times of kernels that TensorRT measured in earlier builds.
    """

    variant: str
    version: str
    device: str
    suffix: ClassVar[str] = "timing"


@dataclass(frozen=True, slots=True)
class KernelKey:
    """Names everything that kernels compiled by TensorRT-RTX depend on; see also `EngineKey`.

    Attributes:
        device: `Device.kind` of the GPU.
        cuda_version: The newest CUDA that the GPU's driver supports, such as "13.0".
    """

    variant: str
    version: str
    device: str
    cuda_version: str
    suffix: ClassVar[str] = "kernels"


@dataclass(frozen=True, slots=True)
class Entry:
    """Describes an engine in the cache.

    Attributes:
        path: The engine's file.
        key: The key that the file states.
        n_bytes: Size of the serialized engine in bytes.
        reason: The reason why the engine is not used; "" if it is used.
        facts: The builder's facts about the engine; see `Build`.
    """

    path: Path
    key: EngineKey
    n_bytes: int
    reason: str
    facts: dict[str, Any]


class EngineCache(CodeCache):
    """Keeps TensorRT's engines, timing caches and compiled kernels in a folder."""

    magic = MAGIC

    def entries(self) -> Iterator[Entry]:
        """Yield every engine whose header can be read, sorted by path, after verifying its content.

        Raises:
            OSError: The folder is there and cannot be read.
        """
        for path in self.files(EngineKey.suffix):
            try:
                header, plan, reason = self.read(path)
                identity = header["key"]
                key = EngineKey(**{field.name: identity[field.name] for field in fields(EngineKey)})
            except (OSError, *PARSE_ERRORS):
                continue
            if not all(isinstance(word, str) for word in asdict(key).values()):
                continue
            if self.path(key) != path:
                reason = reason or "it lies under another key's name"
            yield Entry(path, key, len(plan), reason, facts_of(header))
