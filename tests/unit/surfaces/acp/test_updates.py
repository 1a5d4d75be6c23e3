"""Calls and outputs as updates of the protocol."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from perdure.agent.folders import ProjectFolders
from perdure.agent.tools.files import FileChange
from perdure.formats.perdure import CallEntry, ImageEntry, Message
from perdure.surfaces.acp.updates import finish_call, make_title, replay, start_call

FOLDERS = ProjectFolders(root=Path("/w"), home=Path("/h"), start=Path("/w"))
NOW = datetime(2026, 1, 15, tzinfo=UTC)


def call(name: str, **given: object) -> CallEntry:
    return CallEntry(id="c1", name=name, input=given)


def test_a_title_is_one_line_of_code() -> None:
    assert make_title(call("shell", command="a `b`\nc")) == "Run `a 'b' c`"
    assert make_title(call("queue_agent", n=1)) == "queue_agent"


def test_a_change_names_its_first_line() -> None:
    """Lines 1 and 2 are the same, so the change begins at line 3; an added last line counts, too."""
    for new in ("a\nb\nX\n", "a\nb\nX\nd\n"):
        change = FileChange(Path("/w/a.py"), "a.py", "a\nb\nc\n", new)
        (place,) = start_call(call("edit_file", path="a.py"), FOLDERS, change, is_running=True).locations or []
        assert (place.path, place.line) == ("/w/a.py", 3)


def test_all_of_a_command_is_shown_to_who_must_allow_it() -> None:
    command = "true " + "x" * 5_000 + "; rm -rf /"
    start = start_call(call("shell", command=command), FOLDERS, None, is_running=False, reason="Asks.")
    shown, reason = (content.content.text for content in start.content or [])
    assert command in shown and reason == "Asks."
    unknown = start_call(call("image_generate", prompt="a pier"), FOLDERS, None, is_running=False, reason="Asks.")
    assert '"prompt": "a pier"' in (unknown.content or [])[0].content.text


def test_signs_that_an_editor_hides_or_obeys_are_spelled_out() -> None:
    """A sign that turns the direction of writing would show another command than the one that runs."""
    start = start_call(call("shell", command="ls \u202e # x\x1b[2J"), FOLDERS, None, is_running=False, reason="\u2066")
    shown, reason = (content.content.text for content in start.content or [])
    assert "ls \\u202e # x\\x1b[2J" in shown and reason == "\\u2066"


def test_a_failed_edit_shows_its_words_and_not_the_change() -> None:
    change = FileChange(Path("/w/a.py"), "a.py", "a", "b")
    failed = Message(id="e1", timestamp=NOW, role="tool", text="no", call_id="c1", is_error=True)
    assert [content.type for content in finish_call(failed, change).content or []] == ["content"]
    done = Message(id="e1", timestamp=NOW, role="tool", text="ok", call_id="c1", images=(ImageEntry(media_type="image/png", data="AAAA"),))  # fmt: skip  # noqa: E501
    assert [content.type for content in finish_call(done, change).content or []] == ["content", "diff"]


def test_the_history_has_each_message_with_its_id() -> None:
    path = [
        Message(
            id="e1", timestamp=NOW, role="user", text="hi", images=(ImageEntry(media_type="image/png", data="AA"),)
        ),
        Message(id="e2", timestamp=NOW, role="assistant", thought="hm", text="yes", calls=(call("glob", pattern="*"),)),
        Message(id="e3", timestamp=NOW, role="tool", text="a.py", call_id="c1", tool="glob"),
    ]
    told = [(update.session_update, getattr(update, "message_id", None)) for update in replay(path, FOLDERS)]
    assert told == [
        ("user_message_chunk", "e1"), ("user_message_chunk", "e1"), ("agent_thought_chunk", None),
        ("agent_message_chunk", "e2"), ("tool_call", None), ("tool_call_update", None),
    ]  # fmt: skip
