"""What is refused before onnxruntime gets a model."""

from __future__ import annotations

import resource

import pytest

from edgefold.runtime import BackendError
from edgefold.runtime.backends.onnxruntime_session import LEAST_STACK_BYTES, open_session


def test_a_stack_on_which_onnxruntime_would_crash_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = LEAST_STACK_BYTES - 1, resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    with pytest.raises(BackendError, match="ulimit"):
        open_session(b"")
