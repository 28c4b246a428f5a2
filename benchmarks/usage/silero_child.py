"""Child of `benchmarks.usage.silero`: Silero VAD by hand or as a bundle, and the memory that takes.

Usage: python benchmarks/usage/silero_child.py file FILE | bundle BUNDLE

Some hundred steps of noise; then the process's anonymous memory and its peak, in bytes. Each form
imports only what it needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES, CONTEXT, RATE = 512, 64, 16_000


class ByHand:
    """The file in onnxruntime as its package feeds it, without that package's use of PyTorch."""

    def __init__(self, file: str):
        import onnxruntime  # alone: what else this process loads is measured

        options = onnxruntime.SessionOptions()
        options.inter_op_num_threads = options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"]
        )
        self._rate = np.array(RATE, np.int64)
        self._state = np.zeros((2, 1, 128), np.float32)
        self._context = np.zeros((1, CONTEXT), np.float32)

    def step(self, x: Any) -> Any:
        """The probability of speech in 512 samples, (1, 512)."""
        samples = np.concatenate([self._context, x], axis=1)
        feeds = {"input": samples, "state": self._state, "sr": self._rate}
        probability, self._state = self._session.run(None, feeds)
        self._context = samples[:, -CONTEXT:]
        return probability


def main() -> None:
    """Run one form and print its memory."""
    step: Callable[[Any], Any]
    if sys.argv[1] == "file":
        step = ByHand(sys.argv[2]).step
    else:
        from edgefold.runtime import Stream

        step = Stream.open(sys.argv[2], backend="onnxruntime").step
    random = np.random.default_rng(0)
    for _ in range(500):
        step(0.1 * random.normal(size=(1, SAMPLES)).astype(np.float32))
    rollup = Path("/proc/self/smaps_rollup").read_text()
    status = Path("/proc/self/status").read_text()
    for text, field in ((rollup, "Anonymous"), (status, "VmHWM")):
        found = re.search(rf"{field}:\s+(\d+) kB", text)
        print(int(found[1]) * 1024 if found else 0)


if __name__ == "__main__":
    main()
