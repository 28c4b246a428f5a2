from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgefold.devices.boards import board_names, board_text, load_board
from edgefold.devices.errors import BoardError

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
    assert board.memory_bytes.value
    assert board.cpu.clock_hz.value


def test_no_profile_is_missing_or_unlisted() -> None:
    assert set(board_names()) == PROMISED


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_every_known_figure_of_a_profile_has_a_source(name: str) -> None:
    def figures(value: Any) -> list[dict[str, Any]]:
        if isinstance(value, dict):
            own = [value] if set(value) == {"value", "source"} else []
            return own + [f for inner in value.values() for f in figures(inner)]
        return [f for inner in value for f in figures(inner)] if isinstance(value, list) else []

    found = figures(json.loads(board_text(name)))
    assert len(found) >= 6
    for figure in found:
        assert (figure["value"] is None) == (figure["source"] is None), figure


def test_tensor_rates_are_dense_and_never_below_those_of_the_cuda_cores() -> None:
    orin = load_board("jetson-agx-orin-64gb").gpu
    assert orin is not None
    int8 = orin.rates["int8"].value
    assert int8 == pytest.approx(85e12, rel=0.01)  # the brief's 170 TOPS are sparse
    for name in PROMISED:
        gpu = load_board(name).gpu
        rates = [gpu.rates[p].value for p in ("float32", "float16", "int8")] if gpu else []
        known = [rate for rate in rates if rate is not None]
        assert known == sorted(known), name


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
    with pytest.raises(BoardError, match=r"no board is called 'toaster'.*raspberry-pi-5"):
        load_board("toaster")


def test_a_missing_or_broken_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="cannot be read: No such file"):
        load_board(str(tmp_path / "none.json"))
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(BoardError, match="is no JSON"):
        load_board(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BoardError, match="is not UTF-8"):
        load_board(str(path))


def _drop_clock(form: dict[str, Any]) -> None:
    del form["cpu"]["clock_hz"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.update(schema=9), "schema is 9, this version of edgefold reads 1"),
        (_drop_clock, "cpu.clock_hz is missing"),
        (lambda f: f.update(colour="red"), "colour is no field of a profile"),
        (lambda f: f["memory"].update(total_bytes=4), "memory.total_bytes is 4, not an object"),
        (
            lambda f: f["memory"]["total_bytes"].update(value="8GB"),
            'memory.total_bytes.value is "8GB", neither a positive number nor null',
        ),
        (lambda f: f["memory"]["total_bytes"].update(value=True), "neither a positive number"),
        (lambda f: f["memory"]["total_bytes"].update(value=-1), "neither a positive number"),
        (
            lambda f: f["memory"]["total_bytes"].update(source=""),
            "memory.total_bytes.source.*say where the value comes from, or make the value null",
        ),
        (lambda f: f.update(title=""), 'title is "", not a text'),
        (lambda f: f.update(notes=[1]), "notes is not a list of texts"),
        (lambda f: f.update(power_modes={}), "power_modes is {}, not a list"),
        (lambda f: f.update(power_modes=[{}]), r"power_modes\[0\].n_cores is missing"),
        (
            lambda f: f["backends"]["tensorrt"].update(in_scope="no"),
            'in_scope is "no", neither true nor false',
        ),
    ],
)
def test_a_profile_that_is_wrong_is_refused_with_the_fields_name(
    tmp_path: Path, damage: Callable[[dict[str, Any]], None], message: str
) -> None:
    form = json.loads(board_text("jetson-orin-nano-8gb"))
    damage(form)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(form))
    with pytest.raises(BoardError, match=message):
        load_board(str(path))
    path.write_text("[]")
    with pytest.raises(BoardError, match=r"the profile is \[\], not an object"):
        load_board(str(path))
