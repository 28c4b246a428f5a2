"""A state that holds so many points and then refuses, and the seed that a user may set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime import CapacityError, StateSlots, Stream, ValueRefusedError

pytest.importorskip("torch", reason="exporting needs the train extra")
CAPACITY = 6
Y = np.random.default_rng(0).normal(size=(2 * CAPACITY, 2))


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("refusing") / "bundle", "refuse", 1)


def exported(out: Path, when_full: str, n_streams: int) -> Path:
    from edgefold.export.bundle import ExportConfig, export_bundle
    from tests.export.lowering.small_models import Bounded

    config = ExportConfig(targets=1, streams=n_streams, parity_steps=128)
    export_bundle(Bounded(CAPACITY, when_full).eval(), {"name": "untrained"}, out, config)
    return out


def test_points_beyond_the_capacity_are_refused_before_any_is_learned(refusing: Path) -> None:
    with Stream.open(refusing) as stream:
        assert stream.manifest.keeps == "keeps at most 6 points; then refuses"
        stream.update(y=Y[:4])
        before = stream.query().mean.copy()
        assert stream.room == 2
        for call in (stream.update, stream.condition):
            with pytest.raises(CapacityError, match="room for 2"):
                call(y=Y[:3])
        assert (stream.n_points, stream.room) == (4, 2)
        np.testing.assert_array_equal(stream.query().mean, before)
        stream.condition(y=Y[4:6])
        with pytest.raises(CapacityError, match="room for 0"):
            stream.update(y=Y[:1])
        stream.query()
        stream.reset()
        assert stream.room == CAPACITY
        stream.update(y=Y[:6])


def test_a_state_that_is_put_or_restored_has_its_own_room(refusing: Path, tmp_path: Path) -> None:
    with Stream.open(refusing) as stream:
        slots = StateSlots(stream.manifest, 2)
        stream.update(y=Y[:6])
        stream.take(slots, 0)
        stream.save(tmp_path / "full.npz")
        stream.put(slots, 1)
        assert stream.room == 6
        stream.put(slots, 0)
        assert stream.room == 0
        stream.reset()
        stream.restore(tmp_path / "full.npz")
        with pytest.raises(CapacityError):
            stream.update(y=Y[:1])


def test_a_state_that_overwrites_takes_any_number(tmp_path: Path) -> None:
    with Stream.open(exported(tmp_path / "bundle", "overwrite", 1)) as stream:
        stream.update(y=Y)
        assert (stream.n_points, stream.room) == (len(Y), None)


def test_a_seed_is_set_at_open_and_at_reset_and_kept_by_snapshots(
    refusing: Path, tmp_path: Path
) -> None:
    def seed_of(stream: Stream) -> list[int]:
        found: list[int] = stream.state()["seed"].tolist()
        return found

    with Stream.open(refusing) as stream:
        assert seed_of(stream) == [0]
    with Stream.open(refusing, seed=2**40) as stream:
        stream.update(y=Y[:1])
        assert seed_of(stream) == [2**40]
        stream.save(tmp_path / "s.npz")
        stream.reset(seed=5)
        assert (seed_of(stream), stream.n_points) == ([5], 0)
        assert stream.query().mean[0, 0] == 5
        stream.reset()
        assert seed_of(stream) == [5]
        stream.restore(tmp_path / "s.npz")
        assert seed_of(stream) == [2**40]
        for wrong in (-1, 1.5, 2**63, [1, 2], "x", True):
            with pytest.raises(ValueRefusedError, match="seed"):
                stream.reset(seed=wrong)  # type: ignore[arg-type]
        assert (seed_of(stream), stream.n_points) == ([2**40], 1)


def test_each_stream_may_have_its_own_seed(tmp_path: Path) -> None:
    with Stream.open(exported(tmp_path / "bundle", "refuse", 3), seed=[4, 5, 6]) as stream:
        assert stream.query().mean[:, 0, 0].tolist() == [4, 5, 6]
        stream.reset(seed=9)
        assert stream.query().mean[:, 0, 0].tolist() == [9, 9, 9]


def test_a_bundle_without_random_numbers_refuses_a_seed(tiny_bundle: Path) -> None:
    with pytest.raises(ValueRefusedError, match="takes no seed"):
        Stream.open(tiny_bundle, seed=0)
