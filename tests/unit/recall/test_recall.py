"""Recall over a memory of a few turns with written scores and vectors."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from perdure.recall.pack import explain_absence
from perdure.recall.plan import plan
from perdure.recall.rank import list_texts_to_embed, rank
from perdure.recall.recall import recall
from perdure.recall.recaller import RecallContext
from perdure.recall.tuning import DEFAULT, REFERENCE
from perdure.testing import START, WrittenCandidates

NOW = datetime(2026, 3, 10, tzinfo=UTC)


TURNS = {
    "t0": ("user", "We build a tide service for the harbour office."),
    "t1": ("assistant", "Where shall the heights be cached?"),
    "t2": ("user", "SQLite, not Postgres: nobody there will look after a database server."),
    "t3": ("assistant", "Understood, the cache is in place."),
    "t4": ("user", "The server listens on port 8417."),
    "t5": ("assistant", "Noted."),
    "t6": ("user", "Ismet wants it live before the spring tide."),
    "t7": ("assistant", "A dashboard could follow later."),
    "t8": ("user", "Change the port to 8642, the decoder took the old one."),
}


def _recall(message, memory=None, **options):
    return recall(memory or WrittenCandidates(TURNS), plan(message, now=NOW), RecallContext(**options))


def test_recall_finds_the_turn_with_its_source_and_reason():
    found = _recall("Why did we choose SQLite over Postgres?")
    cue = found.cues[0]
    assert (cue.turn_id, cue.role, cue.runtime, cue.machine) == ("t2", "user", "pi", "laptop")
    assert cue.stated_at == START + timedelta(days=2)
    assert any("contains your words" in reason for reason in cue.why)
    assert found.n_tokens == sum(cue.n_tokens for cue in found.cues) <= DEFAULT.max_tokens


def test_recall_is_silent_about_unknown_things():
    found = _recall("Which violin did Paganini play in Genoa?")
    assert found.cues == ()
    assert found.silent


def test_recall_is_silent_without_a_question():
    memory = WrittenCandidates(TURNS)
    assert _recall("ok, go on", memory).silent == "the message asks for nothing"
    assert memory.asked == []


def test_the_same_question_gives_the_same_answer():
    one, other = _recall("Which port does the server use now?"), _recall("Which port does the server use now?")
    assert one.cues == other.cues


def test_cue_held_by_the_session_is_not_repeated():
    first = _recall("Which port does the server use?")
    again = _recall("Which port does the server use?", session_turn_ids=[cue.turn_id for cue in first.cues])
    assert not {cue.turn_id for cue in first.cues} & {cue.turn_id for cue in again.cues}


def test_keyword_hit_gets_its_vector_score():
    """Row X10: t8 is the worst by vector and outside the one vector candidate, yet its cosine counts: 0.6 · 0.7."""
    rows = {name: [1.0, 0.0] for name in TURNS} | {"t8": [0.6, 0.8]}
    memory = WrittenCandidates(TURNS, rows)
    tuning = REFERENCE.__class__(pool=1, vector=0.7, neighbours=(), speaker=0.0, in_time=0.0)
    asked = plan("decoder took port 8642", now=NOW)
    ranking = rank(memory, asked, np.array([[1.0, 0.0]], dtype=np.float32), tuning)
    assert ranking.cosine["t8"] == pytest.approx(0.6)
    assert ranking.scores["t8"] == pytest.approx(0.7 * 0.6 + 0.3 * 0.5, abs=1e-6)  # one keyword hit: level, 0.5


def test_without_vectors_the_keyword_scores_count_whole():
    ranking = rank(WrittenCandidates(TURNS), plan("SQLite or Postgres", now=NOW), None, REFERENCE)
    assert ranking.legs.keys() == {"keyword"}
    assert max(ranking.scores.values()) == pytest.approx(0.5)  # all that matched are equal: level


def test_rare_name_is_found_in_any_wording():
    found = _recall("When has everything to be finished for Ismet?")
    cue = next(cue for cue in found.cues if cue.turn_id == "t6")
    assert any("Ismet" in reason for reason in cue.why)


def test_time_alone_finds_turns_of_that_time():
    found = _recall("on 7 January 2026")
    assert "t6" in {cue.turn_id for cue in found.cues}
    assert any("7 January 2026" in reason for cue in found.cues if cue.turn_id == "t6" for reason in cue.why)


def test_since_an_event_counts_from_its_last_mention():
    found = _recall("what about the port since the decoder")
    assert [w.since_at for w in found.plan.windows] == [START + timedelta(days=8)]


def test_question_about_oneself_searches_the_users_own_words():
    ranking = rank(
        WrittenCandidates(TURNS), plan("what did I say about the port of the server?", now=NOW), None, DEFAULT
    )
    assert ranking.legs["speaker"].keys() <= {name for name, (role, _) in TURNS.items() if role == "user"}


def test_second_question_with_the_same_best_answer_adds_its_next():
    """Row R06: both ask for t4 first; the second's runner-up is t8."""
    found = _recall("Which port does the server listen on? Which port did the decoder take?")
    assert len(found.plan.queries) == 2
    assert {"t4", "t8"} <= {cue.turn_id for cue in found.cues[:3]}


def test_why_not_has_an_answer_for_every_turn():
    found = _recall("Why did we choose SQLite over Postgres?", tuning=DEFAULT.__class__(k=1), explain=True)
    assert explain_absence(found, "t2").startswith("It is cue 1, because it ")
    assert "It matched, in place " in explain_absence(found, "t3")
    assert "It does not match" in explain_absence(found, "t8")
    assert "Nothing was recalled" in explain_absence(_recall("Which violin did Paganini play?"), "t2")


def test_texts_to_embed_are_the_queries():
    assert list_texts_to_embed(plan("ok", now=NOW)) == ()
    assert list_texts_to_embed(plan("Which port does staging use?", now=NOW)) == ("Which port does staging use?",)
    both = "Which port does staging use? Who owns the billing service?"
    assert list_texts_to_embed(plan(both, now=NOW)) == (both,)
    (long,) = list_texts_to_embed(plan(f"{both} {'We talked of it. ' * 40}", now=NOW))
    assert long.startswith("port staging use, owns billing service")


@pytest.mark.parametrize("max_tokens", [0, 30, 60, 2000])
def test_the_budget_holds(max_tokens):
    found = _recall("Which port does the server use?", tuning=DEFAULT.__class__(max_tokens=max_tokens))
    assert found.n_tokens <= max_tokens
