"""OpenCode: a database as version 1.18 makes it, and an export."""

import json

import apsw
import pytest

from perdure.errors import FormatFault
from perdure.formats import detect, emit, identify, is_append_only, list_new_lines, parse

SCHEMA = """
CREATE TABLE `session` (`id` text PRIMARY KEY, `project_id` text NOT NULL, `parent_id` text, `slug` text,
  `directory` text NOT NULL, `title` text NOT NULL,
  `version` text NOT NULL, `time_created` integer NOT NULL, `time_updated` integer NOT NULL);
CREATE TABLE `message` (`id` text PRIMARY KEY, `session_id` text NOT NULL, `time_created` integer NOT NULL,
  `time_updated` integer NOT NULL, `data` text NOT NULL);
CREATE TABLE `part` (`id` text PRIMARY KEY, `message_id` text NOT NULL, `session_id` text NOT NULL,
  `time_created` integer NOT NULL, `time_updated` integer NOT NULL, `data` text NOT NULL);
"""
USER = {"role": "user", "time": {"created": 1763681581544}, "agent": "build"}
AGENT = {
    "role": "assistant",
    "time": {"created": 1763681582000},
    "modelID": "m",
    "providerID": "p",
    "tokens": {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}},
}
TOOL = {
    "type": "tool",
    "tool": "read",
    "callID": "c1",
    "state": {"status": "completed", "input": {"filePath": "/w/a"}, "output": "body"},
}


@pytest.fixture
def database(tmp_path):
    """A database in WAL mode with a session, its sub-agent's session, and the client still connected."""
    path = tmp_path / "opencode.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute(SCHEMA)
    for row in (("ses_2", "ses_1", "Sub", 20), ("ses_1", None, "Read a", 10)):
        connection.execute("INSERT INTO session VALUES (?, 'p', ?, 's', '/w', ?, '1.18', ?, 99)", row)
    for id, session, at, data in (
        ("msg_1", "ses_1", 1, USER),
        ("msg_2", "ses_1", 2, AGENT),
        ("msg_3", "ses_2", 3, USER),
    ):
        connection.execute("INSERT INTO message VALUES (?, ?, ?, 0, ?)", (id, session, at, json.dumps(data)))
    parts = [
        ("prt_1", "msg_1", "ses_1", {"type": "text", "text": "read a"}),
        ("prt_2", "msg_1", "ses_1", {"type": "text", "text": "recalled", "synthetic": True}),
        ("prt_3", "msg_2", "ses_1", {"type": "step-start"}),
        ("prt_4", "msg_2", "ses_1", {"type": "reasoning", "text": "hm"}),
        ("prt_5", "msg_2", "ses_1", TOOL),
        ("prt_6", "msg_2", "ses_1", {"type": "text", "text": "It says body."}),
        ("prt_7", "msg_3", "ses_2", {"type": "text", "text": "task"}),
    ]
    for id, message, session, data in parts:
        connection.execute("INSERT INTO part VALUES (?, ?, ?, 0, 0, ?)", (id, message, session, json.dumps(data)))
    yield path
    connection.close()


def test_a_database_becomes_sessions_of_lines(database, as_lines):
    """Tokens 1 + 2 + 3 + 4 + 5 = 15."""
    (origin, lines), (sub, sub_lines) = emit("opencode", database)
    assert (origin.session, origin.conversation, origin.parent_session, origin.cwd) == ("ses_1", "ses_1", None, "/w")
    assert (sub.session, sub.conversation, sub.parent_session) == ("ses_2", "ses_1", "ses_1")
    parsed = parse("opencode", as_lines(*lines))
    said, did = parsed.turns
    assert (said.role, said.author, said.native_id) == ("user", "person", "msg_1")
    assert [(p.kind, p.text) for p in said.parts] == [("text", "read a"), ("pasted", "recalled")]
    assert (did.model, did.n_tokens, did.files) == ("m", 15, ("/w/a",))
    assert [(p.kind, p.text, p.name) for p in did.parts] == [
        ("thinking", "hm", ""),
        ("call", '{"filePath":"/w/a"}', "read"),
        ("result", "body", "read"),
        ("text", "It says body.", ""),
    ]
    assert (parsed.title, parsed.skipped) == ("Read a", {"header": 1, "title": 1})
    assert parse("opencode", as_lines(*sub_lines)).turns[0].author == "machine"


def test_the_same_database_gives_the_same_lines(database):
    first = emit("opencode", database)
    connection = apsw.Connection(str(database))
    connection.execute("UPDATE session SET time_updated = 100")
    assert emit("opencode", database) == first
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert emit("opencode", database.read_bytes()) == first
    connection.close()


def test_a_changed_message_is_a_new_line_with_the_same_id(database, as_lines):
    before = emit("opencode", database)[0][1]
    with apsw.Connection(str(database)) as connection:
        connection.execute("UPDATE part SET data = json_set(data, '$.text', 'It says more.') WHERE id = 'prt_6'")
    connection.close()
    after = emit("opencode", database)[0][1]
    changed = [line for line in after if line not in before]
    assert len(changed) == 1
    (turn,) = parse("opencode", as_lines(*changed)).turns
    assert (turn.native_id, turn.parts[-1].text) == ("msg_2", "It says more.")
    both = parse("opencode", as_lines(*before, *changed)).turns
    assert [t.native_id for t in both] == ["msg_1", "msg_2"]
    assert (len(both[1].lines), both[1].parts[-1].text) == (2, "It says more.")


def test_invalid_utf8_costs_only_its_own_text(database, as_lines):
    """What can be read of it is kept, and so is all that is beside it."""
    connection = apsw.Connection(str(database))
    bad = b'{"type":"text","text":"read \xff a"}'
    connection.execute("UPDATE part SET data = CAST(? AS TEXT) WHERE id = 'prt_1'", (bad,))
    connection.execute("UPDATE session SET title = CAST(? AS TEXT) WHERE id = 'ses_1'", (b"Re\xffad",))
    connection.execute("UPDATE message SET id = CAST(? AS TEXT) WHERE id = 'msg_2'", (b"msg\xff2",))
    connection.execute("UPDATE part SET message_id = CAST(? AS TEXT) WHERE message_id = 'msg_2'", (b"msg\xff2",))
    connection.execute("UPDATE message SET data = CAST(? AS TEXT) WHERE id = 'msg_3'", (b'{"\xff',))
    (_, lines), (_, below) = emit("opencode", database)
    parsed = parse("opencode", as_lines(*lines))
    assert [turn.text("text") for turn in parsed.turns] == ["read \ufffd a", "It says body."]
    assert (parsed.title, parsed.turns[1].native_id) == ("Re\ufffdad", "msg\ufffd2") and len(below) == 3


def test_messages_without_an_id_are_matched_by_content():
    lines = [b'{"info":{"role":"user"},"parts":[%d]}' % n for n in range(2)]
    assert list_new_lines("opencode", lines, lines, is_live=True) == []


def test_parsing_a_database_writes_nothing(database):
    before = sorted(
        (p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in database.parent.iterdir() if p.suffix != ".db-shm"
    )
    emit("opencode", database)
    after = sorted(
        (p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in database.parent.iterdir() if p.suffix != ".db-shm"
    )
    assert [row for row in after if not row[0].endswith("-shm")] == [
        row for row in before if not row[0].endswith("-shm")
    ]


def test_default_title_is_no_title(as_lines):
    lines = [{"session": {"id": "s"}}, {"title": "Read a"}, {"title": "New session - 2026-01-15T09:00:00.000Z"}]
    assert parse("opencode", as_lines(*(json.dumps(line).encode() for line in lines))).title == "Read a"
    assert parse("opencode", as_lines(*(json.dumps(line).encode() for line in lines[::2]))).title == ""


def test_exported_session_is_read(as_lines):
    export = {
        "info": {"id": "ses_9", "title": "T", "directory": "/w", "time": {"created": 1, "updated": 2}},
        "messages": [
            {
                "info": {"id": "msg_1", "sessionID": "ses_9", **USER},
                "parts": [
                    {"type": "text", "text": "hi"},
                    {"type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,aGk="},
                ],
            },
            {
                "info": {"id": "msg_2", "sessionID": "ses_9", **AGENT, "summary": True},
                "parts": [
                    {
                        "type": "tool",
                        "tool": "bash",
                        "callID": "c",
                        "state": {"status": "error", "input": {}, "error": "no"},
                    }
                ],
            },
        ],
    }
    for indent in (None, 2):
        data = json.dumps(export, indent=indent).encode()
        assert (detect(data), is_append_only("opencode", data), identify("opencode", data, "").session) == (
            "opencode",
            False,
            "ses_9",
        )
        ((_, lines),) = emit("opencode", data)
        said, summary = parse("opencode", as_lines(*lines)).turns
        assert [(p.kind, p.text) for p in said.parts] == [("text", "hi"), ("image", "[image/png 2 bytes]")]
        assert (summary.is_summary, summary.parts[1].text, summary.parts[1].is_error) == (True, "no", True)


def test_export_and_database_give_the_same_message_lines(database):
    """The export has the message's ids inside; so do our lines."""
    from_database = emit("opencode", database)[0][1]
    message = json.loads(from_database[2])
    export = {"info": {"id": "ses_1", "title": "Read a", "directory": "/w"}, "messages": [message]}
    assert emit("opencode", json.dumps(export).encode())[0][1][2] == from_database[2]


def test_database_is_recognised_by_its_tables(database):
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    head = database.read_bytes()[:65_536]
    assert detect(head, "renamed.sqlite") == "opencode"
    assert not is_append_only("opencode", head)
    assert detect(b"SQLite format 3\0" + bytes(100), "opencode.db") == "opencode"
    assert detect(b"SQLite format 3\0" + bytes(100), "history.db") is None


def test_another_database_is_refused(tmp_path):
    path = tmp_path / "x.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    for data in (path, path.read_bytes(), b"SQLite format 3\0rubbish", b"not json", tmp_path / "x.db"):
        with pytest.raises(FormatFault):
            emit("opencode", data)
