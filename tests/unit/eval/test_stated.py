import json

import pytest

from perdure.errors import UsageError
from perdure.eval.stated import score
from perdure.eval.stated.score import Labelled, Span, digest, intervals, shares

TEXT = "I prefer tabs. Can you fix it? We decided on Postgres."
TABS, POSTGRES = Span(0, 14, "preference"), Span(31, 54, "decision")


def message(*spans):
    return Labelled(TEXT, "beam", "dev", spans)


def test_what_is_found_right_missed_and_wrong():
    """Tabs are found, the question is wrong, Postgres is missed: precision 1/2, recall 1/2."""
    one = score.score(message(TABS, POSTGRES), [Span(0, 14, "fact"), Span(15, 30, "fact")])
    assert one.right == (Span(0, 14, "fact"),)
    assert one.met == (TABS,)
    assert shares([(1, 2, 1, 2)]) == (0.5, 0.5, 0.5)


def test_two_halves_of_a_sentence_are_right_and_meet_one_label():
    one = score.score(message(POSTGRES), [Span(31, 42), Span(42, 54)])
    assert (len(one.right), len(one.met)) == (2, 1)


def test_the_whole_message_is_not_its_sentence():
    """14 of 75 characters and more are shared: below a fifth."""
    text = TEXT + " " + "x" * 20
    one = score.score(Labelled(text, "beam", "dev", (TABS,)), [Span(0, len(text))])
    assert (len(one.right), len(one.met)) == (0, 0)


def test_what_is_borderline_is_neither_right_nor_wrong_nor_missed():
    borderline = TABS._replace(is_borderline=True)
    found = score.score(message(borderline, POSTGRES), [TABS, Span(15, 30)])
    assert found.found == (Span(15, 30),)
    assert (found.right, found.met, found.wanted) == ((), (), (POSTGRES,))


def test_shares_of_nothing_are_nothing():
    assert shares([(0, 0, 0, 3)]) == (0.0, 0.0, 0.0)
    assert shares([(0, 4, 0, 0)]) == (0.0, 0.0, 0.0)


def test_f1_lies_between():
    """3 of 4 right, 1 of 2 met: 2 · 0.75 · 0.5 / 1.25 = 0.6."""
    assert shares([(3, 3, 1, 1), (0, 1, 0, 1)]) == pytest.approx((0.75, 0.5, 0.6))


def test_intervals_hold_what_they_estimate():
    found = intervals([(1, 1, 1, 1), (0, 1, 0, 1)] * 10, n=200)
    for one in found.values():
        assert one.low < one.at == 0.5 < one.high


def test_the_shipped_labels_are_sound():
    """300 messages, no text; every span has a kind and lies in order; both halves have statements."""
    labels = [json.loads(line) for line in score.LABELS.read_text(encoding="utf-8").splitlines()]
    assert len({row["key"] for row in labels}) == len(labels) == 300
    assert {key for row in labels for key in row} == {"key", "source", "spans"}
    kinds = {"fact", "preference", "decision", "procedure", "event", "insight"}
    for row in labels:
        spans = [Span(*span) for span in row["spans"]]
        assert all(span.kind in kinds and 0 <= span.start < span.end for span in spans)
        assert spans == sorted(spans)
    for half in score.HALVES:
        wanted = [s for row in labels if score.half_of(row["key"]) == half for s in row["spans"] if len(s) == 3]
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
    row = {"key": digest(TEXT), "source": "beam", "spans": [list(TABS[:3]), list(POSTGRES[:3])]}
    labels.write_text(json.dumps(row) + "\n")
    return tmp_path, labels


def test_a_set_is_read_and_scored(judged):
    place, labels = judged
    rules = [Span(0, 14, "preference"), Span(15, 30, "fact")]
    found = score.run([place], find=lambda text: rules, labels=labels)
    row = found.figures["parts"]["all"]
    assert (row["n"], row["labels"], row["found"]) == (1, 2, 2)
    assert row["precision"]["at"] == row["recall"]["at"] == 0.5
    assert found.figures["kind"] == 1.0
    assert "beam" in found.text()


def test_errors_are_those_of_the_half_that_may_be_seen(judged):
    """The digest of the message begins with a letter: it is held out."""
    place, labels = judged
    find = lambda text: [Span(15, 30, "fact")]  # noqa: E731
    assert score.half_of(digest(TEXT)) == "held_out"
    assert score.run([place], find=find, labels=labels).errors() == "none"
    with pytest.raises(UsageError, match="none of the labelled"):
        score.run([place], half="dev", find=find, labels=labels)
    one = score.score(message(TABS, POSTGRES), find(TEXT))
    assert score.Report({}, [one]).errors().splitlines() == [
        'missed (preference): "I prefer tabs."',
        'missed (decision): "We decided on Postgres."',
        'wrong (fact): "Can you fix it?"',
    ]


def test_what_a_person_typed_is_read_from_transcripts(tmp_path):
    lines = [
        {"role": "user", "content": TEXT, "timestamp": "2026-01-01T10:00:00Z"},
        {"role": "assistant", "content": "Done.", "timestamp": "2026-01-01T10:00:01Z"},
    ]
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(score._typed(tmp_path)) == [TEXT]
