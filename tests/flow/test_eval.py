"""The shipped questions through a real home: keyword search alone, as it is on a machine without a model."""

import json

import pytest

from perdure.eval import report


@pytest.fixture(scope="module")
def measured():
    return report.run()


def test_recall_beats_every_row_without_it(measured):
    systems = measured.figures["systems"]
    assert systems["recall"]["R@10"] > systems["keyword only"]["R@10"] > systems["grep"]["R@10"]
    assert systems["no memory"]["R@10"] == 0
    assert systems["full context"]["packed"] == 1


def test_it_speaks_when_it_knows_and_is_silent_in_a_strangers_memory(measured):
    silence = measured.figures["silence"]
    assert silence["answerable"] <= 0.03
    assert silence["elsewhere"] >= 0.4


def test_the_report_is_json_and_text(measured):
    assert json.loads(json.dumps(measured.figures))["n_docs"] == 118
    assert "recall" in measured.text()
