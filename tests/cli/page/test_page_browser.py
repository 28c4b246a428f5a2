"""The page in Chromium: rows at a pace, a restart, a phone, hostile names, alarms, a lost loop."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import free_port, listens, mosquitto, until
from tests.browser import Browser, Tab, chromium, needs_chromium
from tests.page_loops import HOSTILE, RunningLoop, line_of, served, watched

pytestmark = [needs_chromium, pytest.mark.long]
N_SENSORS = 16
NAMES = [HOSTILE, *(f"house/{n}/temperature" for n in range(1, N_SENSORS))]
CHART = "document.querySelector('#chart .line').getAttribute('d').split('L').length"
CHOOSE = "[...document.querySelectorAll('.item')].find(e => e.innerText.includes({!r})).click()"
COLOURS = (
    *("ink", "soft", "blue", "red", "amber", "green", "page", "tile"),
    *("red-soft", "amber-soft", "blue-soft"),
)
HIT = "document.body.dataset.hit"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as browser:
        yield browser


class Paced:
    """Writes 50 rows a second of 16 sensors to a loop until the block ends."""

    def __init__(self, loop: RunningLoop, first: int):
        self.n, self._loop, self._ended = first, loop, threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._ended.wait(1 / 50):
            at, which = divmod(self.n, N_SENSORS)
            self._loop.write(line_of(NAMES[which], at, 20 + math.sin(at / 5 + which)))
            self.n += 1

    def __enter__(self) -> Paced:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def test_rows_of_a_pipe_are_drawn_also_after_a_restart(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    port = free_port()
    loop = RunningLoop(tmp_path, port)
    try:
        until(lambda: listens(port), "the page")
        tab = Tab(browser, f"http://127.0.0.1:{port}/")
        tab.until("document.querySelector('#empty-title').innerText == 'Waiting for the first row'")
        early = range(40 * N_SENSORS)
        loop.write(
            "".join(line_of(NAMES[n % N_SENSORS], n // N_SENSORS, 20 + n % 3) for n in early)
        )
        with Paced(loop, len(early)) as paced:
            tab.until(f"document.querySelectorAll('.item').length == {N_SENSORS}")
            tab.value(CHOOSE.format("house/3/"))
            tab.until("document.querySelector('#name').innerText == 'house/3/temperature'")
            n_points = tab.until(f"{CHART} >= 40 && {CHART}")
            tab.until(f"{CHART} > {n_points}")
            tab.until("document.querySelectorAll('#meters .meter').length == 2")
            tab.until("document.querySelector('#learned').innerText.includes('1 minute')")
            tab.until("document.querySelector('#link').dataset.state == 'live'")
        loop.stop()
        tab.until("document.querySelector('#link').dataset.state == 'lost'")
        assert "ended" in tab.text("#banner-text")
        loop = RunningLoop(tmp_path, port)
        tab.until("document.querySelector('#banner-text').innerText.includes('started again')")
        n_points = tab.until(f"document.querySelectorAll('.item').length == {N_SENSORS} && {CHART}")
        assert n_points >= 40  # the rows of the run before
        with Paced(loop, paced.n + 10 * N_SENSORS):
            tab.until("document.querySelectorAll('#chart .restart').length == 1")
            tab.until("document.querySelector('#banner-text').innerText.includes('snapshot')")
        assert tab.text("#name") == "house/3/temperature"
        loop.stop()
        assert tab.value(HIT) is None
        assert tab.complaints == []
    finally:
        loop.close()


def test_the_page_says_since_when_the_broker_is_away(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    paho = pytest.importorskip("paho.mqtt.publish", reason="paho-mqtt is not installed")
    port, state = free_port(), "document.querySelector('#link').dataset.state == {!r}"
    with mosquitto(tmp_path, "log_type all") as broker:
        loop = RunningLoop(tmp_path, port, "--input", f"mqtt://127.0.0.1:{broker.port}/a")
        try:
            log = tmp_path / "mosquitto.log"
            until(lambda: "Sending SUBACK to edgefold-" in log.read_text(), "a subscription")
            broker.stop()
            tab = Tab(browser, f"http://127.0.0.1:{port}/")
            tab.until(state.format("away"))
            assert "The broker is away since" in tab.text("#link-text")
            tab.until("document.querySelector('#empty-text').innerText.includes('is away since')")
            broker.start()
            tab.until(f"!({state.format('away')})")
            paho.single("a", '{"time": 1700000000, "value": 1}', 1, port=broker.port)
            tab.until("document.querySelector('#loop').innerText.includes('1 row since')")
            assert "away" not in tab.text("#loop") + tab.text("#link-text")
            broker.stop()
            tab.until("document.querySelector('#loop').innerText.includes('the broker is away')")
            assert "a day at this rate" not in tab.text("#loop")
            assert tab.complaints == []
        finally:
            loop.close()


def test_a_hostile_name_is_text_everywhere(browser: Browser) -> None:
    with served() as page:
        tab = Tab(browser, page.address.url)
        for n in range(40):
            page.watcher.row(watched("b", n))
            page.watcher.row(watched(HOSTILE, n, HOSTILE if n == 30 else ""))
        page.watcher.refused(HOSTILE, 9, f"the row was refused: {HOSTILE}", "refused")
        page.watcher.tell(HOSTILE)
        tab.until("document.querySelectorAll('.item').length == 2")
        tab.value(CHOOSE.format("<img"))
        tab.until("document.querySelector('#alarms b')")
        tab.until("document.querySelector('#refused li span')")
        tab.value("document.querySelector('#rows-details').open = true")
        tab.until("document.querySelectorAll('#rows tr').length == 40")
        tab.value("document.querySelectorAll('#whose button')[1].click()")
        tab.until("document.querySelector('#alarms button')")
        for place in ("#name", ".item-name", "#alarms b", "#alarms button", "#refused li"):
            assert HOSTILE in tab.text(place)
        assert HOSTILE in tab.value("document.title")
        assert tab.value("document.querySelectorAll('img, script').length") == 1  # our own script
        assert tab.value(HIT) is None
        assert tab.complaints == []


@pytest.mark.parametrize("n_sensors", [1, 3])
def test_a_phone_needs_no_scrolling_to_the_side(browser: Browser, n_sensors: int) -> None:
    fits = "document.documentElement.scrollWidth <= 320"
    with served() as page:
        tab = Tab(browser, page.address.url, 320, 640, 2.0)
        tab.resize(320, 640, 2.0, mobile=True)
        tab.until("document.querySelector('#empty').offsetHeight > 0 || true")
        assert tab.value(fits)
        names = ["x" * 100, "y " * 50, "z"][:n_sensors] if n_sensors > 1 else [""]
        for n in range(60):
            for name in names:
                missing = 50 * (n > 40)
                row = watched(name, n, "level shift" if n == 50 else "", 1e8 + n, missing)
                page.watcher.row(row)
        page.watcher.refused("z", 9, "w" * 300, "refused")
        if n_sensors > 1:
            tab.until("document.querySelectorAll('.item').length == 3")
            assert tab.value(fits)
            assert tab.value("document.querySelector('main').offsetHeight") == 0
            tab.value(CHOOSE.format("x"))
        tab.until(f"{CHART} > 50")
        tab.until("document.querySelectorAll('#chart .gap').length == 1")
        tab.until("document.querySelector('#alarms b')")
        tab.value("document.querySelector('#rows-details').open = true")
        tab.until("document.querySelectorAll('#rows tr').length > 1")
        assert tab.value(fits)
        if n_sensors > 1:
            tab.value("document.querySelector('#back').click()")
            tab.until("document.querySelector('#list').offsetHeight > 0")


def test_an_alarm_is_drawn_named_and_announced(browser: Browser) -> None:
    with served() as page:
        tab = Tab(browser, page.address.url)
        for n in range(40):
            page.watcher.row(watched("", n))
        tab.until(f"{CHART} == 40")
        assert tab.value("document.querySelector('.side').offsetHeight") == 0  # one sensor, no list
        page.watcher.row(watched("", 40, "drift"))
        tab.until("document.querySelector('#state').innerText == '▲ drift'")
        tab.until("document.querySelector('#say').innerText.startsWith('Alarm: drift of a.csv')")
        tab.until("document.querySelector('#chart .alarm-text').textContent == 'drift'")
        assert "begun 4 rows before" in tab.text("#alarms")
        assert tab.value("document.title").startswith("▲")
        assert "1 alarm" in tab.value("document.querySelector('#chart-text').textContent")


def test_the_chart_is_read_by_keyboard(browser: Browser) -> None:
    with served() as page:
        tab = Tab(browser, page.address.url)
        for n in range(40):
            page.watcher.row(watched("", n, value=float(n)))
        tab.until(f"{CHART} == 40")
        tab.value("document.querySelector('#chart').focus()")
        for _ in range(2):
            tab.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
        tab.until("document.querySelector('#readout b').innerText.startsWith('37')")
        assert tab.value("document.querySelector('#readout').getAttribute('aria-live')") == "polite"
        assert tab.value("document.querySelectorAll('#chart .cursor').length") == 1


def test_sensors_are_found_by_name_and_only_visible_ones_are_drawn(browser: Browser) -> None:
    with served() as page:
        tab = Tab(browser, page.address.url, 1280, 700)
        for n in range(3):
            for k in range(1000):
                page.watcher.row(watched(f"site/{k}", n, "value" if k == 7 and n == 2 else ""))
        tab.until("document.querySelectorAll('.item').length == 1000")
        tab.until("document.querySelectorAll('.spark path').length > 5")
        assert tab.value("document.querySelectorAll('.spark path').length") < 100
        tab.value("document.querySelectorAll('#chips button')[1].click()")
        tab.until("document.querySelectorAll('.item').length == 1")
        tab.value("document.querySelectorAll('#chips button')[0].click()")
        tab.value(
            "{const s = document.querySelector('#search'); s.value = 'site/99';"
            "s.dispatchEvent(new Event('input'))}"
        )
        tab.until("document.querySelectorAll('.item').length == 11")


def test_a_token_opens_the_page_and_leaves_the_address(browser: Browser) -> None:
    token = "a-token-of-24-characters"
    with served(token) as page:
        tab = Tab(browser, page.address.url)
        tab.until("document.body.innerText.includes('token')")
        tab = Tab(browser, page.url)
        tab.until("document.querySelector('#link')?.dataset.state == 'live'")
        assert tab.value("location.href") == page.address.url


def test_dark_and_light_have_enough_contrast(browser: Browser) -> None:
    """WCAG 2: texts have 4.5 to 1 on their grounds, marks and lines of the chart 3 to 1."""
    with served() as page:
        for scheme in ("light", "dark"):
            tab = Tab(browser, page.address.url, scheme=scheme)
            tab.until("document.querySelector('#link')?.dataset.state == 'live'")
            colours = {
                name: tab.value(f"getComputedStyle(document.body).getPropertyValue('--{name}')")
                for name in COLOURS
            }
            for text in ("ink", "soft", "blue", "red", "amber"):
                for ground in ("page", "tile", f"{text}-soft"):
                    if ground in colours:
                        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
            assert contrast(colours["ink"], colours["blue-soft"]) >= 4.5
            assert contrast(colours["soft"], colours["blue-soft"]) >= 4.5
            assert contrast(colours["green"], colours["page"]) >= 3


def contrast(first: str, second: str) -> float:
    """The ratio of contrast of two colours #rrggbb, by WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour.strip()[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)
