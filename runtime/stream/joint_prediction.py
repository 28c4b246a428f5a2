"""Predict many targets together: each block of targets is learned before the next is predicted.

    block of targets ──> query ──> a draw, or the true values ──> update ──> next block ──> ...

By the chain rule, the product of the blocks' densities is a density of all targets, and values that
are drawn block after block are a draw from this density, whatever the model (autoregressive
deployment: Bruinsma et al. 2023; in blocks of joint predictions: Feng et al. 2024, section 3.3.1).

All of this happens on a copy of the stream: a second set of buffers for state, cache, points and
predictions, bound to the same graphs and weights. The first call allocates it. The stream's own
state is only read, so no error and no interrupt can change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import BackendError, CapacityError, ShapeError
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.stream.call_guard import one_call
from edgefold.runtime.stream.points import PointBuffers, require_sound
from edgefold.runtime.stream.queries import Predictor
from edgefold.runtime.stream.state_buffers import StateBuffers
from edgefold.runtime.stream.state_keeper import StateKeeper


class StreamCopy(Protocol):
    """Lists what this module uses of a stream's copy, which has buffers of its own."""

    _state: StateBuffers

    @property
    def buffer_bytes(self) -> int: ...
    def update(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> None: ...
    def query(self, x: ArrayLike | None = None) -> Prediction: ...
    def close(self) -> None: ...


class JointPrediction(StateKeeper):
    """Draws or scores the values of many targets as one joint distribution, block after block.

    It is a base class of `edgefold.runtime.stream.stream.Stream`.
    """

    _predictor: Predictor
    _y: PointBuffers
    _copy: StreamCopy | None = None

    def _another(self) -> StreamCopy:
        """Return a second stream with its own buffers, bound to the same graphs and weights."""
        raise NotImplementedError

    @one_call
    def sample(
        self,
        x: ArrayLike | None = None,
        n_samples: int = 1,
        block: int | None = None,
        seed: int | None = None,
    ) -> FloatArray:
        """Draw values of all targets together; the state is not changed.

        A block of targets is predicted and drawn, a copy of the state learns the drawn values, and
        the next block is predicted. The first call allocates the copy: as many bytes again as
        `buffer_bytes`, which then counts it too. Where the model's predictions are `permuted`, each
        draw takes the targets in a random order, the same for all streams.

        Args:
            x: Target inputs, (M, X) or (B, M, X), any number of them; (M, 0) if X is 0.
            n_samples: S, the number of independent draws.
            block: The number of targets in one query. None takes the model's own number, which is 1
                if the model predicts targets independently.
            seed: The seed of the draws; None gives other draws at each call.

        Returns:
            The draws, (S, M, Y) or (S, B, M, Y), in units of y, in a new array.

        Raises:
            ShapeError: x has another number of columns, or the block is larger than the bundle's
                targets.
            ValueRefusedError: Values of x or of a draw are NaN, infinite, absurdly large or masked.
            CapacityError: The state has no room for the drawn points.
            BackendError: The predictions have no distribution, or a step failed.
            StepRefusedError: A step failed, or its prediction is not finite.
        """
        if not self.manifest.prediction.has_samples:
            raise BackendError(
                f"{self.manifest.prediction.name} predictions have no distribution to draw from."
            )
        if n_samples < 1:
            raise ShapeError(f"sample() was asked for {n_samples} samples; ask for 1 or more.")
        x, _, m, blocks = self._asked("sample", x, None, block)
        copy, kind = self._begun("sample", blocks), self.manifest.prediction
        random = np.random.default_rng(seed)
        samples = np.empty((n_samples, self.manifest.n_streams, m, self.manifest.n_outputs))
        start = self._kept()
        first: Prediction | None = None  # the same for all draws in one order
        given = x
        for sample in samples:
            order = random.permutation(m) if kind.permuted else np.arange(m)
            if kind.permuted and given is not None:
                x, first = given[..., order, :], None
            if len(blocks) > 1 or first is None:
                copy._state.load(start)
            drawn = np.empty_like(sample)
            for rows in blocks:
                if rows.start:
                    prediction = copy.query(_rows(x, rows))
                else:
                    prediction = first = first or copy.query(_rows(x, rows)).copy()
                values = kind.sample(prediction.tensors, random)
                drawn[:, rows] = values
                if rows is not blocks[-1]:
                    copy.update(_rows(x, rows), values)
            sample[:, order] = drawn
        return samples[:, 0] if self.manifest.n_streams == 1 else samples

    @one_call
    def joint_log_likelihood(
        self, x: ArrayLike | None, y: ArrayLike, block: int | None = None
    ) -> FloatArray:
        """Compute the log density or probability, in nats, of all targets together.

        The state is not changed.

        A block of targets is predicted and scored, a copy of the state learns its true values, and
        the next block is predicted: see `sample`.

        Args:
            x: Target inputs, (M, X) or (B, M, X), any number of them; None if X is 0.
            y: The true values of the targets, (M, Y) or (B, M, Y), in the order in which they are
                learned.
            block: The number of targets in one query, as in `sample`.

        Returns:
            The logarithm as one number, or (B,) for B > 1 streams; densities are in units of y.

        Raises:
            ShapeError, ValueRefusedError, CapacityError, BackendError, StepRefusedError: The same
                as `sample` raises, also about y.
        """
        if not self.manifest.prediction.has_score:
            raise BackendError(f"{self.manifest.prediction.name} predictions have no likelihood.")
        x, true, _, blocks = self._asked("joint_log_likelihood", x, y, block)
        copy, kind = self._begun("joint_log_likelihood", blocks), self.manifest.prediction
        copy._state.load(self._kept())
        total = np.zeros(() if self.manifest.n_streams == 1 else self.manifest.n_streams)
        for rows in blocks:
            prediction, values = copy.query(_rows(x, rows)), _rows(true, rows)
            assert values is not None
            # A joint kind returns the mean of its targets.
            of_target = kind.log_likelihood(prediction.tensors, values, np)
            total = total + (rows.stop - rows.start) * of_target.mean(-1)
            if rows is not blocks[-1]:
                copy.update(_rows(x, rows), values)
        return total

    def _asked(
        self, call: str, x: ArrayLike | None, y: ArrayLike | None, block: int | None
    ) -> tuple[Array | None, Array | None, int, list[slice]]:
        """Check the arguments of a call, and cut its targets into blocks.

        Args:
            call: The name of the call, for messages.
            x: The target inputs.
            y: The true values of the targets, or None.
            block: The number of targets in one query, or None.

        Returns:
            x and y in the shapes that `query` and `update` take, or None; the number M of targets;
            and the rows of each block, the targets of one query.
        """
        manifest = self.manifest
        if manifest.is_filter:
            raise BackendError(f"this bundle is of the filtering kind: use step, not {call}.")
        buffers, arrays = self._predictor.targets, []
        rows_x, m = buffers.taken(call, x)
        if rows_x is not None:
            arrays.append((buffers, rows_x))
        rows_y = None
        if y is not None:
            rows_y, n = self._y.taken(call, y)
            m = n if m is None else m
            if n != m:
                raise ShapeError(f"{call}() got {m} rows of x and {n} of y; give one y for each x.")
            if rows_y is not None:
                arrays.append((self._y, rows_y))
        m = 1 if m is None else m
        require_sound(arrays, m)
        one = manifest.n_streams == 1
        rows_x, rows_y = (r[0] if one and r is not None else r for r in (rows_x, rows_y))
        return rows_x, rows_y, m, list(_blocks(m, self._width(call, block)))

    def _width(self, call: str, block: int | None) -> int:
        own, most = self.manifest.prediction.block, self.manifest.targets
        width = (own or most) if block is None else block
        if not 1 <= width <= most:
            wider = f", or export again with --targets {width}" if width > most else ""
            raise ShapeError(
                f"{call}() takes blocks of {width} targets; this bundle's queries take 1 to {most}."
                f" Give another block{wider}."
            )
        return width

    def _begun(self, call: str, blocks: Sequence[slice]) -> StreamCopy:
        """Learn buffered points, and return the stream's copy, which the first call makes.

        The copy's state is undefined: the caller must load a state into it.

        Args:
            call: The name of the caller's method, for messages.
            blocks: The rows of the targets that are predicted at once, block after block.

        Raises:
            CapacityError: The state has no room for all blocks but the last.
        """
        self._learn_waiting()
        learned = blocks[-1].start if blocks else 0  # all but the last block
        room = self.manifest.room
        if room is not None and learned > (left := room - self._state.at.n_points):
            raise CapacityError(
                f"{call}() learns the targets of all blocks but the last on a copy of the state: "
                f"{learned} here, and the state has room for {left}. Give fewer targets or a "
                "larger block, or export the model with a larger capacity or with when_full set "
                "to overwrite or reservoir."
            )
        if self._copy is None:
            self._copy = self._another()
        return self._copy


def _blocks(m: int, width: int) -> Iterator[slice]:
    for start in range(0, m, width):
        yield slice(start, min(start + width, m))


def _rows(array: Array | None, rows: slice) -> Array | None:
    return None if array is None else array[..., rows, :]
