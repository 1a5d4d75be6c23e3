import hashlib
import re
from pathlib import Path

import pytest

from perdure.eval.changes import generate
from perdure.eval.changes.generate import HALVES, worlds

FROZEN = Path(generate.__file__).parent
NOTED = Path(__file__).parents[3] / "docs" / "evaluation" / "supersession.md"


@pytest.mark.parametrize("half", HALVES)
def test_the_same_seed_makes_the_same_worlds(half):
    assert worlds(half) == worlds(half)
    assert worlds(half) != worlds(half, seed=1)


@pytest.mark.parametrize("half", HALVES)
def test_each_half_has_changes_of_every_kind_and_language(half):
    asked = [question for world in worlds(half) for question in world.questions if question.asks == "now"]
    assert len(asked) == 4 * sum(generate.N_WORLDS.values())
    assert {question.language for question in asked} == {"en", "de", "fr", "es", "zh"}
    assert {question.shape for question in asked} == {
        "change", "correction", "parallel", "back", "twice", "negation",
    }  # fmt: skip
    assert len({question.kind for question in asked}) >= 15


@pytest.mark.parametrize("half", HALVES)
def test_a_value_stands_only_in_the_statements_of_its_fact(half):
    """So a cue can be judged by the value that it holds."""
    for world in worlds(half):
        for question in world.questions:
            for value in (question.answer, *question.others):
                bounded = re.compile(rf"(?<![a-z0-9]){re.escape(value.casefold())}(?![a-z0-9]|\.\d)")
                holds = {m.message_id for m in world.messages if bounded.search(m.text.casefold())}
                assert holds
                assert holds <= set(question.statements), (value, question)


@pytest.mark.parametrize("half", HALVES)
def test_the_last_statement_of_a_fact_holds_what_is_true_now(half):
    for world in worlds(half):
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
        for language, of in generate._read(half).items()
        for family in of["families"]
        for part in ("first", "change", "correct", "back", "now", "before", "then", "noise")
        for text in family.get(part, ())
    }


def test_what_was_frozen_is_what_is_here():
    """The files are those that were there before the rules they measure: their digests are noted in the docs."""
    noted = NOTED.read_text(encoding="utf-8")
    for name in ("dev.json", "held_out.json", "pools.json", "generate.py"):
        assert hashlib.sha256((FROZEN / name).read_bytes()).hexdigest() in noted, name
