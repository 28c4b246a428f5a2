"""A fork, a second thread, a signal's handler, masked arrays, a history larger than the memory."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import (
    BusyError,
    ClosedError,
    ShapeError,
    StepRefusedError,
    Stream,
    ValueRefusedError,
)
from edgefold.runtime.stream.points import N_AT_ONCE
from edgefold.runtime.stream.state_buffers import KeptState
from tests.runtime.stream.subjects import points

# One caller ---------------------------------------------------------------------------------------


class Inside:
    """A stream whose update waits inside its step, in another thread, until it is let go."""

    def __init__(self, stream: Stream):
        self.stream, self.error = stream, None
        self._inside, self._go_on = threading.Event(), threading.Event()
        step = stream._steps["update"]
        self._run = step.run
        step.run = self._wait  # type: ignore[method-assign]
        self.x, self.y = points(stream, 2)
        self._thread = threading.Thread(target=self._update)

    def _wait(self, sides: int) -> None:
        self._inside.set()
        self._go_on.wait(60)
        self._run(sides)

    def _update(self) -> None:
        self.stream.update(self.x[:1], self.y[:1])

    def __enter__(self) -> Inside:
        self._thread.start()
        assert self._inside.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._go_on.set()
        self._thread.join()


def test_a_call_while_another_thread_is_inside_is_refused_and_harms_nothing(
    stream: Stream, tmp_path: Path
) -> None:
    with Inside(stream) as inside:
        x, y = inside.x, inside.y
        for call in (
            *(lambda: stream.update(x, y), lambda: stream.query(x), stream.refresh, stream.flush),
            *(stream.reset, lambda: stream.save(tmp_path / "s.npz"), stream.state, stream.close),
            *(lambda: stream.restore(tmp_path / "s.npz"), lambda: stream.run_step("update")),
        ):
            with pytest.raises(BusyError):
                call()
        assert stream.n_points == 0
    assert stream.n_points == 1
    stream.update(x, y)  # the threads take turns
    assert stream.n_points == 3


def test_a_call_below_another_one_of_the_same_thread_is_refused(stream: Stream) -> None:
    """A signal's handler runs between two lines of whatever the main thread does."""
    x, y = points(stream, 1)
    step = stream._steps["update"]
    run, handled = step.run, []

    def handler(number: int, frame: object) -> None:
        with pytest.raises(BusyError):
            stream.save("never written")
        handled.append(number)

    def interrupted(sides: int) -> None:
        signal.raise_signal(signal.SIGUSR1)
        run(sides)

    step.run = interrupted  # type: ignore[method-assign]
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        stream.update(x, y)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [signal.SIGUSR1] and stream.n_points == 1


@pytest.mark.parametrize("in_a_thread", [False, True])
@pytest.mark.parametrize("repair_was_interrupted", [False, True])
def test_the_mark_of_a_call_that_was_interrupted_stops_nobody(
    stream: Stream, in_a_thread: bool, repair_was_interrupted: bool
) -> None:
    # As an exception between two lines leaves it behind.
    stream._inside[0] = (threading.get_ident(),)
    if repair_was_interrupted:
        stream._repair.acquire()  # likewise
    if in_a_thread:
        thread = threading.Thread(target=lambda: stream.update(*points(stream, 1)))
        thread.start()
        thread.join()
    else:
        stream.update(*points(stream, 1))
    assert stream.n_points == 1


def test_threads_that_do_not_take_turns_lose_no_point_and_learn_none_twice(
    tiny_bundle: Path,
) -> None:
    learned: list[int] = []
    interval = sys.getswitchinterval()

    def insist(row: int) -> None:
        for _ in range(200):
            with suppress(BusyError):
                stream.update(x[row : row + 1], y[row : row + 1])
                learned.append(row)

    with Stream.open(tiny_bundle) as stream, Stream.open(tiny_bundle) as expected:
        x, y = points(stream, 8)
        threads = [threading.Thread(target=insist, args=(row,)) for row in range(8)]
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert stream.n_points == len(learned) > 0
        expected.update(x[learned], y[learned])
        # float32 sums of up to 1600 points in another order
        np.testing.assert_allclose(
            stream.query(x[:2]).mean, expected.query(x[:2]).mean, rtol=0, atol=5e-5
        )


FORK = """
import os, sys
import numpy as np
from edgefold.runtime import ClosedError, Stream

path, snapshot = sys.argv[1:]
stream = Stream.open(path, threads=2)
x, y = np.zeros((20, 2)), np.ones((20, 1))
stream.update(x, y)
before = stream.query(x[:2]).copy()
calls = [
    lambda: stream.update(x, y), lambda: stream.query(x[:1]), stream.refresh, stream.flush,
    stream.reset, stream.state, lambda: stream.save(snapshot), lambda: stream.restore(snapshot),
    stream.__enter__,
]
with stream:
    child = os.fork()
    if not child:
        refused = 0
        for call in calls:
            try:
                call()
            except ClosedError:
                refused += 1
        stream.close()
        with Stream.open(path, threads=2) as own:
            own.update(x, y)
            same = np.array_equal(own.query(x[:2]).mean, before.mean)
        # The interpreter's own end, which frees what is left, must come through as well.
        sys.exit(0 if refused == len(calls) and same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stream.update(x, y)
    assert stream.n_points == 40 and np.isfinite(stream.query(x[:2]).mean).all()
"""


def test_a_fork_neither_hangs_nor_disturbs_its_parent(tiny_bundle: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tiny_bundle), str(tmp_path / "s.npz")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "s.npz").exists()


def test_a_closed_stream_stays_closed_for_every_call(tiny_bundle: Path, tmp_path: Path) -> None:
    stream = Stream.open(tiny_bundle)
    stream.close()
    for call in (stream.state, lambda: stream.query([[0.0, 0.0]]), lambda: stream.save(tmp_path)):
        with pytest.raises(ClosedError):
            call()


# Arrays -------------------------------------------------------------------------------------------


def test_a_masked_value_is_refused_and_an_unmasked_array_is_taken(stream: Stream) -> None:
    x, y = points(stream, 3)
    masked = np.ma.array(y, mask=[[False], [True], [False]])
    masked.data[1] = 777
    rows: Any = list(masked)
    for given in (masked, rows, tuple(rows)):
        with pytest.raises(ValueRefusedError):
            stream.update(x, given)
    with pytest.raises(ValueRefusedError):
        stream.query(np.ma.masked_greater(x[:1], -1e9))
    assert stream.n_points == 0
    stream.update(np.ma.array(x), np.ma.array(y, mask=False))
    expected = stream.query(x[:2]).copy()
    stream.reset()
    stream.update(x, y)
    np.testing.assert_array_equal(stream.query(x[:2]).mean, expected.mean)


def test_an_array_that_cannot_be_made_is_a_shape_error(stream: Stream) -> None:
    class NeedsDetach:
        def __array__(self, *arguments: object, **options: object) -> Any:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nUse detach().")

    given: Any = NeedsDetach()
    with pytest.raises(ShapeError, match="detach") as refused:
        stream.update(given, [[0.0]])
    assert "\n" not in str(refused.value) and stream.n_points == 0


def test_a_copied_prediction_outlives_the_next_query(stream: Stream) -> None:
    x, y = points(stream, 5)
    stream.update(x, y)
    kept = [stream.query(x[row : row + 1]).copy() for row in range(3)]
    views = [stream.query(x[row : row + 1]).mean for row in range(3)]
    assert len({prediction.mean.item() for prediction in kept}) == 3
    assert len({view.item() for view in views}) == 1
    assert kept[0].std.shape == (1, 1) and kept[0].tensors.keys() == {"mean", "std"}


# A long history -----------------------------------------------------------------------------------


def history(folder: Path, n: int) -> tuple[Any, Any]:
    """x (n, 2) and y (n, 1), float64, in sparse files that take no room on the disk."""
    mapped = []
    for name, columns in (("x", 2), ("y", 1)):
        path = folder / name
        with path.open("wb") as file:
            file.truncate(n * columns * 8)
        mapped.append(np.memmap(path, np.float64, "r+", shape=(n, columns)))
    return mapped[0], mapped[1]


def peak_of(act: Any) -> int:
    """The most bytes that were allocated at once during a call; mapped files do not count."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


AT_MOST = 20 * N_AT_ONCE * 8  # a few arrays of one piece: 2.6 MB


def test_a_history_of_10_gb_in_a_memory_map_is_refused_at_its_first_bad_row(
    stream: Stream, tmp_path: Path
) -> None:
    n = 10 * 1024**3 // 24
    x, y = history(tmp_path, n)
    bad = 20 * N_AT_ONCE
    y[bad] = np.nan

    def refused() -> None:
        with pytest.raises(ValueRefusedError, match=f"row {bad} "):
            stream.condition(x, y)

    assert peak_of(refused) < AT_MOST
    assert stream.n_points == 0


def test_a_history_whose_last_row_is_bad_is_refused_before_any_is_learned(
    stream: Stream, tmp_path: Path
) -> None:
    n = 3_000_000
    x, y = history(tmp_path, n)
    x[-1, 1] = np.inf

    def refused() -> None:
        with pytest.raises(ValueRefusedError, match=f"row {n - 1} "):
            stream.condition(x, y)

    assert peak_of(refused) < AT_MOST < n
    assert stream.n_points == 0


def test_a_history_in_a_memory_map_is_learned_in_constant_memory(
    stream: Stream, tmp_path: Path
) -> None:
    n = 20_000
    x, y = history(tmp_path, n)
    x[:], y[:] = points(stream, n)
    assert peak_of(lambda: stream.condition(x, y)) < AT_MOST < 24 * n * 8
    assert stream.n_points == n
    found = stream.query(np.array(x[:2])).copy()
    stream.reset()
    for start in range(0, n, 2_000):
        stream.update(np.array(x[start : start + 2_000]), np.array(y[start : start + 2_000]))
    np.testing.assert_array_equal(stream.query(np.array(x[:2])).mean, found.mean)


# A state that no sound stream has -----------------------------------------------------------------


@pytest.mark.parametrize("value", [1e38, -1e38, 3e38])
def test_an_absurd_state_gives_an_error_and_never_nan(
    stream: Stream, tmp_path: Path, value: float
) -> None:
    x, y = points(stream, 4)
    stream.update(x, y)
    stream.save(tmp_path / "sound.npz")
    for name, tensor in stream.state().items():
        state = stream.state()
        state[name] = np.full_like(tensor, value)
        stream._state.load(KeptState(state, 4, 4))
        for call in (lambda: stream.query(x[:2]), lambda: stream.update(x, y)):
            try:
                prediction = call()
            except StepRefusedError:
                continue
            if prediction is not None:
                assert np.isfinite(prediction.mean).all() and np.isfinite(prediction.std).all()
        stream.restore(tmp_path / "sound.npz")
    assert np.isfinite(stream.query(x[:2]).mean).all()
