import hashlib
import json
from collections import Counter
from pathlib import Path

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
    borderline = TABS._replace(strength="borderline")
    found = statement_quality.score_message(message(borderline, POSTGRES), [TABS, LabelSpan(15, 30)])
    assert found.found_spans == (LabelSpan(15, 30),)
    assert (found.right_spans, found.met_labels, found.explicit_labels) == ((), (), (POSTGRES,))


def test_plain_statement_is_right_when_it_is_found_and_never_missed():
    plain = TABS._replace(strength="plain")
    found = statement_quality.score_message(message(plain, POSTGRES), [TABS])
    assert (found.right_spans, found.met_labels, found.explicit_labels) == ((TABS,), (), (POSTGRES,))
    missed = statement_quality.score_message(message(plain), [])
    assert (missed.right_spans, missed.explicit_labels) == ((), ())


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


KINDS = {"fact", "preference", "decision", "procedure", "event", "insight"}


NOTED = Path(__file__).parents[3] / "docs" / "evaluation" / "stated.md"


def rows_of(name):
    lines = (statement_quality.SHIPPED / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def check_spans(row):
    spans = [LabelSpan(*span) for span in row["spans"]]
    assert all(span.kind in KINDS and 0 <= span.start < span.end for span in spans)
    assert all(span.strength in ("", "plain", "borderline") for span in spans)
    assert spans == sorted(spans)
    return spans


def test_the_shipped_labels_are_sound():
    """399 messages, no text; every span has a kind and lies in order; both halves have explicit and plain ones."""
    labels = rows_of("labels.jsonl")
    assert len({row["key"] for row in labels}) == len(labels) == 399
    assert {key for row in labels for key in row} == {"key", "source", "spans"}
    counts = Counter(
        (statement_quality.get_half(row["key"]), span.strength) for row in labels for span in check_spans(row)
    )
    for half in statement_quality.HALVES:
        assert counts[half, ""] > 20
        assert counts[half, "plain"] > 30


def test_frozen_files_match_their_digests():
    """The files are those that were there before the rules that they measure: their digests are noted in the docs."""
    noted = NOTED.read_text(encoding="utf-8")
    for name in ("labels.jsonl", "written.jsonl"):
        assert hashlib.sha256((statement_quality.SHIPPED / name).read_bytes()).hexdigest() in noted, name


def test_the_written_messages_are_sound():
    """Half are English; each half has 60 messages to keep and 50 to leave, and every span lies on words."""
    rows = rows_of("written.jsonl")
    assert len({row["text"] for row in rows}) == len(rows) >= 240
    assert {row["language"] for row in rows} == {"en", "de", "fr", "es", "zh", "ja"}
    assert 0.4 < sum(row["language"] == "en" for row in rows) / len(rows) < 0.6
    explicit, empty = Counter(), Counter()
    for row in rows:
        half = statement_quality.get_half(digest_text(row["text"]))
        spans = check_spans(row)
        assert all(row["text"][span.start : span.end] == row["text"][span.start : span.end].strip() for span in spans)
        assert all(span.end <= len(row["text"]) for span in spans)
        explicit[half] += any(span.is_explicit for span in spans)
        empty[half] += not spans
    for half in statement_quality.HALVES:
        assert explicit[half] >= 60
        assert empty[half] >= 50


@pytest.fixture
def judged(tmp_path):
    """A set with one message that was judged and one that was not."""
    rows = [
        {"id": f"d{n}", "group": "g", "ts": "", "speaker": speaker, "text": f"{speaker}: {text}"}
        for n, (speaker, text) in enumerate([("user", TEXT), ("user", "hello"), ("assistant", "I prefer spaces.")])
    ]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "queries.jsonl").write_text("")
    row = {"key": digest_text(TEXT), "source": "beam", "spans": [list(TABS[:3]), list(POSTGRES[:3])]}
    (tmp_path / "labels.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "written.jsonl").write_text("")
    return tmp_path


def test_a_set_is_read_and_scored(judged):
    rules = [LabelSpan(0, 14, "preference"), LabelSpan(15, 30, "fact")]
    found = statement_quality.run([judged], find=lambda text: rules, folder=judged)
    row = found.figures["parts"]["all"]
    assert (row["n"], row["labels"], row["found"]) == (1, 2, 2)
    assert row["precision"]["at"] == row["recall"]["at"] == 0.5
    assert found.figures["kind"] == 1.0
    assert "beam" in found.text()


def test_written_messages_are_scored_without_a_path_and_counted_apart(judged):
    spans = [[0, 14, "preference"], [31, 54, "decision", "plain"]]
    row = {"text": TEXT, "language": "en", "spans": spans}
    (judged / "written.jsonl").write_text(json.dumps(row) + "\n")
    found = statement_quality.run(find=lambda text: [LabelSpan(31, 54)], folder=judged)
    assert list(found.figures["parts"]) == ["written", "written en", "written held_out"]
    row = found.figures["parts"]["written"]
    assert (row["n"], row["labels"], row["found"]) == (1, 1, 1)
    assert (row["precision"]["at"], row["recall"]["at"]) == (1.0, 0.0)
    both = statement_quality.run([judged], find=lambda text: [], folder=judged)
    assert both.figures["parts"]["all"] == both.figures["parts"]["beam"]
    assert statement_quality.run(half="dev", find=lambda text: [], folder=judged).figures["parts"] == {}


def test_share_of_nothing_is_a_dash(judged):
    row = {"text": TEXT, "language": "en", "spans": [[0, 14, "preference", "plain"]]}
    (judged / "written.jsonl").write_text(json.dumps(row) + "\n")
    table = statement_quality.run(find=lambda text: [LabelSpan(0, 14)], folder=judged).text().splitlines()
    assert table[1].split() == ["written", "1", "0", "1", "100.0", "[100.0,", "100.0]", "–", "–"]


def test_errors_list_only_the_development_half(judged):
    """The digest of the message begins with a letter: it is held out."""
    find = lambda text: [LabelSpan(15, 30, "fact")]  # noqa: E731
    assert statement_quality.get_half(digest_text(TEXT)) == "held_out"
    assert statement_quality.run([judged], find=find, folder=judged).errors() == "none"
    with pytest.raises(UsageError, match="none of the labelled"):
        statement_quality.run([judged], half="dev", find=find, folder=judged)
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
