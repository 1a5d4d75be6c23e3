"""The block as it is judged: where the answer stands, in how many tokens, and which of two rules comes first."""

from __future__ import annotations

import pytest

from perdure.eval.block_quality import Block, BlockItem, BlockQuestion, Rule, find_half


def make_block(*texts: str, accepted: tuple[str, ...] = ("8443",), rules: tuple[Rule, Rule] | None = None) -> Block:
    question = BlockQuestion("which port?", "ada", accepted=accepted, rules=rules)
    return Block(question, tuple(BlockItem(f"t{n}", text, 100) for n, text in enumerate(texts)))


def test_answer_is_the_first_item_that_holds_an_accepted_string() -> None:
    block = make_block("no", "it is 8443", "8443 it is")
    assert (block.find_answer(), block.n_tokens) == (2, 300)
    assert make_block("no").find_answer() is None


def test_answer_counts_only_within_the_tokens_that_are_looked_at() -> None:
    block = make_block("no", "it is 8443")
    assert (block.find_answer(199), block.find_answer(200)) == (None, 2)


def test_gold_turn_answers_whatever_its_text() -> None:
    question = BlockQuestion("which port?", "ada", gold=frozenset({"t1"}))
    block = Block(question, (BlockItem("t0", "a", 1), BlockItem("t1", "b", 1)))
    assert block.find_answer() == 2 and not question.deserves_silence


@pytest.mark.parametrize(
    ("texts", "order"),
    [
        (["now 9090", "was 8080"], "new first"),
        (["was 8080", "now 9090"], "old first"),
        (["not 8080 but 9090"], "new first"),
        (["was 8080"], "old alone"),
        (["now 9090"], "new alone"),
        (["hello"], "neither"),
    ],
)
def test_rules_are_recognised_by_their_words(texts: list[str], order: str) -> None:
    rules = (Rule("8080", frozenset({"t9"})), Rule("9090", frozenset({"t9"})))
    assert make_block(*texts, rules=rules).order_rules() == order


def test_rules_without_words_are_recognised_by_their_turns() -> None:
    rules = (Rule("", frozenset({"t1"})), Rule("", frozenset({"t0"})))
    assert make_block("a", "b", rules=rules).order_rules() == "new first"
    assert make_block("a").order_rules() is None


def test_half_of_a_question_follows_from_its_words() -> None:
    halves = [find_half(f"question {n}") for n in range(200)]
    assert halves == [find_half(f"question {n}") for n in range(200)]
    assert 70 < halves.count("dev") < 130
