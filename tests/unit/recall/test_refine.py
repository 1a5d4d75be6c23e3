"""Refined scores: by what the texts hold, only with vectors, and the cut that follows from them."""

from datetime import UTC, datetime

import numpy as np
import pytest
from msgspec.structs import replace

from perdure.recall.plan import plan
from perdure.recall.rank import Ranking, rank
from perdure.recall.recall import recall
from perdure.recall.recaller import RecallContext
from perdure.recall.refine import cover_with_neighbours, refine
from perdure.recall.tuning import DEFAULT
from perdure.testing import WrittenCandidates

NOW = datetime(2026, 3, 10, tzinfo=UTC)
ASKED = np.array([[1.0, 0.0]], dtype=np.float32)
NO_TEXT = {"covered": 0.0, "held": 0.0, "cosine": 0.0, "full": 0.0, "announced": 0.0}
NO_PLACE = {"on_the_way": 0.0, "concluded": 0.0, "answered": 0.0, "called": 0.0, "questioned": 0.0}
OFF = replace(DEFAULT, **NO_TEXT, **NO_PLACE)
TURNS = {
    "t0": ("user", "What do we do about the staging server and its certificate?"),
    "t1": ("assistant", "Let me look at the staging server and its certificate:"),
    "t2": ("user", "The certificate of the staging server is renewed by hand on the first of each month, by Ismet."),
    "t3": ("assistant", "ok"),
}


def _rank(question, vectors=ASKED, turns=TURNS, rows=None):
    memory = WrittenCandidates(turns, rows or {key: [0.6, 0.8] for key in turns})
    asked = plan(question, now=NOW)
    return memory, asked, rank(memory, asked, vectors, OFF)


def _refine(question, **numbers):
    memory, asked, ranking = _rank(question)
    refined = refine(memory, asked, ranking, replace(OFF, **numbers))
    best = max(ranking.scores.values())
    return {turn_id: (refined.scores[turn_id] - ranking.scores[turn_id]) / best for turn_id in ranking.scores}


def test_a_turn_gains_by_the_words_that_it_holds():
    gains = _refine("certificate staging Ismet", held=0.3)
    assert gains["t2"] == pytest.approx(0.3) and gains["t0"] == pytest.approx(0.2) and gains["t3"] == 0.0


def test_a_turn_gains_by_the_words_of_its_neighbours_but_less_sure_ones_do_not():
    gains = _refine("certificate staging Ismet", covered=1.0)
    assert gains["t3"] == pytest.approx(gains["t2"]) == pytest.approx(1.0)


def test_a_scrap_and_an_announcement_gain_less():
    assert _refine("certificate staging", full=0.2)["t3"] == pytest.approx(0.2 * 2 / 100)
    assert _refine("certificate staging", announced=0.2)["t1"] == pytest.approx(-0.2)
    assert _refine("certificate staging", announced=0.2)["t2"] == 0.0


WORK = {
    "m0": ("user", "Renew the certificate of the staging server, and say when it ends."),
    "m1": ("assistant", "The certificate of the staging server ends in May."),
    "m2": ("assistant", "It is signed by our own authority."),
    "m3": ("assistant", "Renewed: it ends on 1 June."),
    "m4": ("user", "And the one of the mail server?"),
    "m5": ("assistant", "The certificate of the mail server ends in July."),
}


def _place(**numbers):
    memory, asked, ranking = _rank("certificate staging", turns=WORK)
    refined = refine(memory, asked, ranking, replace(OFF, **numbers))
    best = max(ranking.scores.values())
    return {turn_id: round((refined.scores[turn_id] - ranking.scores[turn_id]) / best, 6) for turn_id in WORK}


def test_words_on_the_way_lose_and_the_conclusion_gains_by_its_steps():
    """m3 follows two of ten texts: 0.2 of `concluded`. m5 is the only text of its exchange, which concludes nothing."""
    gains = _place(on_the_way=0.1, concluded=0.5)
    assert gains == {"m0": 0.0, "m1": -0.1, "m2": -0.1, "m3": 0.1, "m4": 0.0, "m5": 0.0}


def test_a_conclusion_gains_by_the_words_of_the_message_it_answers():
    """m0 holds both words of the question, m3 none: it still answers."""
    gains = _place(answered=0.4)
    assert gains["m3"] == 0.4 and gains["m5"] == gains["m1"] == 0.0


def test_a_short_question_of_a_person_loses_and_a_statement_does_not():
    gains = _place(questioned=0.3)
    assert gains["m4"] == -0.3 and gains["m0"] == 0.0
    long_question = "We renew it by hand on the first of each month, as Ismet wrote in the manual of the harbour. " * 2
    memory, asked, ranking = _rank("certificate", turns={"q": ("user", f"{long_question}And the certificate?")})
    assert refine(memory, asked, ranking, replace(OFF, questioned=0.3)).scores == ranking.scores


def test_the_cosine_counts_again():
    assert _refine("certificate staging", cosine=0.5)["t2"] == pytest.approx(0.5 * 0.6)


def test_by_words_alone_the_scores_stay():
    memory, asked, ranking = _rank("certificate staging", vectors=None)
    assert refine(memory, asked, ranking, DEFAULT) is ranking


def test_nothing_found_stays_nothing():
    memory, asked, _ = _rank("certificate")
    nothing = Ranking({}, {}, {}, {}, {}, {})
    assert refine(memory, asked, nothing, DEFAULT) is nothing


def test_words_that_are_everywhere_cover_nothing_twice():
    held = {"a": frozenset({"port"}), "b": frozenset({"port"})}
    assert cover_with_neighbours({"port": 2.0}, held, {"a": [("b", 1)]}) == {"a": 1.0, "b": 1.0}
    assert cover_with_neighbours({}, held, {}) == {"a": 0.0, "b": 0.0}


BERTH = "The berth of the pilot boat Kittiwake at the northern quay is number 14."


def _tell_berth(best_text, **limits):
    turns = {f"t{n}": ("user", f"Boat number {n} has a red sail.") for n in range(6)}
    turns["t9"] = ("user", best_text)
    rows = {key: [0.1, 0.99] for key in turns} | {"t9": [0.9, 0.43]}
    memory, asked = WrittenCandidates(turns, rows), plan("Which berth has the pilot boat Kittiwake?", now=NOW)
    tuning = replace(DEFAULT, **limits)
    return recall(memory, asked, RecallContext(ASKED, "all-minilm-l6-v2-int8", explain=True, tuning=tuning)), memory


def test_a_cue_needs_a_share_of_the_best_score():
    """With vectors; by words alone, where scores fall faster, every match may be told."""
    found, memory = _tell_berth(BERTH, short_block=0)
    assert [cue.turn_id for cue in found.cues] == ["t9"]
    assert "matches much less than the best one" in found.passed_over["t1"]
    assert len(_tell_berth(BERTH, weakest=0, short_block=0)[0].cues) > 1
    assert len(recall(memory, found.plan).cues) > 1


def test_a_short_block_is_cut_less():
    """A weaker turn passes while the better ones together are short, and none behind a long one."""
    short, _ = _tell_berth(BERTH)
    assert short.cues[0].turn_id == "t9" and len(short.cues) > 1
    long, _ = _tell_berth(f"{BERTH} {'The harbour office has a plan of all quays. ' * 9}")
    assert [cue.turn_id for cue in long.cues] == ["t9"]
    assert [cue.turn_id for cue in _tell_berth(BERTH, weakest_of_short=0.9)[0].cues] == ["t9"]
