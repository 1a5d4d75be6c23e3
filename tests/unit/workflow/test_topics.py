"""How turns are sorted into topics."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.index.workflow_rows import PlacedTurn, StoredTurn
from perdure.workflow import topics
from perdure.workflow.topics import Topic

MINUTE_MS = 60_000


def place(*minutes: float) -> list[PlacedTurn]:
    return [PlacedTurn(int(minute * MINUTE_MS), 0, f"t{n}", n, None) for n, minute in enumerate(minutes)]


def stored(n: int, text: str, *, result: str = "") -> StoredTurn:
    return StoredTurn(n, f"t{n}", n * 1000, "wf", text, "note", result)


def at(cosine: float) -> np.ndarray:
    """A vector whose cosine with (1, 0) is this."""
    return np.array([cosine, (1 - cosine**2) ** 0.5], np.float32)


def begun(vector: np.ndarray, *, stems: tuple[str, ...] = ()) -> Topic:
    return Topic(first="x", started_ms=0, centre=np.asarray(vector, np.float32).tobytes(), stems=list(stems))


@pytest.mark.parametrize(
    ("minutes", "now", "n_due"),
    [
        ([], 0, 0),
        (range(19), 20, 0),  # fewer than a block, and the agent goes on
        (range(20), 20, 20),  # a block
        (range(47), 48, 40),  # two blocks; seven wait
        (range(5), 34, 5),  # 30 minutes after the last: all
        (range(5), 33, 0),
        ([0, 1, 2, 60, 61], 62, 3),  # a pause inside: what came before it
        ([0, 1, 2, *range(60, 83)], 84, 23),  # a block is counted from the pause on
    ],
)
def test_turns_are_due_in_blocks_or_after_a_pause(minutes, now, n_due):
    assert topics.count_due(place(*minutes), now * MINUTE_MS) == n_due


@pytest.mark.parametrize(
    ("cosine", "verdict", "goes_on"),
    [(0.73, False, True), (0.71, False, False), (0.71, True, True), (0.53, True, True), (0.51, True, False)],
)
def test_the_judge_decides_between_the_bounds(cosine, verdict, goes_on):
    """From 0.72 on a turn goes on with a topic, below 0.52 it begins one, whatever the judge says."""
    topic = begun(np.array([1, 0]))
    subject = topics.read_subject(stored(1, "Anything at all."), at(cosine))
    chosen = topics.choose_topic(subject, [topic], "a model of nobody", lambda *_: verdict)
    assert (chosen is topic) is goes_on


def test_the_likest_topic_comes_first():
    near, far = begun(at(0.95)), begun(at(0.8))
    subject = topics.read_subject(stored(1, "Words."), np.array([1, 0], np.float32))
    assert topics.choose_topic(subject, [far, near], "m", lambda *_: False) is near


def test_a_model_is_measured_on_the_scale_of_the_bounds():
    """MiniLM gives unrelated texts 0.1: that is 0.4 here; 0.55 becomes 0.4 + 0.45 · 0.6 / 0.9 = 0.7; 1 stays 1."""
    centres = [np.asarray(at(cosine), np.float32).tobytes() for cosine in (0.1, 0.55, 1.0)]
    measured = topics.measure_likeness(np.array([1, 0], np.float32), centres, "all-MiniLM-L6-v2@384#ab")
    assert measured == pytest.approx([0.4, 0.7, 1.0], abs=1e-4)


def test_without_vectors_the_rules_decide():
    topic = Topic(first="x", started_ms=0)
    topics.add_to_topic(topic, topics.read_subject(stored(1, "The invoice parser drops the year of old invoices.")))
    same = topics.read_subject(stored(2, "Why does the invoice parser drop a year?"))
    other = topics.read_subject(stored(3, "Book a room in Lisbon for the spring meeting."))
    assert topics.choose_topic(same, [topic], "", topics.shares_subject) is topic
    assert topics.choose_topic(other, [topic], "", topics.shares_subject) is None


def test_importance_and_density_only_grow():
    topic = Topic(first="t1", started_ms=0)
    seen = []
    for n, text in enumerate(["ok", "We decided to store invoices in PostgreSQL 17.", "ok", "fine, go on"], start=1):
        topics.add_to_topic(topic, topics.read_subject(stored(n, text, result="done" if n == 2 else "")))
        seen.append((topic.importance, topic.density))
    assert seen == sorted(seen)
    assert seen[0][0] < 0.3 < 0.6 < seen[-1][0]


def test_a_summary_leaves_out_what_was_taken_back():
    turns = [
        stored(1, "The nightly build fails because the Docker cache is corrupt."),
        stored(2, "Asked the team about the nightly build."),
        stored(3, "The Docker cache was not the cause of the failing nightly build. The clock of runner 3 is wrong."),
    ]
    topic = Topic(first="t1", started_ms=0)
    topics.summarise(topic, turns)
    assert "clock of runner 3" in " ".join(topic.summary)
    assert "cache is corrupt" not in " ".join(topic.summary)
    ((old, new),) = topic.taken_back
    assert "cache is corrupt" in old and "not the cause" in new
