"""onnxruntime without its telemetry: import it from here, never directly.

From 1.29 on, onnxruntime's wheels report usage: an extra thread, a database under the user's cache
folder, and an upload some seconds after the start. A device that was bought for a task has no such
errand, and the thread's 0.7 MB appear in the middle of a stream. Setting the variable before the
first import is the only switch that works; a value that the user set is left alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["onnxruntime"]
