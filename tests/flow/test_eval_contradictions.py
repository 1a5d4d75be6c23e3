"""The shipped contradictions through a real home: by words alone, as it is on a machine without a model."""

import json

import pytest

from perdure.eval import contradictions


@pytest.fixture(scope="module")
def measured():
    return contradictions.run(vectors=False)


def test_cues_show_the_current_and_the_earlier_value(measured):
    recall = measured.figures["recall"]
    assert set(measured.figures) == {"keyword only", "recall"}
    assert recall["plain"]["current"] >= 0.7
    assert recall["history"]["both"] >= 0.7
    assert all(row["misled"] + row["current"] <= 1 + 1e-9 for row in recall.values())


def test_the_report_is_json_and_text(measured):
    assert json.loads(json.dumps(measured.figures))["recall"]["now"]["n"] == 65
    assert "newest first" in measured.text()
