import json
from datetime import UTC, datetime

import pytest

from perdure.errors import UsageError
from perdure.eval.datasets import load_dataset, parse_stamp, read_rows
from perdure.eval.recall_quality import SHIPPED, is_answerable


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("March-15-2024", datetime(2024, 3, 15, tzinfo=UTC)),
        ("2024年04月01日 周一 08:06", datetime(2024, 4, 1, 8, 6, tzinfo=UTC)),
        ("2026-02-03T09:00:00+00:00", datetime(2026, 2, 3, 9, tzinfo=UTC)),
        ("", None),
        ("some day", None),
    ],
)
def test_time_stamps(stamp, expected):
    assert parse_stamp(stamp) == expected


def test_locomo_as_published(tmp_path):
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ada",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "Hi"},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Look", "blip_caption": "a boat"},
            ],
            "session_2_date_time": "1:00 pm on 9 May, 2023",
            "session_2": [{"speaker": "Ada", "dia_id": "D2:1", "text": "Bye"}],
        },
        "qa": [
            {"question": "What did Bo show?", "answer": "a boat", "evidence": ["D1:2; D2:1"], "category": 1},
            {"question": "No evidence?", "answer": "-", "evidence": [], "category": 4},
        ],
    }
    path = tmp_path / "locomo10.json"
    path.write_text(json.dumps([sample]))
    data = load_dataset(path)
    assert [doc.doc_id for doc in data.docs] == ["conv-1/D1:1", "conv-1/D1:2", "conv-1/D2:1"]
    assert data.docs[1].text == "Bo: Look [image: a boat]"
    assert data.docs[2].session == "conv-1/S2"
    assert [(q.gold, q.category) for q in data.questions] == [(("conv-1/D1:2", "conv-1/D2:1"), "1-multi-hop")]


def test_unknown_dataset_is_refused(tmp_path):
    with pytest.raises(UsageError):
        load_dataset(tmp_path)


def test_the_shipped_set_is_whole():
    data = load_dataset(SHIPPED)
    known = {doc.doc_id: doc.group for doc in data.docs}
    assert len(data.questions) >= 100
    assert len({q.qid for q in data.questions}) == len(data.questions)
    assert all(known[name] == q.group for q in data.questions for name in q.gold)
    assert sum(not is_answerable(q) for q in data.questions) >= 10
    assert all(doc.stated_at for doc in data.docs)


@pytest.mark.parametrize("content", ["no JSON", '{"a": 1}', '[{"sample_id": "x"}]', "\udcff"])
def test_a_file_that_is_no_set_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "odd.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"odd\.json"):
        load_dataset(path)


def test_a_line_that_is_no_json_is_named(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text('{"a": 1}\n\nnonsense\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"questions\.jsonl, line 3"):
        list(read_rows(path))
