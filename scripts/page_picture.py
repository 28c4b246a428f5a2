"""Take the picture of a loop's page that docs/running.md shows; it needs Chromium.

.venv/bin/python scripts/page_picture.py docs/img/page.png
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests/

from PIL import Image

from tests.brokers import free_port, listens, until
from tests.browser import Tab, chromium
from tests.page_loops import RunningLoop

N_ROWS, STEP_S, SEASON = 900, 60, 144
SENSORS = {  # level, swing and noise
    "boiler/flow": (52.0, 9.0, 0.5),
    "boiler/return": (38.0, 6.0, 0.4),
    "cellar/humidity": (61.0, 4.0, 0.3),
    "garden/soil moisture": (33.0, 2.0, 0.05),
    "hall/co2": (640.0, 170.0, 12.0),
    "hall/temperature": (21.0, 1.2, 0.05),
    "pump/current": (4.1, 0.6, 0.04),
    "roof/temperature": (14.0, 6.0, 0.25),
    "roof/wind": (5.0, 1.5, 0.8),
    "tank/level": (2.4, 0.8, 0.01),
}
SHOWN = "hall/co2"


def value_of(name: str, n: int, chance: random.Random) -> float:
    """Return the n-th value of a sensor; three sensors have a fault."""
    level, swing, noise = SENSORS[name]
    value = level + swing * math.sin(2 * math.pi * n / SEASON + level) + chance.gauss(0, noise)
    if name == SHOWN and n in (N_ROWS - 120, N_ROWS - 119):
        return value + 420
    if name == "pump/current" and n >= N_ROWS - 8:
        return value + 1.9
    return value


def rows(end: float) -> str:
    """Return the rows of all sensors, the last one at `end`, in seconds since 1970."""
    chance, lines = random.Random(4), list[str]()
    for n in range(N_ROWS):
        for name in SENSORS:
            if name == SHOWN and N_ROWS - 215 <= n < N_ROWS - 190:
                continue
            moment = int(end) - (N_ROWS - 1 - n) * STEP_S
            lines.append(f"{name},{moment},{value_of(name, n, chance):.3f}\n")
    return "".join(lines)


def main() -> None:
    """Run a loop on made-up rows, and write what a browser shows of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("png", type=Path)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int, default=940)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        loop = RunningLoop(Path(folder), port, "--every", "500")
        try:
            until(lambda: listens(port), "the page")
            loop.write(rows(time.time()))
            with chromium(Path(folder) / "profile") as browser:
                url = f"http://127.0.0.1:{port}/#{SHOWN}"
                tab = Tab(browser, url, args.width, args.height, scheme=args.scheme)
                last = f"status?.loop?.rows == {N_ROWS * len(SENSORS) - 25}"
                tab.until(f"{last} && document.querySelectorAll('.meter').length == 2")
                tab.until("document.querySelectorAll('.spark path').length >= 9")
                tab.picture(args.png)
                with Image.open(args.png) as picture:  # 256 colours take a third of the bytes
                    small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
                small.save(args.png, optimize=True)
        finally:
            loop.close()


if __name__ == "__main__":
    main()
