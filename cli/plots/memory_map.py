"""Draw the arena of generated C over time, as SVG without matplotlib.

    bytes  ^  ┌───────┐            a rectangle is a buffer: as wide as it is needed, as high as it
           │  │ exp_3 ├──────┐     is large, at its place in the arena
           │  └───────┘ sum_4│
           └───────────────────> statements of the step, in order

The steps of a model compute in the same arena one after the other, so that all have one scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefold.export.native.program.arena import ArenaBuffer, ArenaPlan

WIDTH, LEFT, RIGHT = 1200, 78, 26
HEAD, STEP_HEAD, STEP_FOOT = 72, 40, 50
"""Room above the first step, and above and below the area of each, in units of the picture."""
HIGHEST, LEAST_HIGH = 520, 30
"""Height of the step with the largest arena, and the least height of any other."""
LETTER, LINE, ROOM = 6.4, 13, 8
"""Width and height of a letter of a buffer's name, and the room beside the name."""
N_HUES = 6
TALL = 110
"""Height from which a buffer is named beside it if it is too narrow for its name."""
STYLE = """
svg { --page: #ffffff; --ink: #1d2330; --soft: #5b6472; --line: #d9dde3; --peak: #b3261e;
  --h0: #b9d3f4; --h1: #f6d4ac; --h2: #b5e0cc; --h3: #e6cfe9; --h4: #d5d9e0; --h5: #f2c6c6; }
@media (prefers-color-scheme: dark) { svg { --page: #14181f; --ink: #e6e9ee; --soft: #9aa4b2;
  --line: #343b46; --peak: #ff8a80;
  --h0: #2d5586; --h1: #80551f; --h2: #24664a; --h3: #65456b; --h4: #4b5462; --h5: #7d3f3f; } }
text { font: 12px "Helvetica Neue", Arial, "Liberation Sans", sans-serif; fill: var(--soft); }
text.title { font-size: 20px; font-weight: 650; fill: var(--ink); }
text.step { font-size: 15px; font-weight: 650; fill: var(--ink); }
text.buffer { font-size: 11px; fill: var(--ink); paint-order: stroke; stroke: var(--page);
  stroke-width: 2.5px; stroke-opacity: 0.55; stroke-linejoin: round; }
text.peak { fill: var(--peak); }
line { stroke: var(--line); }
line.peak { stroke: var(--peak); stroke-width: 1.5; stroke-dasharray: 6 4; }
rect.buffer { stroke: var(--page); stroke-width: 0.7; }
path { fill: none; stroke: var(--ink); stroke-width: 1.2; }
"""


@dataclass(frozen=True, slots=True)
class StepArea:
    """Draws the buffers of one step.

    Attributes:
        name: Name of the step.
        plan: Its buffers.
        top: Upper edge of the area.
        scale: Units of the picture for each byte.
    """

    name: str
    plan: ArenaPlan
    top: float
    scale: float

    @property
    def bottom(self) -> float:
        return self.top + max(LEAST_HIGH, self.plan.n_bytes * self.scale)

    def x(self, statement: int) -> float:
        """Return where a statement begins; behind the last one it is the right edge."""
        return LEFT + (WIDTH - LEFT - RIGHT) * statement / max(1, len(self.plan.notes))

    def y(self, byte: int) -> float:
        return self.bottom - byte * self.scale

    def drawn(self) -> Iterator[str]:
        """Yield the elements of the step, those in the background first."""
        yield from self._title()
        yield from self._axes()
        if self.plan.buffers:
            for number, place in enumerate(self.plan.buffers):
                yield self._buffer(number, place)
            yield self._used()
            yield from filter(None, map(self._label, self.plan.buffers))
            yield from self._peak()

    def _title(self) -> Iterator[str]:
        used = self.plan.used_bytes
        yield _text(LEFT, self.top - 22, self.name, "step")
        if not self.plan.buffers:
            yield _text(LEFT, self.top - 6, "needs no memory for intermediate values")
            return
        busiest = used.index(max(used))
        first, *others = self.plan.notes[busiest].split(", ")
        more = f" and {len(others)} more" * bool(others)
        about = (
            f"{self.plan.n_bytes:,} bytes for {len(self.plan.buffers)} buffers; most are in need, "
            f"{used[busiest]:,} bytes, in statement {busiest + 1}, which computes {first}{more}"
        )
        yield _text(LEFT, self.top - 6, about)

    def _axes(self) -> Iterator[str]:
        n = len(self.plan.notes)
        for byte in range(0, self.plan.n_bytes + 1, _tick(self.plan.n_bytes, self.scale, 24)):
            y = self.y(byte)
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield _text(LEFT - 8, y + 4, f"{byte:,}", anchor="end")
        tick = _tick(n, (WIDTH - LEFT - RIGHT) / max(1, n), 70, 10)
        for number in range(tick, n + 1, tick):
            x = (self.x(number - 1) + self.x(number)) / 2
            low, end = self.bottom, self.bottom + 5
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{end:.1f}"/>'
            yield _text(x, self.bottom + 17, f"{number}", anchor="middle")
        yield _text(WIDTH - RIGHT, self.bottom + 32, f"statements, {n} in all", anchor="end")

    def _sides(self, place: ArenaBuffer) -> tuple[float, float, float, float]:
        """Return left, top, width and height of a buffer in the picture."""
        x, y = self.x(place.first), self.y(place.stop)
        return x, y, self.x(place.last + 1) - x, place.n_bytes * self.scale

    def _buffer(self, number: int, place: ArenaBuffer) -> str:
        x, y, width, height = self._sides(place)
        return (
            f'<rect class="buffer" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" style="fill: var(--h{number % N_HUES})">'
            f"<title>{escape(place.name)}: {place.n_bytes:,} bytes at {place.start:,}, "
            f"statements {place.first + 1} to {place.last + 1}</title></rect>"
        )

    def _label(self, place: ArenaBuffer) -> str:
        """Return the name of a buffer inside of it, along its longer side, or beside a large one.

        A name that fits nowhere is "".
        """
        x, y, width, height = self._sides(place)
        middle, center, name = x + width / 2, y + height / 2, place.name
        labels = f"{name}  {place.n_bytes:,}", name
        for label in labels:
            if len(label) * LETTER + ROOM < width and height > LINE:
                return _text(middle, center + 4, label, "buffer", "middle")
            if len(label) * LETTER + ROOM < height and width > LINE:
                turn = f' transform="rotate(-90 {middle:.1f} {center:.1f})"'
                return _text(middle, center + 4, label, "buffer", "middle", turn)
        if height < TALL:
            return ""
        if x + width + len(labels[0]) * LETTER + ROOM < WIDTH - RIGHT:
            return _text(x + width + 5, y + LINE, labels[0], "buffer")
        return _text(x - 5, y + LINE, labels[0], "buffer", "end")

    def _used(self) -> str:
        """Return a line of the bytes that are in need in each statement."""
        steps = [
            f"H{self.x(statement):.1f}V{self.y(n_bytes):.1f}"
            for statement, n_bytes in enumerate(self.plan.used_bytes)
        ]
        return f'<path d="M{LEFT},{self.bottom:.1f}{"".join(steps)}H{WIDTH - RIGHT}"/>'

    def _peak(self) -> Iterator[str]:
        y = self.y(self.plan.n_bytes)
        yield f'<line class="peak" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(WIDTH - RIGHT, y - 6, f"{self.plan.n_bytes:,} bytes", "peak", "end")


def memory_map(title: str, struct_bytes: int, arenas: Mapping[str, ArenaPlan]) -> str:
    """Return an SVG of the buffers of each step's intermediate values.

    Its colours follow the reader's setting for light or dark pages.

    Args:
        title: Name of the model.
        struct_bytes: Size of the struct of a stream, on top of which the arena comes.
        arenas: The buffers of each step, by its name.
    """
    largest = max(plan.n_bytes for plan in arenas.values())
    about = (
        "Each rectangle is a buffer, at its place in the arena and for as long as it is needed; "
        "the line is the sum of the buffers in need. "
        f"A stream has {struct_bytes:,} bytes more."
    )
    parts = [
        _text(LEFT, 32, f"{title}: an arena of {largest:,} bytes", "title"),
        _text(LEFT, 54, about),
    ]
    top = float(HEAD)
    for name, plan in arenas.items():
        area = StepArea(name, plan, top + STEP_HEAD, HIGHEST / max(1, largest))
        parts += area.drawn()
        top = area.bottom + STEP_FOOT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" role="img" '
        f'width="{WIDTH}" height="{top:.0f}">\n<style>{STYLE}</style>\n'
        '<rect width="100%" height="100%" style="fill: var(--page)"/>\n'
        + "\n".join([*parts, "</svg>", ""])
    )


def _tick(most: int, scale: float, room: float, base: int = 2) -> int:
    """Return a round distance of ticks that are `room` units apart at least.

    `base` is 2 for bytes, which makes powers of 2, or 10 for counts, which makes 1, 2, 5, 10 ..
    """
    steps = (1, 2, 5) if base == 10 else (1,)
    power = 1
    while True:
        for step in steps:
            if step * power * scale >= room or step * power > most:
                return step * power
        power *= base


def _text(
    x: float, y: float, text: str, kind: str = "", anchor: str = "start", more: str = ""
) -> str:
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{anchor}{more}>{escape(text)}</text>'
