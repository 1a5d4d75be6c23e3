import hashlib
import re
from pathlib import Path

import pytest

from perdure.eval import change_worlds
from perdure.eval.change_worlds import HALVES, make_worlds

FROZEN = Path(change_worlds.__file__).parent / "changes"
NOTED = Path(__file__).parents[3] / "docs" / "evaluation" / "supersession.md"


@pytest.mark.parametrize("half", HALVES)
def test_the_same_seed_makes_the_same_worlds(half):
    assert make_worlds(half) == make_worlds(half)
    assert make_worlds(half) != make_worlds(half, seed=1)


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
    one, two = (_templates(half) for half in HALVES)
    assert min(len(one), len(two)) > 750
    assert not one & two


def _templates(half):
    return {
        (language, text)
        for language, of in change_worlds._read_json(half).items()
        for family in of["families"]
        for part in ("first", "change", "correct", "back", "now", "before", "then", "noise")
        for text in family.get(part, ())
    }


def test_frozen_files_match_their_digests():
    """The files are those that were there before the rules they measure: their digests are noted in the docs."""
    noted = NOTED.read_text(encoding="utf-8")
    for name in ("dev.json", "held_out.json", "pools.json"):
        assert hashlib.sha256((FROZEN / name).read_bytes()).hexdigest() in noted, name
