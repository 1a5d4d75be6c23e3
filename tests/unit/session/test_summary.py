"""The summary's text, the model's part of it, and the check on what that lost."""

from __future__ import annotations

import pytest

from perdure.errors import BadAnswer
from perdure.formats.perdure import Quote
from perdure.models.chat import ChatReply
from perdure.session.extract import FileLists
from perdure.session.summary import (
    ORDER_NOTE,
    add_later,
    drop_taken_back,
    list_lost,
    parse_summary,
    render_summary,
    write_narrative,
)
from perdure.testing import ScriptedChat

from .conftest import make_entry, make_talk

PORT = Quote(kind="Decision", text="Staging listens on port 8443.", entry="e1")
LIMIT = Quote(kind="Constraint", text="Uploads must not exceed 25 MB.", entry="e2")


def narrate(chat: ScriptedChat, messages=None, *, previous: str = "", focus: str = "", max_tokens: int = 500) -> str:
    entries = make_talk("ua" * 3) if messages is None else messages
    return write_narrative(chat, entries, previous=previous, focus=focus, max_tokens=max_tokens, clip_chars=2000)


def test_headings_of_a_summary() -> None:
    """S09."""
    text = render_summary("- Decision: ports", [PORT, LIMIT], FileLists(("a.py",), ("b.py",)), 1000)
    assert text.startswith(ORDER_NOTE)
    assert parse_summary(text) == {
        "Narrative": ["Decision: ports"],
        "Decision": ["Staging listens on port 8443. (e1)"],
        "Constraint": ["Uploads must not exceed 25 MB. (e2)"],
        "Files": ["changed: b.py", "read: a.py"],
    }


def test_prompt_says_what_to_keep_and_what_to_discard() -> None:
    """S12, S13."""
    chat = ScriptedChat(["- Decision: x"])
    narrate(chat, focus="the port of staging")
    system, user = chat.asked[0].messages
    for words in ("Retain: key decisions", "pending", "technical constraints", "Discard: code, debugging", "repeated"):
        assert words in system.text
    assert "the port of staging" in system.text and "words 0" in user.text


def test_tool_results_are_clipped_for_the_summariser() -> None:
    """S27: 2,000 characters."""
    chat = ScriptedChat(["- Fact: x"])
    narrate(chat, [make_entry(0, "user", "go"), make_entry(1, "tool", "y" * 9000, tool="shell")])
    assert 1990 <= chat.asked[0].messages[1].text.count("y") <= 2000


def test_long_middle_is_told_piece_by_piece() -> None:
    chat = ScriptedChat([f"- Fact: piece {n}" for n in range(1, 99)], window_tokens=4000)
    narrative = narrate(chat, make_talk("ua" * 100, lambda n: f"message {n} " + "some more words " * 20))
    assert len(chat.asked) > 3 and narrative == f"- Fact: piece {len(chat.asked)}"
    assert "- Fact: piece 1" in chat.asked[1].messages[1].text
    told = "".join(question.messages[1].text for question in chat.asked)
    assert all(f"message {n} " in told for n in range(200))
    assert all(sum(len(message.text) for message in question.messages) / 3 < 4000 for question in chat.asked)


@pytest.mark.parametrize("reply", ["", "  \n", ChatReply("- Decision: half of it", stop="length")])
def test_an_empty_or_cut_narrative_is_a_failure(reply: str | ChatReply) -> None:
    """S24."""
    with pytest.raises(BadAnswer):
        narrate(ScriptedChat([reply]))


def test_what_the_narrative_lost_stands_behind_it() -> None:
    narrative = "- Decision: staging listens on port 8443\n- Constraint: uploads have a limit"
    assert list_lost([PORT, LIMIT], narrative) == [LIMIT]


def test_what_replaces_something_is_always_quoted() -> None:
    newer = Quote(kind="Decision", text="Staging listens on port 8443.", entry="e1", replaces="e0")
    assert list_lost([newer], "- staging listens on port 8443") == [newer]


def test_a_pair_stays_whole_if_the_narrative_lost_one_of_it() -> None:
    old = Quote(kind="Fact", text="The choir sings under Ada Brandt.", entry="e1")
    new = Quote(kind="Fact", text="Grace Holub conducts those singers.", entry="e2", follows="e1")
    narrative = "- Fact: the choir sings under Ada Brandt"
    assert list_lost([old, new, LIMIT], f"{narrative}\n- Constraint: uploads must not exceed 25 MB") == [old, new]
    told = add_later(narrative, [(old.text, new.text)])
    assert told == f"{narrative} → later: {new.text}"
    assert list_lost([old, new], told) == [] and add_later(told, [(old.text, new.text)]) == told
    assert add_later("- Fact: the port is 80", [(old.text, new.text)]) == "- Fact: the port is 80"


def test_a_narrative_line_that_was_taken_back_goes() -> None:
    narrative = "- Decision: staging listens on port 80\n- Decision: staging moved from 80 to 8443\n- Fact: 80 guests"
    kept = drop_taken_back(narrative, [("Staging listens on port 80.", "Staging listens on port 8443 now.")])
    assert kept == "- Decision: staging moved from 80 to 8443\n- Fact: 80 guests"
