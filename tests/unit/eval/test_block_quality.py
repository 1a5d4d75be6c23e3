"""The block as it is judged: where the answer stands, in how many tokens, and which of two rules comes first."""

from __future__ import annotations

import pytest

from perdure.eval.block_quality import measure_blocks
from perdure.eval.block_sets import Block, BlockItem, BlockQuestion, Rule, find_half
from perdure.eval.block_ways import excerpt_hits, is_in_scope
from perdure.types import Hit


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


def make_hit(turn_id: str, text: str, project: str | None = None) -> Hit:
    return Hit(turn_id, "r", "c", "", "messages", "m", "a", project, "user", "human", "text", None, text, 1.0)


def test_block_of_hits_ends_at_its_budget() -> None:
    """Each text of 40 words is 40 tokens or more, so two of them are more than 60."""
    question = BlockQuestion("which port?", "ada", accepted=("8443",))
    hits = [make_hit(f"t{n}", " ".join(["port"] * 40)) for n in range(3)]
    assert [item.turn_id for item in excerpt_hits(hits, question, max_tokens=60)] == ["t0"]
    assert len(excerpt_hits(hits, question)) == 3


def test_turn_stands_in_a_block_once() -> None:
    question = BlockQuestion("which port?", "ada", accepted=("8443",))
    items = excerpt_hits([make_hit("t0", "port 8443"), make_hit("t0", "another piece")], question)
    assert [(item.turn_id, item.text) for item in items] == [("t0", "port 8443")]


def test_hit_of_another_project_is_out_of_scope() -> None:
    question = BlockQuestion("which port?", "ada", project="/work/a")
    scopes = [is_in_scope(make_hit("t0", "", project), question, False) for project in ("/work/a", None, "/work/b")]
    assert scopes == [True, True, False]
    assert is_in_scope(make_hit("t0", "", "/work/b"), question, True)


def test_harm_is_counted_over_the_questions_that_can_show_it() -> None:
    """Two questions have rules (one told old first, one new alone), one has a wrong string, which is told."""
    rules = (Rule("8080", frozenset()), Rule("9090", frozenset()))
    near = BlockQuestion("which port?", "ada", wrong=("7070",))
    figures = measure_blocks([
        make_block("was 8080", "now 9090", accepted=("9090",), rules=rules),
        make_block("now 9090", accepted=("9090",), rules=rules),
        Block(near, (BlockItem("t0", "the other one has 7070", 5),)),
    ])  # fmt: skip
    assert (figures["old first"]["at"], figures["both told"]["at"], figures["wrong told"]["at"]) == (0.5, 0.5, 1.0)
    assert figures["silent"]["at"] == 0.0
