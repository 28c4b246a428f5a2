"""The page in Chromium forecasts files, sends nothing, and can be used by keys, touch and ear."""

from __future__ import annotations

import contextlib
import csv
import math
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgefold.export.browser as browser_files
from edgefold.export.browser.page import page_of
from edgefold.export.browser.scripts import joined
from tests.browser import Browser, Tab, chromium, needs_chromium
from tests.export.browser.built import NODE, TOOLS, needs_axe, needs_node

HERE, FOLDER = Path(__file__).parent, Path(*browser_files.__path__)
HOSTILE = "<img src=x onerror=\"document.body.dataset.hit='yes'\">'&</script>"
STATE = "document.body.dataset.state"
READY = "document.readyState == 'complete' && document.querySelector('#sample')"
LABEL = "document.querySelector('#chart').getAttribute('aria-label')"
LEFT = 1


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as browser:
        yield browser


@pytest.fixture(scope="module")
def page(module: bytes, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page, which is a file."""
    path = tmp_path_factory.mktemp("page") / "sensors.html"
    path.write_text(page_of(module), encoding="utf-8")
    return path.as_uri()


def opened(browser: Browser, page: str, *size: float, scheme: str = "light") -> Tab:
    width, height, scale = size or (1280, 900, 1.0)
    tab = Tab(browser, page, int(width), int(height), scale, scheme)
    tab.until(READY)
    return tab


def choose(tab: Tab, *paths: Path) -> None:
    """Choose files as the button does."""
    root = tab.call("DOM.getDocument")["root"]["nodeId"]
    node = tab.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    tab.call("DOM.setFileInputFiles", files=[str(path) for path in paths], nodeId=node)


def forecast(tab: Tab, path: Path) -> None:
    """Choose a file and wait for its forecasts."""
    choose(tab, path)
    tab.until(f"document.querySelector('#file-name').innerText == {path.name!r}")
    tab.until(f"['done', 'failed'].includes({STATE})")


def sample(tab: Tab) -> None:
    tab.value("document.querySelector('#sample').click()")
    tab.until(f"{STATE} == 'done'")


def later(tab: Tab, script: str) -> Any:
    """The value that a promise of the page gives."""
    found = tab.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in found, found
    return found["result"].get("value")


def press(tab: Tab, key: str, code: int = 0, modifiers: int = 0) -> None:
    for kind in ("keyDown", "keyUp"):
        tab.call(
            "Input.dispatchKeyEvent",
            **{"type": kind, "key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers},
        )


def span(tab: Tab) -> float:
    """How much of the axis is shown."""
    found: float = tab.value("chart.isFollowing ? chart.latest[1] - chart.latest[0] : "
                             "chart.view[1] - chart.view[0]")  # fmt: skip
    return found


def table(n: int = 300, header: str = "time,hall,roof") -> str:
    rows = [
        f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{20 + math.sin(i / 4):.2f},{9 + i % 5}"
        for i in range(n)
    ]
    return "\n".join([header, *rows]) + "\n"


@needs_node
@pytest.mark.parametrize("name", ["page.js", "worker.js"])
def test_modules_of_the_page_share_no_name(name: str, tmp_path: Path) -> None:
    assert NODE is not None
    script = tmp_path / "joined.js"
    script.write_text(f"'use strict';\n{joined(FOLDER / 'page' / name)}", encoding="utf-8")
    done = subprocess.run([NODE, "--check", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\nimport " not in script.read_text() and "\nexport " not in script.read_text()


@needs_node
def test_blocks_of_rows_have_the_ranges_of_their_rows() -> None:
    """A view of a million rows is drawn from them; single rows and blocks must not differ."""
    assert NODE is not None
    words = [NODE, str(HERE / "check_blocks.mjs"), str(FOLDER / "page" / "series.js")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_chromium
@pytest.mark.long
def test_the_sample_is_forecast_and_its_files_can_be_saved(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    tab = opened(browser, page)
    sample(tab)
    assert tab.text("#name") == "hall temperature"
    assert "value" in tab.text("#alarms") and "2024-04-07 12:00" in tab.text("#alarms")
    assert "36 rows missing" in tab.text("#counts") and "line 703" in tab.text("#refused")
    assert (
        len(tab.value("[...document.querySelectorAll('#ahead tr')].map(row => row.innerText)")) > 5
    )
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    heads = {
        "sample-forecast.csv": ["time", "value", "mean", "q05"],
        "sample-forecast-next.csv": ["slots_ahead", "time", "mean", "q05"],
    }
    for (name, head), link in zip(heads.items(), ("#save-rows", "#save-next"), strict=True):
        tab.value(f"document.querySelector('{link}').click()")
        end_s = time.monotonic() + 60
        while not (tmp_path / name).is_file() and time.monotonic() < end_s:
            time.sleep(0.05)
        rows = list(csv.reader((tmp_path / name).read_text().splitlines()))
        assert rows[0][:4] == head and len(rows) > 20
    assert not tab.complaints
    tab.picture(tmp_path / "page.png", whole=True)
    assert (tmp_path / "page.png").stat().st_size > 50_000  # something is drawn


@needs_chromium
@pytest.mark.long
def test_a_dropped_file_is_forecast_and_its_sensors_are_chosen_by_name(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    tab, path = opened(browser, page), tmp_path / "house.csv"
    path.write_text(table())
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        tab.call("Input.dispatchDragEvent", type=kind, x=600, y=400, data=data)
        if kind == "dragOver":
            tab.until("!document.querySelector('#veil').hidden")
    tab.until(f"{STATE} == 'done'")
    assert tab.value("document.querySelector('#veil').hidden")
    assert tab.text("#name") == "hall"
    assert "300 lines" in tab.text("#file-facts")
    tab.value("[...document.querySelectorAll('.item')][1].click()")
    tab.until("document.querySelector('#name').innerText == 'roof'")
    tab.value("const box = document.querySelector('#search'); box.value = 'HA';"
              "box.dispatchEvent(new Event('input'))")  # fmt: skip
    tab.until("document.querySelectorAll('.item').length == 1")
    assert not tab.complaints


BAD = {
    "empty.csv": (b"", "is empty"),
    "words.csv": (b"a,b\nx,y\n", "the settings Times and Values"),
    "packed.csv.gz": (b"\x1f\x8b\x08\0abc\n", "unpack it and open what is inside"),
    "sheet.xlsx": (b"PK\x03\x04\x14\0\n", "save its table as CSV"),
    "latin.csv": (b"time,v,unit\n" + 9 * b"2024-01-01,1,\xb0C\n", "the encoding Windows-1252"),
}  # fmt: skip


@needs_chromium
@pytest.mark.long
def test_bad_files_are_explained_without_words_of_the_command(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    tab = opened(browser, page)
    for name, (content, words) in BAD.items():
        path = tmp_path / name
        path.write_bytes(content)
        forecast(tab, path)
        assert tab.value(STATE) == "failed", name
        text = tab.text("#problem-text")
        assert words in text and name in text and "--" not in text and "iconv" not in text
        assert tab.value("!document.querySelector('#problem').hidden")
    tab.value("document.querySelector('#set-encoding').value = 'windows-1252';"
              "document.querySelector('#form').requestSubmit()")  # fmt: skip
    tab.until(f"{STATE} == 'done'")
    assert "WINDOWS-1252" in tab.text("#notes")


@needs_chromium
@pytest.mark.long
def test_a_number_with_two_readings_is_read_as_the_settings_say(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    tab, path = opened(browser, page), tmp_path / "two.csv"
    path.write_text("time,v\n" + "".join(f"{i},{900 + i}\n" for i in range(100)) + '100,"1,000"\n')
    forecast(tab, path)
    assert "the decimal sign “.” if it is 1000" in tab.text("#problem-text")
    for sign, value in ((".", 1000), (",", 1)):
        tab.value(f"document.querySelector('#set-decimal').value = {sign!r};"
                  "document.querySelector('#form').requestSubmit()")  # fmt: skip
        tab.until(f"{STATE} == 'done'")
        assert tab.value("sensors[0].values.all[sensors[0].n - 1]") == value


@needs_chromium
@pytest.mark.long
def test_columns_names_and_the_rate_of_alarms_can_be_chosen(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    tab, path = opened(browser, page), tmp_path / "long.csv"
    rows = [f"{i},{place},{i % 7}.5,{i % 3}\n" for i in range(60) for place in ("roof", "wall")]
    path.write_text("time,place,v,w\n" + "".join(rows))
    forecast(tab, path)
    names = "[...document.querySelectorAll('.item-name')].map(item => item.innerText)"
    assert tab.value(names) == ["roof v", "roof w", "wall v", "wall w"]
    tab.value("document.querySelector('#set-rate').value = '0.01';"
              "document.querySelector('#checks input[value=w]').click();"
              "document.querySelector('#form').requestSubmit()")  # fmt: skip
    tab.until(f"{STATE} == 'done'")
    assert tab.value(names) == ["roof", "wall"]
    assert "one in 100 rows" in tab.text("#no-alarms")


def heard(server: socket.socket) -> bytes:
    """All bytes that came to a server that answers nothing."""
    found = b""
    server.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(0.5)
                with contextlib.suppress(TimeoutError):
                    found += connection.recv(4096)
    return found


@needs_chromium
@pytest.mark.long
def test_no_request_leaves_the_page(browser: Browser, page: str) -> None:
    """Neither by itself, nor where a script in the page or in a worker tries.

    Before Chromium asks the policy about a frame or a form, it may open a connection in advance, in
    which it sends nothing.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        tab = opened(browser, page)
        tab.call("Network.enable")
        tab.call("Page.reload")
        tab.until(READY)
        sample(tab)
        requests = [
            event["params"]["request"]["url"]
            for event in browser.events
            if event["method"] == "Network.requestWillBeSent"
        ]
        assert page in requests
        assert {url.partition(":")[0] for url in requests} <= {"file", "blob", "data"}
        tries = (HERE / "try_requests.js").read_text()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert later(tab, f"{tries}({url!r})") == []
        assert heard(server) == b""


@needs_chromium
@pytest.mark.long
def test_foreign_names_stay_text(browser: Browser, page: str, tmp_path: Path) -> None:
    tab, path = opened(browser, page), tmp_path / "hostile.csv"
    name = HOSTILE.replace('"', '""')
    path.write_text(table(60, f'time,"{name}",{HOSTILE[:12]}'))
    forecast(tab, path)
    assert tab.value(STATE) == "done" and HOSTILE in tab.value("sensors[0].name")
    assert tab.text("#name") == HOSTILE
    assert tab.value("document.body.dataset.hit ?? ''") == "" and not tab.complaints


@needs_chromium
@pytest.mark.long
def test_a_long_table_can_be_stopped_and_keeps_what_was_forecast(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    tab, path = opened(browser, page), tmp_path / "long.csv"
    n = 400_000
    path.write_text("time,v\n" + "".join(f"{i},{i % 97}\n" for i in range(n)))
    choose(tab, path)
    tab.until("sensors.length && sensors[0].n > 300")
    assert 0 <= tab.value("Number(document.querySelector('#progress').ariaValueNow)") < 100
    tab.value("document.querySelector('#cancel').click()")
    tab.until(f"{STATE} == 'done'")
    assert "stopped" in tab.text("#file-facts")
    assert 300 < tab.value("sensors[0].n") < n
    assert tab.value("sensors[0].n") == tab.value("tracks[0].nRows")
    assert tab.value("!document.querySelector('#save-rows').hidden")


@needs_chromium
@pytest.mark.long
def test_the_view_moves_by_keys_wheel_drag_and_two_fingers(browser: Browser, page: str) -> None:
    tab = opened(browser, page)
    sample(tab)
    tab.value("document.querySelector('#chart').focus()")
    first = span(tab)
    press(tab, "+")
    assert span(tab) == pytest.approx(0.6 * first)
    press(tab, "-")
    press(tab, "0")
    tab.until(f"{LABEL}.includes('All 2,364 rows')")
    press(tab, "End", 35)
    press(tab, "ArrowLeft", 37)
    tab.until("document.querySelector('#readout').innerText.startsWith('2024-06-08 22:00')")
    press(tab, "p")
    tab.until("document.querySelector('#readout').innerText.includes('▲')")
    tab.until("document.querySelector('#say').innerText.includes('▲')")  # it is read aloud
    press(tab, "Escape", 27)
    box = tab.value("(({ x, y, width, height }) => [x, y, width, height])"
                    "(document.querySelector('#chart').getBoundingClientRect())")  # fmt: skip
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    before = span(tab)
    tab.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-100)
    tab.until(f"chart.view[1] - chart.view[0] < {0.9 * before}")
    begin, width = tab.value("chart.view[0]"), span(tab)
    for kind, at in (("mousePressed", x), ("mouseMoved", x + 100), ("mouseReleased", x + 100)):
        tab.call(
            "Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=LEFT,
            clickCount=1,
        )  # fmt: skip
    tab.until(f"chart.view[0] < {begin - 0.05 * width}")
    assert span(tab) == pytest.approx(width)
    tab.call("Emulation.setTouchEmulationEnabled", enabled=True)
    for kind, apart in (("touchStart", 60), ("touchMove", 90), ("touchMove", 140), ("touchEnd", 0)):
        points = [{"x": x + side * apart, "y": y, "id": i} for i, side in enumerate((-1, 1))]
        touches = points if kind != "touchEnd" else []
        tab.call("Input.dispatchTouchEvent", type=kind, touchPoints=touches)
    tab.until(f"chart.view[1] - chart.view[0] < {0.7 * width}")
    assert not tab.complaints


AXE = "axe.run().then(found => found.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"


@needs_chromium
@needs_axe
@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900, 1.0), (390, 844, 2.0)], ids=["desktop", "phone"])
def test_axe_finds_nothing(
    browser: Browser, page: str, scheme: str, size: tuple[float, ...], tmp_path: Path
) -> None:
    """No state of the page breaks a rule of WCAG 2 that axe checks, contrast included."""
    axe = (TOOLS / "axe-core" / "axe.min.js").read_text()
    tab = opened(browser, page, *size, scheme=scheme)
    tab.call("Runtime.evaluate", expression=axe)
    assert later(tab, AXE) == []
    sample(tab)
    tab.value("for (const part of document.querySelectorAll('details')) part.open = true")
    assert later(tab, AXE) == []
    path = tmp_path / "house.csv"
    path.write_text(table())
    forecast(tab, path)
    assert later(tab, AXE) == []
    path = tmp_path / "words.csv"
    path.write_bytes(BAD["words.csv"][0])
    forecast(tab, path)
    assert later(tab, AXE) == []


@needs_chromium
@pytest.mark.long
def test_a_phone_shows_everything_without_scrolling_sideways(
    browser: Browser, page: str, tmp_path: Path
) -> None:
    tab, path = opened(browser, page, 360, 740, 2.0), tmp_path / "house.csv"
    path.write_text(table(header="time,a_name_without_any_space_that_is_far_too_long_for_it,b"))
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert tab.value(wide) == 0
    forecast(tab, path)
    assert tab.value(wide) == 0
    small = tab.value(
        "[...document.querySelectorAll('button, a.button, summary')].filter(node => "
        "node.offsetHeight && node.offsetHeight < 24).map(node => node.innerText)"
    )
    assert small == []  # WCAG 2.2: a target is at least 24 pixels high
