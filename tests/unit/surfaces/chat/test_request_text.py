"""What a person is asked about stands there in full."""

from __future__ import annotations

from pathlib import Path

from perdure.agent.commands import CallRisk, Risk
from perdure.agent.permission import PermissionRequest
from perdure.agent.tools.files import FileChange
from perdure.formats.perdure import CallEntry
from perdure.surfaces.chat.request_text import format_diff, format_request


def show(name: str, risk: CallRisk, change: FileChange | None = None, **given: object) -> list[str]:
    request = PermissionRequest(CallEntry(id="c", name=name, input=given), (risk,), change)
    return [row for text in format_request(request) for row in text.plain.splitlines()]


def test_a_long_shell_line_is_shown_to_its_end_and_cannot_hide_it() -> None:
    command = "echo " + "a" * 500 + "\nrm -rf \x1b[8m/srv"
    rows = show("shell", CallRisk(Risk.HARD, "deletes files", "rm"), command=command)
    assert rows == ["● shell", "  command: echo " + "a" * 500, "    rm -rf \\x1b[8m/srv", "  deletes files"]


def test_a_change_is_shown_as_its_diff() -> None:
    change = FileChange(Path("/w/a.txt"), "a.txt", "one\ntwo\n", "one\n2\n")
    rows = show("edit_file", CallRisk(Risk.EDITS, "it changes a.txt", "a.txt"), change, path="a.txt")
    assert rows[0] == "● edit_file a.txt" and rows[-3:] == ["-two", "+2", "  it changes a.txt"]


def test_a_diff_has_its_colours() -> None:
    text = format_diff(["--- a/x", "+++ b/x", "@@ -1 +1 @@", "-old", "+new", " same"])
    styles = [text.plain[span.start : span.end].strip() + " " + str(span.style) for span in text.spans]
    assert styles == ["--- a/x bold", "+++ b/x bold", "@@ -1 +1 @@ cyan", "-old red", "+new green", "same dim"]
