from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

from edgefold.export.importing.imported_bundle import import_bundle
from edgefold.runtime import Stream
from examples.silero_vad import (
    CONFIG,
    RATE,
    SAMPLES,
    installed_model,
    made_up_speech,
    probabilities,
    segments,
)

STEP_S = SAMPLES / RATE


def test_silero_vad_finds_every_phrase_of_made_up_speech(tmp_path: Path) -> None:
    try:
        importlib.metadata.distribution("silero-vad")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("silero-vad is not installed")
    import_bundle(installed_model(), tmp_path / "vad", CONFIG, n_steps=128)
    audio, phrases = made_up_speech(20)
    with Stream.open(tmp_path / "vad", backend="onnxruntime") as stream:
        found = list(segments(probabilities(stream, audio)))
    assert len(found) == len(phrases) > 2
    np.testing.assert_allclose(found, phrases, atol=0.2)  # the network hears some 100 ms late


def test_a_segment_bridges_short_pauses_and_leaves_out_short_bursts() -> None:
    burst = [0.9] * 5 + [0.1] * 9
    bridged = [0.9] * 6 + [0.1] * 2 + [0.4, 0.9, 0.6] + [0.1] * 9
    (found,) = segments([0.1] * 3 + burst + bridged)
    assert found == pytest.approx((17 * STEP_S, 28 * STEP_S))


def test_a_segment_that_has_not_ended_is_given() -> None:
    assert list(segments([0.1, *[0.8] * 20])) == [pytest.approx((STEP_S, 21 * STEP_S))]


def test_made_up_speech_is_the_same_for_a_seed() -> None:
    one, other, third = (made_up_speech(8, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, other)
    assert len(one) == 8 * RATE and np.abs(one).max() < 1
    assert (one != third).any()
