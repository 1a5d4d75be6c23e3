"""A plain statement that something is otherwise now, in five languages; and what only looks like one."""

from __future__ import annotations

import pytest

from perdure.recall.plain import find_change, states_plainly


@pytest.mark.parametrize(
    "turn_text",
    [
        "thanks! Mara quit Kestrel and moved to Orbis. now let's get back to the bug",
        "the gateway is on 8443 again",
        "ich arbeite jetzt als Lehrerin",
        "Bruno a rejoint Orbis",
        "ahora uso Zed",
        "端口现在是 8443",
    ],
)
def test_a_statement_of_change_is_recognised(turn_text):
    assert find_change(turn_text)


@pytest.mark.parametrize(
    "turn_text",
    [
        "what if Mara moved to Orbis?",
        "can you rerun the failing test again",
        "maybe we moved it",
        "Mara works at Kestrel",
        "the port changed. " * 40,
        "",
    ],
)
def test_other_texts_state_no_change(turn_text):
    assert not find_change(turn_text)


def test_a_question_behind_a_statement_leaves_it_plain():
    assert states_plainly("the port is 8443") and not states_plainly("is it 8443?")
    assert find_change("We moved to Orbis. Can you check it?") == "We moved to Orbis."
