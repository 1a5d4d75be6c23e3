import hashlib
import re
from itertools import combinations
from pathlib import Path

import pytest

from perdure.eval import change_worlds
from perdure.eval.change_worlds import HALVES, make_worlds

FROZEN = Path(change_worlds.__file__).parent / "changes"
NOTED = Path(__file__).parents[3] / "docs" / "evaluation" / "supersession.md"
WORLDS = {  # the digest of every world of a half: earlier figures stay comparable only as long as it is the same
    "dev": "13b0b97bc7b697955065f7ce2525c73d50ea7b30ba555d9d4721940a8c3aa5be",
    "held_out": "b4b6b1b2cecfec9a5d329bed42bdf8f79eee5724e7f8a13932526e01cbe0defc",
    "third": "d19c4fe3292e9b6dde2bf12e4d4361dd3e635122863cbffa1ccc6c621de3c497",
}


@pytest.mark.parametrize("half", HALVES)
def test_the_same_seed_makes_the_same_worlds(half):
    assert make_worlds(half) == make_worlds(half)
    assert make_worlds(half) != make_worlds(half, seed=1)


@pytest.mark.parametrize("half", HALVES)
def test_the_worlds_of_a_half_stay_the_same(half):
    assert hashlib.sha256(repr(make_worlds(half)).encode()).hexdigest() == WORLDS[half]


@pytest.mark.parametrize("half", HALVES)
def test_each_half_has_changes_of_every_kind_and_language(half):
    asked = [question for world in make_worlds(half) for question in world.questions if question.asks == "now"]
    assert len(asked) == 4 * sum(change_worlds.N_WORLDS.values())
    assert {question.language for question in asked} == {"en", "de", "fr", "es", "zh"}
    assert {question.shape for question in asked} == {
        "change", "correction", "parallel", "back", "twice", "negation",
    }  # fmt: skip
    assert len({question.kind for question in asked}) >= 15


@pytest.mark.parametrize("half", HALVES)
def test_value_appears_only_in_the_statements_of_its_fact(half):
    """So a cue can be judged by the value that it holds."""
    for world in make_worlds(half):
        for question in world.questions:
            for value in (question.answer, *question.others):
                bounded = re.compile(rf"(?<![a-z0-9]){re.escape(value.casefold())}(?![a-z0-9]|\.\d)")
                holds = {m.message_id for m in world.messages if bounded.search(m.text.casefold())}
                assert holds
                assert holds <= set(question.statements), (value, question)


@pytest.mark.parametrize("half", HALVES)
def test_last_statement_of_a_fact_holds_the_current_value(half):
    for world in make_worlds(half):
        said = {message.message_id: message for message in world.messages}
        assert list(said.values()) == sorted(world.messages, key=lambda message: message.stated_at)
        assert len({message.stated_at for message in world.messages}) == len(world.messages)
        for question in world.questions:
            at = [said[name].stated_at for name in question.statements]
            assert at == sorted(at)
            if question.asks == "now":
                assert question.answer.casefold() in said[question.statements[-1]].text.casefold()


def test_the_halves_share_no_template():
    templates = {half: _templates(half) for half in HALVES}
    assert min(len(texts) for texts in templates.values()) > 750
    assert not [pair for pair in combinations(HALVES, 2) if templates[pair[0]] & templates[pair[1]]]


def test_the_third_half_shares_no_template_with_other_slots_or_marks():
    """It shares not even a frame, an idle message or a pair that is true together."""
    earlier_frames = _frames("dev") | _frames("held_out")
    assert len(_frames("third")) > 850
    assert not _frames("third") & earlier_frames


def _templates(half):
    return {
        (language, text)
        for language, of in change_worlds._read_json(half).items()
        for family in of["families"]
        for part in ("first", "change", "correct", "back", "now", "before", "then", "noise")
        for text in family.get(part, ())
    }


def _frames(half):
    """Every text of a half in lower case, with like slots and without punctuation."""
    others = {
        (language, text)
        for language, of in change_worlds._read_json(half).items()
        for text in (*of["wraps"], *of["chat"], *(text for pair in of["multi"] for text in pair["say"]))
    }
    return {
        (language, " ".join(re.findall(r"\w+", re.sub(r"\{\w+\}", " SLOT ", text).casefold())))
        for language, text in _templates(half) | others
    }


def test_frozen_files_match_their_digests():
    """The files are those that were there before the rules they measure: their digests are noted in the docs."""
    noted = NOTED.read_text(encoding="utf-8")
    for name in ("dev.json", "held_out.json", "third.json", "pools.json"):
        assert hashlib.sha256((FROZEN / name).read_bytes()).hexdigest() in noted, name
