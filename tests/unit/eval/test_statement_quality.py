import json

import pytest

from perdure.errors import UsageError
from perdure.eval import statement_quality
from perdure.eval.statement_quality import LabelledMessage, LabelSpan, compute_intervals, compute_shares, digest_text

TEXT = "I prefer tabs. Can you fix it? We decided on Postgres."
TABS, POSTGRES = LabelSpan(0, 14, "preference"), LabelSpan(31, 54, "decision")


def message(*spans):
    return LabelledMessage(TEXT, "beam", "dev", spans)


def test_right_missed_and_wrong_statements_are_counted():
    """Tabs are found, the question is wrong, Postgres is missed: precision 1/2, recall 1/2."""
    one = statement_quality.score_message(
        message(TABS, POSTGRES), [LabelSpan(0, 14, "fact"), LabelSpan(15, 30, "fact")]
    )
    assert one.right_spans == (LabelSpan(0, 14, "fact"),)
    assert one.met_labels == (TABS,)
    assert compute_shares([(1, 2, 1, 2)]) == (0.5, 0.5, 0.5)


def test_two_halves_of_a_sentence_are_right_and_meet_one_label():
    one = statement_quality.score_message(message(POSTGRES), [LabelSpan(31, 42), LabelSpan(42, 54)])
    assert (len(one.right_spans), len(one.met_labels)) == (2, 1)


def test_whole_message_is_not_its_sentence():
    """14 of 75 characters and more are shared: below a fifth."""
    text = TEXT + " " + "x" * 20
    one = statement_quality.score_message(LabelledMessage(text, "beam", "dev", (TABS,)), [LabelSpan(0, len(text))])
    assert (len(one.right_spans), len(one.met_labels)) == (0, 0)


def test_borderline_statement_is_neither_right_wrong_nor_missed():
    borderline = TABS._replace(is_borderline=True)
    found = statement_quality.score_message(message(borderline, POSTGRES), [TABS, LabelSpan(15, 30)])
    assert found.found_spans == (LabelSpan(15, 30),)
    assert (found.right_spans, found.met_labels, found.counted_labels) == ((), (), (POSTGRES,))


def test_shares_of_zero_are_zero():
    assert compute_shares([(0, 0, 0, 3)]) == (0.0, 0.0, 0.0)
    assert compute_shares([(0, 4, 0, 0)]) == (0.0, 0.0, 0.0)


def test_f1_lies_between():
    """3 of 4 right, 1 of 2 met: 2 · 0.75 · 0.5 / 1.25 = 0.6."""
    assert compute_shares([(3, 3, 1, 1), (0, 1, 0, 1)]) == pytest.approx((0.75, 0.5, 0.6))


def test_intervals_contain_their_estimate():
    found = compute_intervals([(1, 1, 1, 1), (0, 1, 0, 1)] * 10, n=200)
    for one in found.values():
        assert one.low < one.at == 0.5 < one.high


def test_the_shipped_labels_are_sound():
    """300 messages, no text; every span has a kind and lies in order; both halves have statements."""
    labels = [json.loads(line) for line in statement_quality.LABELS.read_text(encoding="utf-8").splitlines()]
    assert len({row["key"] for row in labels}) == len(labels) == 300
    assert {key for row in labels for key in row} == {"key", "source", "spans"}
    kinds = {"fact", "preference", "decision", "procedure", "event", "insight"}
    for row in labels:
        spans = [LabelSpan(*span) for span in row["spans"]]
        assert all(span.kind in kinds and 0 <= span.start < span.end for span in spans)
        assert spans == sorted(spans)
    for half in statement_quality.HALVES:
        wanted = [
            s for row in labels if statement_quality.get_half(row["key"]) == half for s in row["spans"] if len(s) == 3
        ]
        assert len(wanted) > 30


@pytest.fixture
def judged(tmp_path):
    """A set with one message that was judged and one that was not."""
    rows = [
        {"id": f"d{n}", "group": "g", "ts": "", "speaker": speaker, "text": f"{speaker}: {text}"}
        for n, (speaker, text) in enumerate([("user", TEXT), ("user", "hello"), ("assistant", "I prefer spaces.")])
    ]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "queries.jsonl").write_text("")
    labels = tmp_path / "labels.jsonl"
    row = {"key": digest_text(TEXT), "source": "beam", "spans": [list(TABS[:3]), list(POSTGRES[:3])]}
    labels.write_text(json.dumps(row) + "\n")
    return tmp_path, labels


def test_a_set_is_read_and_scored(judged):
    place, labels = judged
    rules = [LabelSpan(0, 14, "preference"), LabelSpan(15, 30, "fact")]
    found = statement_quality.run([place], find=lambda text: rules, labels=labels)
    row = found.figures["parts"]["all"]
    assert (row["n"], row["labels"], row["found"]) == (1, 2, 2)
    assert row["precision"]["at"] == row["recall"]["at"] == 0.5
    assert found.figures["kind"] == 1.0
    assert "beam" in found.text()


def test_errors_list_only_the_development_half(judged):
    """The digest of the message begins with a letter: it is held out."""
    place, labels = judged
    find = lambda text: [LabelSpan(15, 30, "fact")]  # noqa: E731
    assert statement_quality.get_half(digest_text(TEXT)) == "held_out"
    assert statement_quality.run([place], find=find, labels=labels).errors() == "none"
    with pytest.raises(UsageError, match="none of the labelled"):
        statement_quality.run([place], half="dev", find=find, labels=labels)
    one = statement_quality.score_message(message(TABS, POSTGRES), find(TEXT))
    assert statement_quality.StatementReport({}, [one]).errors().splitlines() == [
        'missed (preference): "I prefer tabs."',
        'missed (decision): "We decided on Postgres."',
        'wrong (fact): "Can you fix it?"',
    ]


def test_typed_text_is_read_from_transcripts(tmp_path):
    lines = [
        {"role": "user", "content": TEXT, "timestamp": "2026-01-01T10:00:00Z"},
        {"role": "assistant", "content": "Done.", "timestamp": "2026-01-01T10:00:01Z"},
    ]
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(statement_quality._iterate_typed_texts(tmp_path)) == [TEXT]
