"""A few cases of each attack, so that the fuzzers stay alive; `make test-attack` runs all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from attack.brokers.servers import missing
from attack.changes.array_changes import read_arrays
from attack.changes.drafts import Draft
from attack.forks import play_all
from attack.kinds.bundles import unlike, unnamed
from attack.kinds.snapshots import sealed
from attack.outcomes import Outcome, Tally
from attack.subjects import QUICK, export_subjects
from attack.summary import BEGIN, END, page
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest_file import load_manifest

EVERYDAY = {
    **{"bundles": 60, "snapshots": 100, "exceptions": 20, "tables": 9, "signatures": 40},
    "provenance": 40,
}
IN_TURNS = {
    "bundles": 200,
    "builds": 60,
    "bundle_commands": 3,
    "imports": 8,
    "merge": 24,
    "rows": 1,
    "kills": 3,
    "broker_schedules": 4,
    "sensor_exceptions": 5,
    "sensor_threads": 2,
    "sensor_calls": 5,
    "torn": 2,
    "crash_states": 26,
    "environments": 1,
}
"""Cases of the kinds that take seconds."""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("subjects")
    export_subjects(folder, QUICK)
    yield folder


@pytest.mark.parametrize(
    ("kind", "n"),
    [
        *EVERYDAY.items(),
        *(pytest.param(*each, marks=pytest.mark.long) for each in IN_TURNS.items()),
    ],
)
def test_no_case_of_a_few_ends_as_it_must_not(kind: str, n: int, subjects: Path) -> None:
    if kind == "broker_schedules" and (lacking := missing()):
        pytest.skip(f"it needs {lacking}")
    tally = play_all(kind, subjects, n, 1)
    assert tally.failures(kind) == []


def test_a_bundle_that_was_written_unchanged_still_loads(subjects: Path, tmp_path: Path) -> None:
    draft = Draft.of(subjects / "gru")
    draft.changed["golden.npz"] = draft.bytes_of("golden.npz")
    draft.write(tmp_path)
    assert load_manifest(tmp_path).n_inputs == 1


def test_figures_are_compared_where_a_change_has_no_effect(subjects: Path) -> None:
    draft = Draft.of(subjects / "kalman")
    draft.form["model"]["summary"] = "another"
    figures = [np.array([1.0]), None]
    assert unlike(draft, figures, figures) == ""
    assert "other figures" in unlike(draft, figures, [np.array([1.0 + 1e-9]), None])
    assert "other figures" in unlike(draft, figures, [None, None])
    draft.changed["weights.bin"] = bytes(len(draft.bytes_of("weights.bin")))
    assert unlike(draft, figures, [np.array([2.0]), np.array([3.0])]) == ""
    assert "NaN" in unlike(draft, figures, [np.array([np.nan]), None])


def test_a_refusal_must_name_the_one_file_that_was_changed(subjects: Path) -> None:
    draft = Draft.of(subjects / "kalman")
    draft.changed["golden.npz"] = b"x"
    assert unnamed(draft, "b/update.onnx was changed") == "golden.npz"
    assert unnamed(draft, "b/golden.npz is not a zip file") == ""
    draft.form["schema"] = 7  # then the fault may be in the manifest
    assert unnamed(draft, "schema 7 is not known") == ""


def test_a_snapshot_that_was_sealed_unchanged_still_restores(
    subjects: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.npz"
    with Stream.open(subjects / "gru") as stream:
        stream.update([[1.0]], [[2.0]])
        state = stream.state()
        stream.save(path, {"own": np.arange(3)})
        path.write_bytes(sealed(read_arrays(path.read_bytes())))
        stream.reset()
        assert stream.restore(path)["own"].tolist() == [0, 1, 2]
        assert stream.n_points == 1
        for name, array in stream.state().items():
            np.testing.assert_array_equal(array, state[name])


def test_a_failure_is_counted_and_names_the_command_that_repeats_it() -> None:
    tally = Tally()
    for number, verdict in enumerate(["accepted", "wrong", "wrong", "refused"]):
        tally.add(number, Outcome(verdict, "x"))
    (line,) = tally.failures("rows")
    assert "python -m attack.replay rows 1" in line and "2 cases" in line
    assert tally.verdicts == {"accepted": 1, "refused": 1, "wrong": 2}


def test_the_page_holds_the_records_table_between_its_markers() -> None:
    tally = Tally()
    tally.add(0, Outcome("refused"))
    entry = {**tally.to_json(), "seconds": 60.0}
    record = {"seed": 1, "machine": {"python": "3"}, "kinds": {"torn": entry}}
    found = page(f"a\n{BEGIN}\nold\n{END}\nb\n", json.loads(json.dumps(record)))
    assert found.startswith("a\n") and found.endswith("b\n") and "old" not in found
    assert "| 1 | 1 refused | none | 1.0 |" in found
