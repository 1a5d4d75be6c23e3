"""The measure of what survives compactions: facts, their places, and the verdict on what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import UsageError
from perdure.eval import compaction
from perdure.eval.compaction import judge
from perdure.eval.planted_facts import (
    HALVES,
    REVERSED,
    PlantedFact,
    TalkLine,
    holds,
    load_templates,
    make_facts,
    make_talk,
    plant,
)

DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.parametrize("half", HALVES)
def test_halves_have_every_kind_and_no_value_twice(half: str) -> None:
    facts = make_facts(half, 3)
    assert {fact.kind for fact in facts} == {"decision", "constraint", "number", "name", "path", REVERSED}
    assert len({fact.answer for fact in facts}) == len(facts) == len(load_templates(half)) == 24
    assert all(holds(fact.later or fact.say, fact.answer) and not holds(fact.ask, fact.answer) for fact in facts)
    assert all(holds(fact.say, fact.old) for fact in facts if fact.old)
    assert facts == make_facts(half, 3) != make_facts(half, 4)


def test_no_template_is_in_two_parts() -> None:
    assert len({row["say"] for half in HALVES for row in load_templates(half)}) == 24 * len(HALVES)


def test_the_newer_value_corrects_where_it_stands_later_in_the_section() -> None:
    fact = PlantedFact("reversed", "", "", "81", later="It is 81 now.", old="80")
    verdicts = {
        "## Fact\n- port 80 → later: port 81": (True, False, False),
        "## Fact\n- port 81\n- port 80": (True, True, True),
        "## Decision\n- port 80\n\n## Fact\n- port 81": (True, True, True),
        "## Fact\n- port 80 → later: tea\n- port 81": (True, True, False),
        "## Fact\n- port 81 → later: tea": (True, False, False),
    }
    assert {summary: tuple(judge(fact, "", summary)) for summary in verdicts} == verdicts
    assert tuple(judge(fact, "port 80", "")) == (False, True, True)


def test_facts_are_planted_in_order_and_nothing_is_lost() -> None:
    talk = make_talk(1, n_rounds=60)
    facts = make_facts("dev", 5)
    text = "\n".join(line.text for line in plant(talk, facts, 5))
    for fact in facts:
        assert text.index(fact.say) < (text.index(fact.later) if fact.later else len(text))
    assert all(line.text in text for line in talk)


def test_our_own_conversation_is_long_and_says_nothing() -> None:
    talk = make_talk(1)
    assert len(talk) == 500 and not any(char.isdigit() for line in talk for char in line.text)


def test_rules_and_recall_keep_what_matters_and_the_tail_alone_does_not() -> None:
    """On the half of the templates that the rules were made with: at least 90 % at 30 % of the tokens, none stale."""
    report = compaction.run(half="dev", vectors=False, n_compactions=(2,))
    rows = report.tables["2"]
    both = rows["rules + recall"]
    assert both["retained"] >= 0.9 and both["tokens"] <= 0.3 and both["n_stale"] == 0
    assert rows["tail only"]["retained"] < 0.2 and rows["rules + scripted model + recall"]["retained"] >= 0.9
    whole, compacted, cut = report.costs
    assert cut.n_tokens < compacted.n_tokens < 0.4 * whole.n_tokens and 0.01 < whole.money < 0.02
    assert "rules + recall" in report.text()


def test_a_summary_of_summaries_loses_what_the_rules_keep() -> None:
    """A conversation of 6,000 tokens, and a summary of a tenth of it, by who writes it and after how many."""
    session = {"tail_rounds": 3, "tail_tokens": 900, "summary_tokens": 600, "recall_tokens": 300}
    talks = [compaction.make_own_talk(1, n_rounds=24)]
    report = compaction.run(half="dev", vectors=False, n_compactions=(1, 3), talks=talks, session=session)
    once, thrice = ({way: row["retained"] for way, row in report.tables[number].items()} for number in ("1", "3"))
    assert thrice["scripted model alone"] < once["scripted model alone"] < once["rules"]
    assert thrice["rules"] == once["rules"] and thrice["scripted model alone + recall"] > once["scripted model alone"]
    by_kind = report.tables["1"]["rules"]["by_kind"]
    assert set(by_kind) == {"decision", "constraint", "number", "name", "path", REVERSED}
    assert all(row["low"] <= row["at"] <= row["high"] for row in by_kind.values())


def test_a_short_conversation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_text('{"role": "user", "content": "hi"}\n')
    with pytest.raises(UsageError):
        compaction.run([tmp_path])


@pytest.mark.skipif(not DATA.is_dir(), reason="the conversations of BEAM are not here")
def test_conversations_of_a_set_and_of_transcripts_are_read() -> None:
    talks = [*compaction.load_talks(DATA / "retrieval" / "beam_dev"), *compaction.load_talks(DATA / "transcripts")]
    assert len(talks) > 10 and all(isinstance(line, TalkLine) for line in talks[0].lines)
