"""Which calls a profile times, by the graphs that the bundle has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgefold.devices.profile.calls import ProfilePoints, calls_of, spread_evenly
from edgefold.runtime import Stream


def names(stream: Stream) -> list[str]:
    return [call.name for call in calls_of(stream, ProfilePoints(stream.manifest), 3, 3)]


def test_every_step_of_a_bundle_is_timed_and_runs(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle) as stream:
        calls = calls_of(stream, ProfilePoints(stream.manifest), 3, 3)
        assert [call.name for call in calls] == [
            *("update", "update_bare", "condition", "refresh", "query", "query_wide", "row")
        ]
        for call in calls:
            call.before()
            call.run()


@pytest.mark.parametrize("missing", ["refresh", "condition"])
def test_a_step_that_the_model_lacks_is_not_timed(tiny_bundle: Path, missing: str) -> None:
    with Stream.open(tiny_bundle) as stream:
        graphs = {n: g for n, g in stream.manifest.graphs.items() if g.step != missing}
        stream.manifest = replace(stream.manifest, graphs=graphs)
        assert missing not in names(stream) and "update" in names(stream)


def test_a_filtering_model_has_one_call_and_its_graph(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle) as stream:
        update = stream.manifest.of_step("update")[0]
        graphs = {"step": replace(update, name="step", step="step")}
        stream.manifest = replace(stream.manifest, graphs=graphs)
        assert names(stream) == ["step", "step_bare"]
        between = replace(update, name="consolidate", step="consolidate")
        stream.manifest = replace(stream.manifest, graphs={**graphs, "consolidate": between})
        assert names(stream) == ["step", "step_bare", "consolidate_bare"]


def test_several_streams_have_points_of_their_own(bundles: Path) -> None:
    with Stream.open(bundles / "streams") as stream:
        points = ProfilePoints(stream.manifest)
    assert points.x is not None and points.x.shape[:2] == (3, 1)
    assert not np.array_equal(points.x[0], points.x[1])


def test_points_are_spread_evenly() -> None:
    values = np.sort(spread_evenly((1000,)))
    assert np.diff(values).max() < 3e-3  # three times the mean distance, by the three-gap theorem
