"""A session as a document, and what is said of a branch that is left."""

from datetime import UTC, datetime

from perdure.formats.perdure import Boundary, CallEntry, Mask, Message
from perdure.session.catalog import SessionOverview
from perdure.session.export import list_messages, mask_value, summarise_left_branch, to_markdown

AT = datetime(2026, 1, 15, 9, tzinfo=UTC)
OVERVIEW = SessionOverview(session="s1", title="The attic", agent="default", created_at=AT, updated_at=AT, leaf="e5")


def say(entry_id, role, text, **more):
    return Message(id=entry_id, timestamp=AT, role=role, text=text, **more)


PATH = [
    say("e1", "user", "Look at `a`."),
    say("e2", "assistant", "I look.", calls=(CallEntry(id="c1", name="read", input={"path": "a", "n": 3}),)),
    say("e3", "tool", "```\nalpha\n```", call_id="c1", tool="read", is_error=True),
    say("e4", "assistant", "It failed."),
]


def hide(text):
    return text.replace("alpha", "…")


def test_no_output_ends_its_block():
    document = to_markdown(OVERVIEW, PATH, str)
    assert document.startswith(
        "# The attic\n\nSession s1, begun 2026-01-15 09:00 UTC\n\n## You, 2026-01-15 09:00 UTC\n"
    )
    assert "## Tool read (error), 2026-01-15 09:00 UTC\n\n````\n```\nalpha\n```\n````\n" in document
    assert 'Calls read:\n\n```\n{\n  "path": "a",\n  "n": 3\n}\n```' in document


def test_compactions_and_masks_change_nothing():
    mask = Mask(id="e5", timestamp=AT, entries=("e3",))
    path = [*PATH, mask, Boundary(id="e6", timestamp=AT, first_kept="e4", summary="They looked.")]
    assert to_markdown(OVERVIEW, path, str) == to_markdown(OVERVIEW, PATH, str)
    assert list_messages(path, str) == list_messages(PATH, str)


def test_secrets_are_hidden_everywhere_in_a_message():
    assert "alpha" not in to_markdown(OVERVIEW, PATH, hide)
    assert "alpha" not in str(list_messages(PATH, hide))
    assert mask_value({"a": ["alpha", 3, None, {"b": "alpha"}]}, hide) == {"a": ["…", 3, None, {"b": "…"}]}


def test_a_left_branch_is_told_by_its_questions_and_its_last_answer():
    summary = summarise_left_branch(PATH)
    assert summary.splitlines() == [
        "[Another way was tried from here, and left.]",
        "Asked there:",
        "- Look at `a`.",
        "Its last answer: It failed.",
    ]
    assert summarise_left_branch([PATH[2]]) == ""
