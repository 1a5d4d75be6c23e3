from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.recall.plan import MAX_QUERIES, MAX_WORDS, choose_filters, plan

NOW = datetime(2026, 3, 10, tzinfo=UTC)


def _plan(message):
    return plan(message, now=NOW)


def test_a_question_becomes_one_short_query():
    assert _plan("When did Caroline go to the LGBTQ support group?").queries == ("Caroline LGBTQ support group",)


def test_two_questions_become_two_queries():
    queries = _plan("Which port does staging use? And who owns the billing service?").queries
    assert queries == ("port staging use", "owns billing service")


@pytest.mark.parametrize(
    "message",
    ["ok, go on", "thanks!", "yes please", "", "   ", "???", "/effort medium", "<local-command-stdout>Compacted</"],
)
def test_message_without_a_question_gives_no_query(message):
    assert _plan(message).queries == ()


def test_three_proper_nouns_are_found():
    names = _plan("Did Ada Lovelace tell Grace about the Kestrel project in Lisbon?").names
    assert {"Ada Lovelace", "Grace", "Lisbon"} <= set(names)


def test_time_is_a_window_and_no_query_word():
    found = _plan("what broke in the staging cluster last Tuesday?")
    assert found.queries == ("broke staging cluster",)
    assert [w.words for w in found.windows] == ["last Tuesday"]


@pytest.mark.parametrize(
    ("message", "intent"),
    [
        ("which port do we use?", "fact"),
        ("what is the current port?", "latest"),
        ("which port does it use now?", "latest"),
        ("now add a test for it", "fact"),
        ("Wer leitet den Chor inzwischen?", "latest"),
        ("how has the port changed over time?", "history"),
        ("summarise what we know of the port", "overview"),
        ("现在用哪个端口", "latest"),
        ("The upload fails at night. Which port does it use?", "task"),
        ("Which port does it use? And which host?", "fact"),
        ("上传总是失败。端口在哪里？", "task"),
    ],
)
def test_question_has_an_intent(message, intent):
    assert _plan(message).intent == intent


@pytest.mark.parametrize(
    ("message", "speakers"),
    [
        ("what did I say about tabs?", ("user",)),
        ("what did you suggest for the cache?", ("assistant",)),
        ("can you tell me the port of staging?", ()),
        ("wie hieß mein Server?", ("user",)),
        ("why was SQLite chosen?", ()),
    ],
)
def test_question_names_its_speakers(message, speakers):
    assert _plan(message).speakers == speakers


def test_long_message_is_cut_and_its_code_gives_no_query():
    found = _plan("Why does the importer fail?\n```\n" + "x = compute(y)\n" * 500 + "```")
    assert found.queries == ("importer fail",)
    assert len(_plan("word " * 5000).message) <= 2000


@given(st.text(max_size=400))
def test_any_text_gives_a_plan_within_its_limits(message):
    found = _plan(message)
    assert len(found.queries) <= MAX_QUERIES
    assert all(1 <= len(query.split()) <= MAX_WORDS for query in found.queries)
    assert found == _plan(message)


def test_a_project_on_windows_is_named_by_its_folder():
    filters = choose_filters(
        "oh-my-posh: how are narrow gradients handled?", project="/w/web", projects=["D:\\oh-my-posh", "/w/web"],
        all_projects=False,
    )  # fmt: skip
    assert filters.projects == ("D:\\oh-my-posh", "/w/web", "")
