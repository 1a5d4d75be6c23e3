"""Cues within their tokens, and the reasons that a cue states."""

import unicodedata
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure import text
from perdure.recall.candidates import TurnFact
from perdure.recall.pack import cut_excerpt, explain_cue, find_matching_words, is_dependent, pack, render_cue
from perdure.recall.plan import plan
from perdure.types import Cue, Memory


def _cue(name, words, before=""):
    at = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    return Cue(name, "run", "conv", "user", at, "laptop", "pi", words, 1.0, {}, ("its words match",), before)


def test_cue_names_its_date_source_and_role():
    assert render_cue(_cue("t1", "Port 8642.", "Which port?")) == (
        "[2026-03-01 12:30 · user · pi @laptop · turn t1]\n> Which port?\nPort 8642."
    )


def test_cue_names_its_age_and_the_folder_of_its_project():
    cue = replace(_cue("t1", "Port 8642."), project="/home/ada/tide", age="8 months ago")
    assert render_cue(cue) == "[2026-03-01 12:30 (8 months ago) · user · pi @laptop · tide · turn t1]\nPort 8642."
    at = datetime(2026, 3, 1, tzinfo=UTC)
    memory = Memory("mem-1", "Port 8642.", "fact", "tide/port", "default", "/w/tide", at, at, "owner", "stated")
    assert render_cue(replace(cue, turn_id="mem-1", memory=memory)).startswith(
        "[2026-03-01 12:30 (8 months ago) · memory, fact · the user said · tide · mem-1]"
    )


def test_the_piece_with_the_asked_words_is_kept():
    words = "nothing here. " * 40 + "The staging port is 8642. " + "nothing there. " * 40
    short = cut_excerpt(words, frozenset({"stag", "port"}), 200)
    assert "staging port is 8642" in short
    assert len(short) <= 200
    assert short.startswith("…")
    assert short.endswith("…")


def test_first_cues_may_be_longer_than_later_ones():
    cues = [_cue(f"t{n}", "port staging " * 400) for n in range(5)]
    packed, _ = pack(cues, ("port",), max_tokens=10_000)
    lengths = [len(cue.text) for cue in packed]
    limits = [1000, 800, 500, 400, 400]
    assert all(0.9 * limit < length <= limit for limit, length in zip(limits, lengths, strict=True))


def test_cue_without_room_is_named_and_a_later_one_may_fit():
    long, short = _cue("long", "Überlänge " * 300), _cue("short", "Port 8642.")
    kept, without_room = pack([long, short], [], max_tokens=40)
    assert [cue.turn_id for cue in kept] == ["short"]
    assert without_room == ("long",)


def test_turn_before_is_dropped_first_when_room_is_short():
    cue = _cue("t", "Yes, do it.", "Shall I delete the cache on every deploy of the staging server?")
    kept, _ = pack([cue], [], max_tokens=30)
    assert kept[0].before == ""
    assert pack([cue], [], max_tokens=200)[0][0].before


def test_short_answer_needs_its_question():
    assert is_dependent("Yes, the second one.")
    assert is_dependent("Ada: No, never.")
    assert is_dependent("42")
    assert not is_dependent("The staging server listens on port 8642 since the AIS decoder took 8417.")


@settings(max_examples=60)
@given(st.lists(st.text(max_size=3000), max_size=8), st.integers(0, 400))
def test_the_budget_is_never_exceeded(texts, max_tokens):
    cues = [_cue(f"t{n}", words) for n, words in enumerate(texts)]
    kept, without_room = pack(cues, ["port"], max_tokens=max_tokens)
    assert text.tokens("\n".join(map(render_cue, kept))) <= max_tokens
    assert len(kept) + len(without_room) == len(cues)


@given(
    st.lists(st.sampled_from(["e\u0301", "👩\u200d💻", "a ", "ก\u0e49", "🇩🇪"]), max_size=600).map("".join),
    st.integers(40, 300),
)
def test_no_visible_character_is_split(words, n_chars):
    short = cut_excerpt(words, frozenset(), n_chars).removeprefix("…").removesuffix("…")
    assert not short or not unicodedata.combining(short[0])
    assert not short.startswith("\u200d")
    assert not short.endswith("\u200d")


NOW = datetime(2026, 3, 10, tzinfo=UTC)
FACT = TurnFact("user", NOW)
PLAN = plan("Which port does the server use?", now=NOW)


def reasons(*, is_memory: bool, **legs: float) -> tuple[str, ...]:
    return explain_cue(
        "x", {leg: {"x": score} for leg, score in legs.items()}, FACT, PLAN, words=("port",), is_memory=is_memory
    )


def test_reasons_say_how_alike_the_meaning_is() -> None:
    labels = [reasons(is_memory=True, vector=cosine) for cosine in (0.6, 0.4, 0.25, 0.2)]
    assert labels == [("means nearly the same",), ("is close in meaning",), ("is somewhat close in meaning",), ()]


def test_words_of_the_message_are_found_in_any_of_their_forms() -> None:
    assert find_matching_words("Two servers with one port", PLAN) == ("port", "server")


def test_weak_turn_names_its_neighbour_and_a_memory_does_not() -> None:
    assert reasons(is_memory=False, keyword=0.2)[-1] == "is next to a turn that matches"
    assert reasons(is_memory=True, keyword=0.2, vector=0.3) == (
        "contains your words: port",
        "is somewhat close in meaning",
    )


def test_weakest_candidate_has_a_reason_too() -> None:
    """The worst of a leg scores 0 there, whatever it holds."""
    assert reasons(is_memory=True, keyword=0.0) == ("contains your words: port",)
