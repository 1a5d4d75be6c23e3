"""Whether an answer rests on a cue, by words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.eval import cue_use_quality
from perdure.memories.cue_use import MAX_ANSWER_CHARS, is_used, iter_words, score_use


def test_words_of_the_prompt_are_no_use() -> None:
    """All of the cue that the answer takes up stood in the prompt."""
    assert (
        score_use("Is the staging server on port 8443 up?", "The staging server is on port 8443.", "8443 is up.") == 0.0
    )


def test_a_number_weighs_three_and_a_word_one() -> None:
    """Own words of the cue: vault 1, opens 1, 774411 3; taken: 774411. 3 / 5 = 0.6."""
    assert score_use("How?", "Vault opens: 774411.", "Type 774411.") == pytest.approx(0.6)


def test_other_value_is_no_use() -> None:
    assert not is_used("Which port?", "It runs on port 8080.", "It runs now on 9443.")


def test_long_cue_is_judged_by_its_sentences() -> None:
    padding = "The garden was quiet while nobody came by. " * 12
    assert is_used("Where are the keys?", f"{padding}The keys lie in Kestrel-9. {padding}", "They are in Kestrel-9.")


def test_the_shipped_pairs_are_judged_as_well_as_they_were() -> None:
    figures = cue_use_quality.run().figures
    assert figures["held out"]["precision"] >= 0.95 and figures["held out"]["recall"] >= 0.85
    assert figures["crossed"]["right"] / figures["crossed"]["n"] >= 0.995


def test_a_huge_answer_costs_little() -> None:
    started = time.perf_counter()
    score_use("p", "The vault opens with 774411 only. " * 60, "word " * MAX_ANSWER_CHARS)
    assert time.perf_counter() - started < 2.0


@given(st.text(), st.text(), st.text())
def test_score_is_a_share_for_any_input(prompt: str, cue: str, answer: str) -> None:
    assert 0.0 <= score_use(prompt, cue, answer) <= 1.0
    assert score_use(prompt, cue, "") == score_use(cue, cue, answer) == 0.0
    assert all(word.weight >= 0 for word in iter_words(cue))
