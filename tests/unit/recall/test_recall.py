"""Recall over a memory of a few turns, with keyword scores and vectors that are written down."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from perdure import text
from perdure.recall.candidates import Detail, Fact, Sighting
from perdure.recall.feedback import rarity
from perdure.recall.judge import stem, stems
from perdure.recall.plan import plan
from perdure.recall.rank import rank, to_embed
from perdure.recall.recall import recall
from perdure.recall.tuning import DEFAULT, REFERENCE
from perdure.recall.why import why_not

NOW = datetime(2026, 3, 10, tzinfo=UTC)
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Written:
    """Candidates over turns that are given in order, a day apart: BM25 is the share of the query's words held."""

    turns: dict[str, tuple[str, str]]  # id -> (role, text)
    rows: dict[str, list[float]] = field(default_factory=dict)  # id -> vector
    asked: list[str] = field(default_factory=list)

    def _at(self, name):
        return START + timedelta(days=list(self.turns).index(name))

    def _in(self, name, within):
        return within is None or within.since_at <= self._at(name) < within.until_at

    def keyword(self, queries, k, within=None):
        self.asked += queries
        return [self._leg(query, k, within) for query in queries]

    def _leg(self, query, k, within):
        words = {stem(word) for word in text.without_stopwords(text.query_terms(query))}
        scores = {n: float(len(words & stems(t))) if query else 1.0 for n, (_, t) in self.turns.items()}
        found = sorted((n for n, s in scores.items() if s and self._in(n, within)), key=lambda n: (-scores[n], n))
        return {name: scores[name] for name in found[:k]}

    def nearest(self, queries, k, within=None):
        legs = []
        for query in queries:
            scores = {n: float(np.dot(row, query)) for n, row in self.rows.items() if self._in(n, within)}
            legs.append({n: scores[n] for n in sorted(scores, key=lambda n: (-scores[n], n))[:k]})
        return legs

    def vectors(self, ids):
        return {n: np.array([self.rows[n]], dtype=np.float32) for n in ids if n in self.rows}

    def cosines(self, ids, queries):
        return {n: float((rows @ queries.T).max()) for n, rows in self.vectors(ids).items()}

    def around(self, ids, reach):
        names = list(self.turns)
        near = {}
        for name in ids:
            at = names.index(name)
            near[name] = [
                (names[o], abs(o - at)) for o in range(at - reach, at + reach + 1) if o != at and 0 <= o < len(names)
            ]
        return near

    def names(self, names):
        found = {}
        for word in names:
            parts = {stem(part) for part in text.query_terms(word)}
            held = [n for n, (_, t) in self.turns.items() if parts and parts <= stems(t)]
            found[word] = Sighting(len(held), rarity(len(held), len(self.turns)), tuple(reversed(held)))
        return found

    def rarities(self, words):
        return {word: (seen.n_turns, seen.rarity) for word, seen in self.names(words).items()}

    def facts(self, ids):
        return {n: Fact(self.turns[n][0], self._at(n)) for n in ids}

    def details(self, ids):
        return {
            n: Detail(n, "run", "conv", self.turns[n][0], self._at(n), "laptop", "pi", self.turns[n][1])
            for n in ids if n in self.turns
        }  # fmt: skip


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
    return recall(memory or Written(TURNS), plan(message, now=NOW), **options)


def test_it_finds_the_turn_and_says_where_from_and_why():
    found = _recall("Why did we choose SQLite over Postgres?")
    cue = found.cues[0]
    assert (cue.turn_id, cue.role, cue.runtime, cue.machine) == ("t2", "user", "pi", "laptop")
    assert cue.stated_at == START + timedelta(days=2)
    assert any("holds the words" in reason for reason in cue.why)
    assert found.n_tokens == sum(cue.n_tokens for cue in found.cues) <= DEFAULT.max_tokens


def test_it_is_silent_about_what_it_does_not_know():
    found = _recall("Which violin did Paganini play in Genoa?")
    assert found.cues == ()
    assert found.silent


def test_it_is_silent_when_nothing_is_asked():
    memory = Written(TURNS)
    assert _recall("ok, go on", memory).silent == "the message asks for nothing"
    assert memory.asked == []


def test_the_same_question_gives_the_same_answer():
    one, other = _recall("Which port does the server use now?"), _recall("Which port does the server use now?")
    assert one.cues == other.cues


def test_what_the_session_holds_is_not_said_again():
    first = _recall("Which port does the server use?")
    again = _recall("Which port does the server use?", already=[cue.turn_id for cue in first.cues])
    assert not {cue.turn_id for cue in first.cues} & {cue.turn_id for cue in again.cues}


def test_a_keyword_hit_gets_its_vector_fetched():
    """Row X10: t8 is the worst by vector and outside the one vector candidate, yet its cosine counts: 0.6 · 0.7."""
    rows = {name: [1.0, 0.0] for name in TURNS} | {"t8": [0.6, 0.8]}
    memory = Written(TURNS, rows)
    tuning = REFERENCE.__class__(pool=1, vector=0.7, neighbours=(), speaker=0.0, in_time=0.0)
    asked = plan("decoder took port 8642", now=NOW)
    ranking = rank(memory, asked, np.array([[1.0, 0.0]], dtype=np.float32), tuning)
    assert ranking.cosine["t8"] == pytest.approx(0.6)
    assert ranking.scores["t8"] == pytest.approx(0.7 * 0.6 + 0.3 * 0.5, abs=1e-6)  # one keyword hit: level, 0.5


def test_without_vectors_the_keyword_scores_count_whole():
    ranking = rank(Written(TURNS), plan("SQLite or Postgres", now=NOW), None, REFERENCE)
    assert ranking.legs.keys() == {"keyword"}
    assert max(ranking.scores.values()) == pytest.approx(0.5)  # all that matched are equal: level


def test_a_rare_name_is_found_whatever_the_wording():
    found = _recall("When has everything to be finished for Ismet?")
    cue = next(cue for cue in found.cues if cue.turn_id == "t6")
    assert any("Ismet" in reason for reason in cue.why)


def test_a_time_alone_finds_what_was_then():
    found = _recall("on 7 January 2026")
    assert "t6" in {cue.turn_id for cue in found.cues}
    assert any("7 January 2026" in reason for cue in found.cues if cue.turn_id == "t6" for reason in cue.why)


def test_since_an_event_counts_from_when_it_was_last_mentioned():
    found = _recall("what about the port since the decoder")
    assert [w.since_at for w in found.plan.windows] == [START + timedelta(days=8)]


def test_a_person_asked_about_themselves_is_heard_first():
    ranking = rank(Written(TURNS), plan("what did I say about the port of the server?", now=NOW), None, DEFAULT)
    assert ranking.legs["speaker"].keys() <= {name for name, (role, _) in TURNS.items() if role == "user"}


def test_why_not_has_an_answer_for_every_turn():
    found = _recall("Why did we choose SQLite over Postgres?", tuning=DEFAULT.__class__(k=1), explain=True)
    assert why_not(found, "t2").startswith("it is cue 1")
    assert "candidate" in why_not(found, "t3")
    assert "no candidate" in why_not(found, "t8")
    assert "silent" in why_not(_recall("Which violin did Paganini play?"), "t2")


def test_the_texts_to_embed():
    assert to_embed(plan("ok", now=NOW)) == ()
    assert to_embed(plan("Which port does staging use?", now=NOW)) == ("Which port does staging use?",)
    assert len(to_embed(plan("Which port does staging use? Who owns the billing service?", now=NOW))) == 3


@pytest.mark.parametrize("max_tokens", [0, 30, 60, 2000])
def test_the_budget_holds(max_tokens):
    found = _recall("Which port does the server use?", tuning=DEFAULT.__class__(max_tokens=max_tokens))
    assert found.n_tokens <= max_tokens
