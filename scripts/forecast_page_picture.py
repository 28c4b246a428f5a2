"""Take the picture of the page that forecasts a table, for docs/browser.md; it needs Chromium.

.venv/bin/edgefold build sensors --page --out sensors.html
.venv/bin/python scripts/forecast_page_picture.py sensors.html docs/img/forecast-page.png
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests/

from PIL import Image

from tests.browser import Tab, chromium


def main() -> None:
    """Open the page on its sample, and write a picture of its last alarm and what comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as browser:
        tab = Tab(browser, args.page.resolve().as_uri(), 1200, 860, scheme=args.scheme)
        tab.until("document.readyState == 'complete'")
        tab.value("document.querySelector('#sample').click()")
        tab.until("document.body.dataset.state == 'done'")
        tab.value("chart.setView(sensors[0].x(sensors[0].alarmRows.at(-1)) - 4e5, chart.ends[1])")
        time.sleep(1)
        tab.picture(args.png)
    with Image.open(args.png) as picture:  # 256 colours take a third of the bytes
        small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    small.save(args.png, optimize=True)


if __name__ == "__main__":
    main()
