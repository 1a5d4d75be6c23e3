"""Whatever stamp a line carries, every format reads the line, and what it takes for an instant any zone can show."""

import json
from datetime import timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.capture.lines import Line, find_first_stamp, find_last_stamp
from perdure.formats import emit, parse

ZONES = [timezone(timedelta(hours=hours)) for hours in (-14, 0, 14)]
EDGES = [
    "0001-01-01T00:00:00",
    "9999-12-31T23:59:59.999999",
    "9999-12-31T24:00:00",
    "0000-00-00T00:00:00",
    "2026-01-01T00:00:00",
]
OFFSETS = ["", "Z", "+00:00", "+01:00", "-14:00", "+14:00", "+23:59", "-23:59", "+99:99"]
stamps = st.one_of(
    st.builds(str.__add__, st.sampled_from(EDGES), st.sampled_from(OFFSETS)),
    st.datetimes().map(lambda at: at.isoformat() + "+14:00"),
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=30), st.none(),
    st.lists(st.integers(), max_size=2),
)  # fmt: skip


def rows(runtime, at):
    """Lines of a runtime, each with its stamp under the name that the runtime has for it."""
    said = {"role": "user", "content": "hello"}
    if runtime == "claude-code":
        return [{"type": "user", "uuid": "u", "sessionId": "s", "timestamp": at, "message": said}]
    if runtime == "codex":
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
        return [{"timestamp": at, "type": "response_item", "payload": item}]
    if runtime == "copilot-cli":
        return [{"type": "user.message", "id": "e", "timestamp": at, "data": {"content": "hello"}}]
    if runtime == "pi":
        return [{"type": "message", "id": "m", "timestamp": at, "message": {**said, "timestamp": at}}]
    if runtime == "gemini-cli":
        return [{"id": "m", "type": "user", "timestamp": at, "content": "hello"}]
    if runtime == "opencode":
        info = {"id": "m", "role": "user", "time": {"created": at}}
        return [{"info": info, "time": at, "parts": [{"type": "text", "text": "hello", "time": {"start": at}}]}]
    return [{**said, "timestamp": at}]


@pytest.mark.parametrize(
    "runtime", ["claude-code", "codex", "copilot-cli", "pi", "gemini-cli", "opencode", "messages", "notes"]
)
@settings(max_examples=60, deadline=None)
@given(at=stamps)
def test_no_stamp_stops_a_reader(runtime, at):
    lines, offset = [], 0
    for row in rows(runtime, at):
        raw = json.dumps(row).encode()
        lines.append(Line(offset, raw))
        offset += len(raw) + 1
    for stated_at in (
        *(turn.stated_at for turn in parse(runtime, lines).turns),
        find_first_stamp(raw),
        find_last_stamp(raw),
    ):
        if stated_at is not None:
            assert [stated_at.astimezone(zone) for zone in ZONES]


@settings(max_examples=60, deadline=None)
@given(at=stamps)
def test_no_stamp_stops_a_document(at):
    """Formats whose files are documents, of which lines are made first."""
    said = {"role": "user", "content": "hello", "timestamp": at}
    gemini = {"sessionId": "s", "startTime": at, "lastUpdated": at, "messages": rows("gemini-cli", at)}
    assert emit("messages", json.dumps([said]).encode())
    assert emit("gemini-cli", json.dumps(gemini).encode())
