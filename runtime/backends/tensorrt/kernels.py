"""Keep the kernels that TensorRT-RTX compiles when it runs, so that only the first start compiles.

    open     read the cache of compiled kernels ──> all contexts share it
    bind     kernels that are missing are compiled; when every graph has run, the cache is written

A kernel is a program that runs on the GPU. TensorRT itself compiles nothing at run time and has no
such cache. Kernels are code: they are stored and trusted by the same rules as engines
(`engine_cache`). TensorRT-RTX decides whether stored kernels fit the machine.
"""

from __future__ import annotations

from typing import Any

from edgefold.runtime.backends.tensorrt.driver import Device, TensorRtDriver
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, KernelKey
from edgefold.runtime.errors import BackendError


class KeptKernels:
    """Loads the compiled kernels of all engines of a stream, and stores new ones.

    Args:
        driver: The object that makes the calls of TensorRT-RTX.
        device: The GPU.
        cache: The cache on disk that stores the kernels.
        engines: All engines of the stream, by graph name.

    Attributes:
        origin: Words for the report that say where the kernels come from, such as "compiled" or
            "from the cache".

    Raises:
        BackendError: TensorRT-RTX could not make a cache of kernels.
    """

    def __init__(
        self, driver: TensorRtDriver, device: Device, cache: EngineCache, engines: dict[str, Any]
    ):
        self._driver, self._cache = driver, cache
        self._waits_for = set(engines)
        self._key = KernelKey(driver.variant, driver.version, device.kind, device.cuda_version)
        self._kept = cache.load(self._key) or b""
        fits = driver.share_kernels(next(iter(engines.values())), self._kept)
        self.origin = "from the cache" if fits else "compiled"
        if self._kept and not fits:
            self.origin = "compiled again, since the cached ones do not fit"
            self._kept = b""

    def note_run(self, graph: str) -> None:
        """Record that a graph has run; once all graphs have, store the kernels if some are new."""
        if self._waits_for == {graph}:
            self._keep()
        self._waits_for.discard(graph)

    def _keep(self) -> None:
        try:
            kernels = self._driver.kernels()
            new = kernels != self._kept
            reason = self._cache.store(self._key, kernels) if new else None
        except BackendError as error:  # the steps run without the cache, too
            new, reason = False, str(error)
        if reason:
            self.origin += f", but not kept: {reason}"
        elif new and self._kept:
            self.origin += ", and compiled for what was missing"
        self._kept = b""  # compared once, and a stream may run for years
