"""Engines on disk, so that a board builds each graph once; the rules are `CodeCache`'s.

<folder>/<digest of the key>.engine     the plan
<folder>/<digest of the key>.timing     TensorRT's own timing cache
<folder>/<digest of the key>.kernels    what TensorRT-RTX compiles when it runs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from edgefold.runtime.backends.code_cache import CodeCache, facts_of
from edgefold.runtime.bundle.manifest_file import PARSE_ERRORS

MAGIC = b"edgefold engine 1\n"
"""Its number rises when the builder's fixed settings change what an engine computes."""


@dataclass(frozen=True, slots=True)
class EngineKey:
    """Everything that an engine depends on.

    Build options do not belong to it: they change speed alone, and an engine that was built ahead
    with little memory should be used.

    Attributes:
        graph_sha256, weights_sha256: Of the graph's file and of the weights beside it.
        variant: "tensorrt" or "tensorrt_rtx".
        version: TensorRT's.
        device: `Device.kind`; "" for TensorRT-RTX, whose engines fit every device of a capability.
        compute_capability: As "8.7".
        precision: The bundle's, as its manifest names it.
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
    """Everything that TensorRT's timing cache depends on; see `EngineKey`."""

    variant: str
    version: str
    device: str
    suffix: ClassVar[str] = "timing"


@dataclass(frozen=True, slots=True)
class KernelKey:
    """Everything that kernels compiled by TensorRT-RTX depend on; see `EngineKey`.

    Attributes:
        device: `Device.kind`.
        cuda_version: The newest CUDA that the driver supports, as "13.0".
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
        n_bytes: Of the plan.
        reason: Why it would not be used; "" if it would.
        facts: What the builder told of it; empty for an engine of an older edgefold.
    """

    path: Path
    key: EngineKey
    n_bytes: int
    reason: str
    facts: dict[str, Any]


class EngineCache(CodeCache):
    """Keeps engines, timing caches and kernels in a folder."""

    magic = MAGIC

    def entries(self) -> Iterator[Entry]:
        """List every engine whose header can be read, by path; plans are verified.

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
