"""SQLite's own full-text search as a way to fill a block: any word matches, rare words count more, endings are cut."""

from __future__ import annotations

from perdure.eval.plain_text import PlainTextSearch


def test_rare_word_counts_more_than_a_common_one() -> None:
    texts = ["the port of staging", "the staging server", "the staging database", "the staging cache"]
    assert list(PlainTextSearch(texts).rank("staging port")) == [0, 1, 2, 3]


def test_other_forms_of_a_word_match() -> None:
    assert list(PlainTextSearch(["we deployed it", "a letter"]).rank("deploys")) == [0]


def test_operators_and_quotes_of_a_message_are_words() -> None:
    search = PlainTextSearch(['say "NOT" twice', "a OR b", "c-d*"])
    assert set(search.rank('"NOT" (a OR c-d*) NEAR ^b:')) == {0, 1, 2}


def test_message_without_words_finds_nothing() -> None:
    assert list(PlainTextSearch(["a"]).rank("?! …")) == []
