"""Sessions of onnxruntime: what is refused before one opens, and linked files of weights."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime import BackendError, Stream
from edgefold.runtime.backends.onnxruntime_session import (
    LEAST_STACK_BYTES,
    TAKES_FILES,
    open_session,
)


def test_a_stack_on_which_onnxruntime_would_crash_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = LEAST_STACK_BYTES - 1, resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    with pytest.raises(BackendError, match="ulimit"):
        open_session(b"")


@pytest.mark.parametrize("leads_out", [False, True], ids=["inside", "out"])
def test_a_linked_file_of_weights_opens_and_predicts_the_same(
    tiny_bundle: Path, tmp_path: Path, leads_out: bool
) -> None:
    if leads_out and not TAKES_FILES:
        pytest.skip("this onnxruntime takes no contents of files")
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    target = tmp_path / "store" / "blob" if leads_out else bundle / "blob"
    target.parent.mkdir(exist_ok=True)
    (bundle / "weights.bin").rename(target)
    (bundle / "weights.bin").symlink_to(target)
    means = []
    for folder in (tiny_bundle, bundle):
        with Stream.open(folder, backend="onnxruntime") as stream:
            x = np.full((1, stream.manifest.n_inputs), 0.25)
            stream.update(x, np.full((1, stream.manifest.n_outputs), 0.5))
            means.append(np.array(stream.query(x).mean))
    np.testing.assert_array_equal(means[0], means[1])
