"""The picture of the arena, as the numbers of its SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping

import pytest

from edgefold.cli.plots.memory_map import HIGHEST, WIDTH, memory_map
from edgefold.export.native.generator import generate
from edgefold.export.native.program.arena import ArenaBuffer, ArenaPlan
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

SVG = "{http://www.w3.org/2000/svg}"


def drawn(arenas: Mapping[str, ArenaPlan], title: str = "model") -> ElementTree.Element:
    return ElementTree.fromstring(memory_map(title, 1000, arenas))


def rectangles(picture: ElementTree.Element) -> dict[str, tuple[float, ...]]:
    """Left, top, right and bottom of each buffer, by what its tooltip says."""
    found: dict[str, tuple[float, ...]] = {}
    for rect in picture.iter(f"{SVG}rect"):
        if rect.get("class") == "buffer":
            x, y, width, height = (float(rect.get(k, "")) for k in ("x", "y", "width", "height"))
            found[rect[0].text or ""] = (x, y, x + width, y + height)
    return found


def texts(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def place(name: str, n_floats: int, start: int, first: int, last: int) -> ArenaBuffer:
    return ArenaBuffer(name, "float", 4 * n_floats, start, first, last)


def test_a_buffer_is_as_wide_as_it_is_needed_and_as_high_as_it_is_large() -> None:
    plan = ArenaPlan(
        (place("large", 192, 0, 0, 1), place("small", 64, 768, 1, 3)), ("a", "b", "c", "d")
    )
    assert plan.used_bytes == [768, 1024, 256, 256]
    large, small = rectangles(drawn({"step": plan})).values()
    assert large[2] - large[0] == pytest.approx((small[2] - small[0]) * 2 / 3, abs=0.2)
    assert large[3] - large[1] == pytest.approx(HIGHEST * 3 / 4, abs=0.2)
    assert small[3] == pytest.approx(large[1], abs=0.2)  # it lies on top
    assert small[2] < WIDTH


def test_the_title_the_peak_and_large_buffers_are_told_in_bytes() -> None:
    plan = ArenaPlan((place("large", 192, 0, 0, 1), place("i", 16, 768, 1, 1)), ("a", "b, c"))
    said = texts(drawn({"step": plan}, "<model> & more"))
    assert "<model> & more: an arena of 832 bytes" in said
    assert "832 bytes" in said and "large  768" in said
    assert any("in statement 2, which computes b and 1 more" in text for text in said)


def test_a_step_without_buffers_has_its_name_and_no_peak() -> None:
    said = texts(drawn({"step": ArenaPlan((), ("a",)), "query": ArenaPlan()}))
    assert said.count("needs no memory for intermediate values") == 2


def test_the_buffers_of_a_model_never_overlap() -> None:
    native = generate(shipped_bundle("gp-tiny"))
    picture = drawn(native.arenas)
    found = rectangles(picture)
    assert len(found) > 100
    boxes = list(found.values())
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            shared = [min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1)]
            assert min(shared) < 0.15  # sides are rounded to a tenth
    assert set(native.arenas) <= set(texts(picture))
    most = max(plan.n_bytes for plan in native.arenas.values())
    assert f"{most:,} bytes" in texts(picture)


def test_both_palettes_define_the_same_colours() -> None:
    style = drawn({"step": ArenaPlan((), ("a",))})[0].text or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    names = [set(re.findall(r"--\w+(?=:)", part.split("text {")[0])) for part in (light, dark)]
    assert names[0] == names[1] != set()
