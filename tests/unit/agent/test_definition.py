"""The page agent.yaml."""

from __future__ import annotations

import pytest

from perdure.agent.definition import TOOLS, AgentDefinition, parse_definition
from perdure.errors import DefinitionFault
from perdure.session.turn_budget import TurnBudget


def test_every_key_is_read() -> None:
    definition = parse_definition(
        "name: jarvis\ntools: [read_file, shell]\nmax_turns: 7\nmodel: helper\neffort: low\n"
        "max_tokens: 1000\nmax_money: 1\nmax_s: 60\n"
        "mode: edits\nallow: [shell(pytest *)]\n"
        "ask: [shell(git push *)]\ndeny: [write_file(docs/*)]\nfolders: [~/notes]\n"
        "sandbox: false\nnetwork: true\nenvironment: [GH_TOKEN]\n"
    )
    assert definition.budget == TurnBudget(7, 1000, 1, 60)
    assert definition.rules.allow[0].pattern == "pytest *"
    assert definition == AgentDefinition(
        "jarvis", ("read_file", "shell"), 7, "helper", "low", 1000, 1, 60, "edits", ("shell(pytest *)",),
        ("shell(git push *)",), ("write_file(docs/*)",), ("~/notes",), False, True, ("GH_TOKEN",),
    )  # fmt: skip


def test_keys_may_be_left_out() -> None:
    definition = parse_definition("name: a\ntools: []\nmax_turns: 3")
    assert (definition.tools, definition.mode, definition.sandbox) == ((), "ask", True)
    assert AgentDefinition().tools == TOOLS


@pytest.mark.parametrize(("page", "message"), [
    ("a: [", "not YAML"), ("- a", "not a mapping"), ("nam: a", "nam"), ("mode: wild", "mode"), ("mode: 3", "mode"),
    ("tools: [fly]", "fly"), ("tools: shell", "tools"), ("allow: [shell(]", "shell("), ("max_turns: 0", "max_turns"),
    ("max_s: soon", "max_s"), ("sandbox: 1", "sandbox"), ("effort: huge", "effort"), ("max_money: -1", "max_money"),
    ("name: ''", "name"), ("model: ''", "model"),
])  # fmt: skip
def test_a_wrong_page_names_its_key(page: str, message: str) -> None:
    with pytest.raises(DefinitionFault) as caught:
        parse_definition(page)
    assert message in caught.value.detail
