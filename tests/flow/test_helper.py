"""A helper model plans a recall within its time, by schema; whatever it does wrong, the rules' plan answers (R14)."""

import json

import pytest

import perdure
from perdure.errors import ModelLate, ModelRefused
from perdure.recall.plan import PLAN_PROMPT, PLAN_SCHEMA
from perdure.testing import ScriptedChat

LINES = (
    "The gantry crane weighs twelve tonnes.",
    "Lunch is at noon on weekdays.",
    "Buoys drift to the east in winter.",
)


def opened(tmp_path, *answers):
    chat = ScriptedChat(answers)
    home = perdure.open(tmp_path / "home", user="ada", chats={"helper": chat})
    body = b"".join(json.dumps({"role": "user", "content": line}).encode() + b"\n" for line in LINES)
    home.capture(body, runtime="messages", session="s")
    return home, chat


def plan(*queries, names=(), intent="fact"):
    return {"queries": list(queries), "names": list(names), "intent": intent}


def test_helper_names_the_search_terms(tmp_path):
    home, chat = opened(tmp_path, plan("gantry crane weight", names=["Kran", "Atlantis"]))
    with home:
        found = home.recall("Wie schwer ist der Kran?")
    assert found.cues and found.cues[0].text == LINES[0] and found.degraded == ()
    assert found.plan.queries == ("gantry crane weight",)
    assert "Atlantis" not in found.plan.names  # it stands nowhere in the message
    (question,) = chat.asked
    assert question.schema == PLAN_SCHEMA and question.messages[0].text == PLAN_PROMPT


@pytest.mark.parametrize(
    "answer", ["no json", {"queries": "x"}, {**plan("a b"), "intent": "sell"}, ModelLate("late"), ModelRefused("no")]
)
def test_rules_answer_after_any_helper_failure(tmp_path, answer):
    home, _ = opened(tmp_path, answer)
    with home:
        found = home.recall("What does the gantry crane weigh?")
    assert found.degraded == ("helper",) and found.cues[0].text == LINES[0]


def test_empty_helper_query_keeps_the_plan_of_the_rules(tmp_path):
    home, _ = opened(tmp_path, plan(" ", "\u0007"))
    with home:
        found = home.recall("What does the gantry crane weigh?")
    assert found.plan.queries and found.cues[0].text == LINES[0]


def test_helper_without_time_is_not_asked(tmp_path):
    home, chat = opened(tmp_path, plan("lunch"))
    with home:
        assert home.recall("What does the gantry crane weigh?", helper_s=0).cues
        assert home.recall("ok, go on").cues == ()
        assert home.recall("What does the gantry crane weigh?", mode="keyword").cues
    assert chat.asked == []
