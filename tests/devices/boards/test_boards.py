from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgefold.devices.boards.board import (
    STATUSES,
    UNCONFIRMED,
    UNKNOWN,
    board_names,
    board_text,
    load_board,
    load_microcontroller,
    load_profile,
    microcontroller_names,
)
from edgefold.runtime.errors import BoardError

PROMISED = {
    *("jetson-nano", "jetson-tx2-nx", "jetson-xavier-nx-8gb", "jetson-xavier-nx-16gb"),
    *("jetson-agx-xavier-32gb", "jetson-orin-nano-4gb", "jetson-orin-nano-8gb"),
    *("jetson-orin-nano-4gb-super", "jetson-orin-nano-8gb-super", "jetson-orin-nx-8gb"),
    *("jetson-orin-nx-16gb", "jetson-orin-nx-8gb-super", "jetson-orin-nx-16gb-super"),
    *("jetson-agx-orin-32gb", "jetson-agx-orin-64gb", "jetson-thor-t5000"),
    *("raspberry-pi-zero-2-w", "raspberry-pi-4", "raspberry-pi-5", "x86-64-gateway"),
}


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_every_profile_loads_and_is_called_as_its_file(name: str) -> None:
    board = load_board(name)
    assert board.name == name
    assert board.memory.total_bytes.value
    assert board.cpu.clock_hz.value


def test_no_profile_is_missing_or_unlisted() -> None:
    assert set(board_names()) == PROMISED


def inner(value: Any, field: str) -> list[dict[str, Any]]:
    """Every object of a profile that has this field."""
    if isinstance(value, list):
        return [found for each in value for found in inner(each, field)]
    if not isinstance(value, dict):
        return []
    own = [value] if field in value else []
    return own + [found for each in value.values() for found in inner(each, field)]


MICROCONTROLLERS = {"rp2040", "rp2350", "stm32h743", "nrf52840", "esp32-s3"}


def test_every_microcontroller_loads_and_is_called_as_its_file() -> None:
    assert set(microcontroller_names()) == MICROCONTROLLERS
    for name in MICROCONTROLLERS:
        part = load_microcontroller(name)
        assert part.name == name
        assert part.flash_bytes.value and part.ram_bytes.value and part.cpu.clock_hz.value
        assert (part.cpu.fpu == "none") == (name == "rp2040")


def test_a_board_is_not_taken_for_a_microcontroller() -> None:
    with pytest.raises(BoardError, match="rp2350 is a microcontroller"):
        load_board("rp2350")
    with pytest.raises(BoardError, match="raspberry-pi-5 is a board with Linux"):
        load_microcontroller("raspberry-pi-5")


@pytest.mark.parametrize("name", sorted(PROMISED | MICROCONTROLLERS))
def test_every_known_figure_of_a_profile_has_a_status_and_a_source(name: str) -> None:
    form = json.loads(board_text(name))
    figures = inner(form, "value")
    assert len(figures) >= 5
    for figure in figures:
        assert (figure["value"] is None) == (figure["status"] == UNKNOWN), figure
        assert figure["value"] is None or figure["source"], figure
    stated = inner(form, "status")
    others = len(form.get("power_modes", [])) + len(form.get("sensors", []))
    assert len(stated) == len(figures) + others
    assert all(each["status"] in (*STATUSES, UNKNOWN) for each in stated)
    assert sum(each["status"] != UNKNOWN for each in stated) == len(load_profile(name).statuses())


def computed(formula: str) -> float:
    """Value of numbers joined by * and /, from the left."""
    result = 1.0
    for factor in formula.split("*"):
        first, *divisors = map(float, factor.split("/"))
        result *= first
        for divisor in divisors:
            result /= divisor
    return result


@pytest.mark.parametrize("name", sorted(PROMISED | MICROCONTROLLERS))
def test_every_formula_gives_its_value(name: str) -> None:
    for figure in inner(json.loads(board_text(name)), "formula"):
        assert computed(figure["formula"]) == pytest.approx(figure["value"], rel=1e-9), figure


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_what_is_derived_follows_from_the_profiles_own_figures(name: str) -> None:
    board = load_board(name)
    if board.gpu is None or name == "jetson-tx2-nx":  # its clock is derived from its rate
        return
    for rate in board.gpu.dense_operations_per_s.values():
        if rate.value is not None:
            assert rate.formula is not None
            assert float(rate.formula.split("*")[-1]) == board.gpu.clock_hz.value
            if board.gpu.clock_hz.status == UNCONFIRMED:
                assert rate.status == UNCONFIRMED


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_no_mode_has_more_than_its_board(name: str) -> None:
    board = load_board(name)
    clock_hz, cores = board.cpu.clock_hz.value, board.cpu.cores.value
    assert clock_hz and cores
    for mode in board.power_modes:
        assert (mode.cpu_clock_hz or 0) <= clock_hz, mode
        assert (mode.n_cores or 0) <= cores, mode
        assert board.gpu and board.gpu.clock_hz.value
        assert (mode.gpu_clock_hz or 0) <= board.gpu.clock_hz.value, mode
        memory = board.memory.clock_hz
        assert memory or mode.memory_clock_hz is None, mode
        assert (mode.memory_clock_hz or 0) <= ((memory and memory.value) or 0), mode


def test_the_page_tells_how_many_figures_of_each_board_are_how_sure() -> None:
    page = (Path(__file__).parents[3] / "docs" / "budgets.md").read_text()
    for name in PROMISED | MICROCONTROLLERS:
        given = list(load_profile(name).statuses().values())
        counts = " | ".join(str(given.count(status)) for status in STATUSES)
        assert f"| `{name}` | {counts} |" in page, counts


def test_tensor_rates_are_dense_and_never_below_those_of_the_cuda_cores() -> None:
    orin = load_board("jetson-agx-orin-64gb").gpu
    assert orin is not None
    int8 = orin.dense_operations_per_s["int8"].value
    assert int8 == pytest.approx(85e12, rel=0.01)  # the brief's 170 TOPS are sparse
    for name in PROMISED:
        gpu = load_board(name).gpu
        rates = (
            [gpu.dense_operations_per_s[p].value for p in ("float32", "float16", "int8")]
            if gpu
            else []
        )
        known = [rate for rate in rates if rate is not None]
        assert known == sorted(known), name


def test_a_memory_clock_gives_the_boards_bandwidth() -> None:
    widths = set()
    for name in PROMISED:
        memory = load_board(name).memory
        if memory.clock_hz and memory.clock_hz.value and memory.bandwidth_bytes_per_s.value:
            width = memory.bandwidth_bytes_per_s.value / memory.clock_hz.value / 2
            assert width == pytest.approx(round(width / 8) * 8, rel=0.005), name  # rounded GB/s
            widths.add(round(width / 8) * 8)
    assert widths == {8, 16, 32}  # bytes: 64, 128 and 256 bits


def test_tensorrt_is_in_scope_on_orin_and_thor_alone() -> None:
    for name in PROMISED:
        expected = "orin" in name or "thor" in name
        assert load_board(name).backends["tensorrt"].in_scope == expected, name


def test_an_own_file_is_read_and_another_clock_gives_another_rate(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(board_text("raspberry-pi-5"))
    cpu = load_board(str(path)).cpu
    assert cpu.rate() == pytest.approx(16 * 2.4e9)
    assert cpu.rate(1.2e9) == pytest.approx(16 * 1.2e9)


def test_an_unknown_board_lists_those_there_are() -> None:
    with pytest.raises(BoardError, match="raspberry-pi-5"):
        load_board("toaster")


@pytest.mark.parametrize("content", [None, b"{", b"\xff\xfe", b"[]"])
def test_a_missing_or_broken_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BoardError, match=str(path)):
        load_board(str(path))


def _drop_clock(form: dict[str, Any]) -> None:
    del form["cpu"]["clock_hz"]


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda f: f.update(schema=9), "schema"),
        (_drop_clock, "cpu.clock_hz"),
        (lambda f: f.update(colour="red"), "colour"),
        (lambda f: f["memory"].update(total_bytes=4), "memory.total_bytes"),
        (lambda f: f["memory"]["total_bytes"].update(value="8GB"), "memory.total_bytes.value"),
        (lambda f: f["memory"]["total_bytes"].update(value=True), "memory.total_bytes.value"),
        (lambda f: f["memory"]["total_bytes"].update(value=-1), "memory.total_bytes.value"),
        (lambda f: f["memory"]["total_bytes"].update(source=""), "memory.total_bytes.source"),
        (lambda f: f["memory"]["total_bytes"].update(source=None), "memory.total_bytes.source"),
        (lambda f: f["memory"]["total_bytes"].update(status="sure"), "memory.total_bytes.status"),
        (lambda f: f["memory"]["total_bytes"].update(value=None), "memory.total_bytes.status"),
        (lambda f: f["memory"]["total_bytes"].update(formula="2*4"), "memory.total_bytes.formula"),
        (
            lambda f: f["memory"]["total_bytes"].update(status="derived"),
            "memory.total_bytes.formula",
        ),
        (lambda f: f["power_modes"][0].update(status=""), "power_modes[0].status"),
        (lambda f: f.update(title=""), "title"),
        (lambda f: f.update(notes=[1]), "notes[0]"),
        (lambda f: f.update(power_modes={}), "power_modes"),
        (lambda f: f.update(power_modes=[{}]), "power_modes[0].name"),
        (lambda f: f["backends"]["tensorrt"].update(in_scope="no"), "backends.tensorrt.in_scope"),
        (lambda f: f["backends"].pop("tensorrt"), "backends"),
        (
            lambda f: f["gpu"]["dense_operations_per_s"].pop("int8"),
            "gpu.dense_operations_per_s",
        ),
    ],
)
def test_a_profile_that_is_wrong_is_refused_with_the_fields_name(
    tmp_path: Path, damage: Callable[[dict[str, Any]], None], field: str
) -> None:
    form = json.loads(board_text("jetson-orin-nano-8gb"))
    damage(form)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(form))
    with pytest.raises(BoardError, match=re.escape(f"{path}: {field} ")):
        load_board(str(path))


@pytest.mark.parametrize(
    "value", ["1" + "0" * 400, "1" + "0" * 5000, "5e-324", "1e308", "Infinity"]
)
def test_a_figure_beyond_all_figures_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "board.json"
    text = board_text("raspberry-pi-5")
    bandwidth = json.dumps(json.loads(text)["memory"]["bandwidth_bytes_per_s"]["value"])
    path.write_text(text.replace(f'"value": {bandwidth}', f'"value": {value}', 1))
    with pytest.raises(BoardError, match=r"bandwidth_bytes_per_s|is not JSON"):
        load_board(str(path))


def test_what_is_no_profile_is_not_read_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="is not a file"):
        load_board("/dev/zero")
    large = tmp_path / "large.json"
    large.write_bytes(b" " * 1_000_001)
    with pytest.raises(BoardError, match="larger than 1,000,000 bytes"):
        load_board(str(large))


def test_a_mark_of_the_byte_order_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    path.write_text(board_text("raspberry-pi-5"), encoding="utf-8-sig")
    assert load_board(str(path)).name == "raspberry-pi-5"
