"""The shipped questions through a real home: keyword search alone, as it is on a machine without a model."""

import json
from datetime import UTC, datetime

import pytest

from perdure.archive.journal import Journal
from perdure.eval import recall_quality
from perdure.index.memory_rows import to_replay_event


@pytest.fixture(scope="module")
def measured():
    return recall_quality.run()


def test_recall_beats_every_other_system(measured):
    systems = measured.figures["systems"]
    assert systems["recall"]["R@10"] > systems["keyword only"]["R@10"] > systems["grep"]["R@10"]
    assert systems["no memory"]["R@10"] == 0
    assert systems["full context"]["packed"] == 1


def test_recall_answers_known_and_stays_silent_on_foreign_memory(measured):
    silence = measured.figures["silence"]
    assert silence["answerable"] <= 0.03
    assert silence["elsewhere"] >= 0.4


def test_the_report_is_json_and_text(measured):
    assert json.loads(json.dumps(measured.figures))["n_docs"] == 118
    assert "recall" in measured.text()


def test_measurement_is_kept_and_read_again(measured, tmp_path):
    journal = Journal(tmp_path / "journal", home=tmp_path)
    recall_quality.store_measurement(journal, measured, machine="desk", now=datetime(2026, 3, 1, tzinfo=UTC))
    (time,) = recall_quality.read_measurements(map(to_replay_event, journal.read(type_=recall_quality.MEASURED_TYPE)))
    assert (time.at, time.machine, time.model) == (datetime(2026, 3, 1, tzinfo=UTC), "desk", measured.figures["model"])
    assert time.figures["n_questions"] == measured.figures["n_questions"]
    ours, whole = time.figures["systems"]["recall"], measured.figures["systems"]["recall"]
    assert ours == {name: round(whole[name], 4) for name in recall_quality.STORED_MEASURES}
    assert set(time.figures["systems"]) == set(recall_quality.STORED_SYSTEMS)
    assert time.figures["categories"]["fact"]["recall"]["R@10"] == round(
        measured.figures["categories"]["fact"]["R@10"], 4
    )
    assert recall_quality.compare_measurements(time, time) == "the same"
