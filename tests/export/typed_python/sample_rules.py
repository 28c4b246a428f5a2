"""Rules that use every part of the subset of Python of which C is made."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from edgefold.runtime.arrays import FloatArray, Reals
from edgefold.runtime.kept_numbers import KeptNumbers, filled, ordered, replaced, shifted

Direction = Literal["", "up", "far down"]
BEST, TABLE, COUNTS = 3.0, (1.0, 2.0, -5.0), (3, 1, 2)
PARTS = {"a": 0.25, "b": 4.0}
DIRECTIONS: tuple[Direction, ...] = ("", "up", "far down")


class Place(NamedTuple):
    """A result of three fields."""

    number: float
    n: int = 0
    direction: Direction = ""


NOWHERE = Place(0.0, -1)


def scaled(number: float, factor: float = 2.0) -> float:
    """Return a product."""
    return number * factor


class Inner(KeptNumbers):
    """A part of the other rule."""

    KEPT = ("level", "last", "n")

    level: float = 1.5
    last: list[float] = filled(0.0, 4)
    n: int = 0
    _half: float = 0.0

    def restored(self) -> None:
        """Compute what is not kept."""
        self._half = 0.5 * self.level

    @property
    def span(self) -> float:
        """Return the difference of the extremes."""
        return max(self.last) - min(self.last) + self._half

    def push(self, number: float) -> float:
        """Take a number in, and return a sum over those that are kept."""
        self.n += 1
        self.last = shifted(self.last, number)
        total = 0.0
        for i, item in enumerate(self.last):
            if item > BEST and i > 0:
                total += item * TABLE[i % 3]
            elif item == 0.0:
                continue
            else:
                total -= i / 2
        return total


class Sample(KeptNumbers):
    """A rule of everything."""

    inner: Inner = Inner()
    direction: Direction = ""
    place: Place = NOWHERE
    _slots: list[int] = filled(-1, 5)
    _weights: list[float] = filled(0.5, 3)

    def of_numbers(self, a: float, b: float, n: int, m: int) -> float:
        """Return a number of many operators."""
        q = n // m + n % m - (n << 2) + ((n & 12) | 3) - (n >> 1)
        x = a % b if b != 0.0 else a / (n * n + 1)
        y = min(a, b, float(n)) - max(n, m) + abs(a - b) + abs(n - m)
        z = round(a) + math.floor(b) - math.ceil(a) + int(b) + (-n if a < 0 else n)
        w = math.log(1.0 + abs(a)) + math.log1p(abs(b)) - math.exp(-abs(a)) * math.sqrt(abs(b))
        w += math.copysign(1.0, a) + math.fmod(a, 3.0) + n.bit_length()
        return q + x * y / (1 + z * z) - w * (a < b <= 2 * abs(b) and n != m)

    def of_lists(self, a: float, n: int) -> Place:
        """Return a result of many operations on lists."""
        slots = [*self._slots]
        slots[n % 5] = n
        self._slots = slots
        self._weights = [PARTS["a"] * weight + a for weight in self._weights]
        self._weights = replaced(self._weights, n % 3, PARTS["b"])
        inner = self.inner
        inner.last = ordered(inner.last, 3)
        first, last = inner.last[0], inner.last[-1]
        first, last = last, first
        squares = [i * i for i in range(4)]
        total, found = 0.0, 0
        for count, item in zip(COUNTS, self._weights, strict=True):
            for _ in range(count):
                total += item
        for at in range(4, 0, -1):
            if squares[at - 1] > n % 9:
                break
            found = at
        if n in self._slots and -7 not in self._slots:
            found += slots.index(n)
        listed = [a, first, last]
        while found > 7:
            found -= 7
        return Place(total + listed[n % 3] + inner.span, found)

    def of_words(self, a: float, n: int) -> Place:
        """Return a word, and keep it."""
        before = self.direction
        self.direction = "up" if a > 1.0 else DIRECTIONS[n % 3]
        if self.direction == before:
            return NOWHERE
        self.place = Place(scaled(a), direction=self.direction, n=n)
        number, _, direction = self.place
        is_far = direction == "far down"
        self.inner.n, kept = kept_number(number), self.inner.n
        return Place(scaled(number, factor=0.5) if is_far else number, kept, direction)

    def of_parts(self, a: float) -> float:
        """Change a part, or its list, by a name of its own."""
        inner = self.inner
        total = inner.push(a)
        if a > 2.0:
            inner.level += 0.5
            inner.restored()
        return total + self.inner.level + inner.span

    def of_arrays(self, values: FloatArray, work: Reals, n: int) -> float:
        """Return a sum over slices of arrays."""
        half = n // 2
        work[:n] = values[:n]
        work[:half] = work[half : 2 * half] - BEST * work[:half]
        work[:half] = np.where(np.isnan(work[:half]), 0.0, np.minimum(work[:half], 2.0))
        work[half:n] = np.sqrt(np.abs(work[half:n])) + np.arange(n - half)
        mean = float(np.sum(work[:half] * work[half : 2 * half])) / n
        work[:half] = np.maximum(-work[:half], mean) + work[0 : 2 * half : 2]
        total = 0.0
        for i in range(n):
            total += work[i] + float(values[n - 1])
        values[0] = total
        return total


def kept_number(number: float) -> int:
    """Return a number within bounds."""
    return int(min(max(number, -100.0), 100.0))
