from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sensors.sensor_gallery import (
    MARKS,
    MOST_BYTES,
    NAMES,
    PAGE,
    PICTURES,
    README_BYTES,
    README_PICTURE,
    n_alarms,
    smaller,
    table,
)

SCORES = {
    **{"mae": 1.0, "mae_beside": 2.0, "crps": 1.0, "crps_beside": 4.0, "gain": 0.5, "nats": -1.0},
    **{"holds_90": 0.9, "holds_50": 0.5, "rate_1e-3": 0.001},
}


def test_the_page_shows_each_sensor_with_a_small_picture() -> None:
    page = PAGE.read_text()
    assert page.split(MARKS[0])[1].split(MARKS[1])[0].count("\n| ") == len(NAMES) + 2
    for file in NAMES:
        assert f"](img/sensors/{file}.png)" in page
        assert (PICTURES / f"{file}.png").stat().st_size <= MOST_BYTES
    assert README_PICTURE.stat().st_size <= README_BYTES


def test_the_table_has_the_records_scores_in_the_pages_order() -> None:
    one = {"n_rows": 1000, "season": 24, "shipped": SCORES, "base": {**SCORES, "nats": -1.25}}
    ahead = {"24": {"crps": 3.0, "season_ago": 2.0}}
    series = {file: {**one, "ahead": ahead} for file in NAMES}
    series["co2_weekly"]["ahead"] = {}
    found = table(series, dict.fromkeys(NAMES, 2))
    assert [row[0] for row in found.rows] == list(NAMES.values())
    scores = ["1,000", "0.500", "0.250", "+0.50", "+0.250", "90.0 %", "50.0 %", "1.0e-03"]
    assert found.rows[0][1:] == [*scores, "24", "1.50", "2"]
    assert found.rows[-1][-2:] == ["", "2"]


def test_alarms_are_counted_in_a_file_of_forecasts(tmp_path: Path) -> None:
    written = tmp_path / "a.csv"
    written.write_text('time,value,alarm,event\n1,2,1,value\n2,"1",0,level shift\n3,4,,\n')
    assert n_alarms(written) == 1


def test_a_picture_is_made_as_small_as_asked_and_keeps_its_rare_colours() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.full((300, 1600, 3), 255, np.uint8)
    pixels[:, :, 2] = np.arange(1600) % 256
    pixels[150:158, 800:808] = (220, 40, 40)
    whole = io.BytesIO()
    image.fromarray(pixels).save(whole, format="png")
    small = smaller(whole.getvalue(), 20_000)
    assert len(small) <= 20_000
    shown = np.array(image.open(io.BytesIO(small)).convert("RGB")).astype(int)
    assert ((shown[..., 0] > 190) & (shown[..., 1] < 90) & (shown[..., 2] < 90)).any()
    with pytest.raises(ValueError, match="bytes"):
        smaller(whole.getvalue(), 10)
