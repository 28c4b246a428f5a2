"""Keep the kernels that TensorRT-RTX compiles when it runs, so that only the first start compiles.

    open     read the cache of compiled kernels ──> all contexts share it
    bind     kernels that are missing are compiled; when every graph has run, the cache is written,
             and again after the first run of a graph that opens late

A kernel is a program that runs on the GPU. TensorRT itself compiles nothing at run time and has no
such cache. Kernels are code: they are stored and trusted by the same rules as engines
(`engine_cache`). TensorRT-RTX decides whether stored kernels fit the machine.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from edgefold.runtime.backends.tensorrt.driver import Device, TensorRtDriver
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, KernelKey
from edgefold.runtime.errors import BackendError
from edgefold.runtime.hashing import sha256

MORE = ", and compiled for what was missing"


class KeptKernels:
    """Loads the compiled kernels of all engines of a stream, and stores new ones.

    Args:
        driver: The object that makes the calls of TensorRT-RTX.
        device: The GPU.
        cache: The cache on disk that stores the kernels.
        engines: All engines of the stream, by graph name.
        late: Names of the graphs that open late: perhaps they never run.

    Attributes:
        origin: Words for the report that say where the kernels come from, such as "compiled" or
            "from the cache".

    Raises:
        BackendError: TensorRT-RTX could not make a cache of kernels.
    """

    def __init__(
        self,
        driver: TensorRtDriver,
        device: Device,
        cache: EngineCache,
        engines: dict[str, Any],
        late: Collection[str],
    ):
        self._driver, self._cache, self._late = driver, cache, frozenset(late)
        self._left = set(engines)
        self._key = KernelKey(driver.variant, driver.version, device.kind, device.cuda_version)
        kept = cache.load(self._key) or b""
        self._fits = driver.share_kernels(next(iter(engines.values())), kept)
        self._digest = sha256(kept if self._fits else b"").digest()
        self.origin = "from the cache" if self._fits else "compiled"
        if kept and not self._fits:
            self.origin = "compiled again, since the cached ones do not fit"

    def note_run(self, graph: str) -> None:
        """Record that a graph has run; once all graphs have, store the kernels if some are new."""
        if graph in self._left:
            self._left.discard(graph)
            if self._left <= self._late:
                self._keep()

    def _keep(self) -> None:
        try:
            kernels = self._driver.kernels()
            digest = sha256(kernels).digest()
            new, self._digest = digest != self._digest, digest
            reason = self._cache.store(self._key, kernels) if new else None
        except BackendError as error:  # the steps run without the cache, too
            new, reason = False, str(error)
        if reason:
            self.origin += f", but not kept: {reason}"
        elif new and self._fits and not self.origin.endswith(MORE):
            self.origin += MORE
