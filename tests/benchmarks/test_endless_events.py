from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.models.endless_events import requirements, simulated
from edgefold.train.models.events.hawkes import Hawkes
from edgefold.train.tasks.events.hawkes import HawkesSetting, simulate


def test_the_exact_likelihood_of_the_stream_is_the_simulator_s() -> None:
    setting = HawkesSetting()
    events, exact = simulated(300, setting)
    model = Hawkes.of(setting.rates, setting.caused, torch.tensor([setting.decay]))
    found = model.event_log_likelihood(torch.from_numpy(events)[None].float(), None)[0]
    assert np.allclose(exact, found.detach().numpy(), atol=2e-4)  # float32 gaps and intensities


@pytest.mark.long
def test_the_stream_has_the_rate_and_the_marks_of_the_task_s_simulator() -> None:
    setting = HawkesSetting(n_events=4_000)
    events, _ = simulated(40_000, setting)
    drawn = simulate(setting, 10, torch.Generator().manual_seed(0)).flatten(0, 1).numpy()
    # 40,000 gaps in clusters: their mean varies by about 2 %, and shares of marks by 0.02.
    assert events[:, 0].mean() == pytest.approx(drawn[:, 0].mean(), rel=0.15)
    found, expected = (
        np.bincount(some[:, 1].astype(int), minlength=3) / len(some) for some in (events, drawn)
    )
    assert np.allclose(found, expected, atol=0.06)


def test_a_model_that_slows_down_grows_or_forgets_is_told() -> None:
    at = {"needed_bytes": 1000, "step": {"median_s": 1e-3}, "log_likelihood": -1.0, "exact": -1.0}
    late = {
        "needed_bytes": 200_000,
        "step": {"median_s": 2e-3},
        "log_likelihood": -1.2,
        "exact": -1.0,
    }
    runs = {
        "a": {"at": [{"n_events": n, **at} for n in (100, 1000)] + [{"n_events": 10**6, **late}]}
    }
    assert [r.met for r in requirements(runs)] == [False, False, False]
    runs["a"]["at"][-1] = {"n_events": 10**6, **at}
    assert [r.met for r in requirements(runs)] == [True, True, True]
