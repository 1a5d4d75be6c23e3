"""OpenCode's database, captured at the end of turns: nothing that was there is lost, and nothing is kept twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perdure
from perdure import formats
from perdure.archive.run_files import split_source_lines
from perdure.capture import failures
from perdure.capture.lines import Line
from rig.resident import ScriptedResident

HOOK = Path(perdure.__file__).parent / "capture" / "__main__.py"
SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text NOT NULL,
  title text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
"""


class OpenCode:
    """The database, as the client writes it; it stays open, with its log beside it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True)
        self.path, self.db = path, apsw.Connection(str(path))
        self.db.execute("PRAGMA journal_mode = wal")
        self.db.execute(SCHEMA)
        self.said: dict[str, dict[str, str]] = {}  # session -> message -> its words now

    def session(self, name: str, parent: str | None = None, *, at_ms: int = 1_768_467_600_000) -> None:
        row = (name, parent, at_ms + len(self.said))
        self.db.execute("INSERT INTO session VALUES (?, 'p', ?, '/w', 'New', ?, 0)", row)
        self.said[name] = {}

    def say(self, session: str, message: str, words: str, *, created_ms: int = 0) -> None:
        """Put a message in, or change it in its place."""
        n, role = int(message[3:]), "user" if int(message[3:]) % 2 else "assistant"
        created_ms = created_ms or 1_768_467_600_000 + n * 1000
        data = json.dumps({"role": role, "time": {"created": created_ms}, "n": len(words)})
        self.db.execute("INSERT OR REPLACE INTO message VALUES (?, ?, ?, 0, ?)", (message, session, created_ms, data))
        text = json.dumps({"type": "text", "text": words})
        part = (f"prt_{message}", message, session, text)
        self.db.execute("INSERT OR REPLACE INTO part VALUES (?, ?, ?, 0, 0, ?)", part)
        self.said[session][message] = words

    def undo(self, session: str, message: str) -> None:
        self.db.execute("DELETE FROM part WHERE message_id = ?", (message,))
        self.db.execute("DELETE FROM message WHERE id = ?", (message,))
        self.said[session].pop(message, None)

    def rename(self, session: str, title: str) -> None:
        self.db.execute("UPDATE session SET title = ? WHERE id = ?", (title, session))


def called(home: Path, said: dict, *words: str) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-IS", str(HOOK), "opencode", *words, "--home", str(home)]
    env = {**os.environ, "HOME": str(home.parent)}
    env.pop("XDG_DATA_HOME", None)
    return subprocess.run(line, input=json.dumps(said).encode(), capture_output=True, env=env, timeout=60, check=False)


def idle(session: str, **more: object) -> dict:
    return {"hook_event_name": "session.idle", "session_id": session, "cwd": "/w", **more}


def kept(home: Path) -> dict[str, list[bytes]]:
    """Session -> its lines in the archive, in order."""
    found: dict[str, list[bytes]] = {}
    with perdure.open(home) as opened:
        opened.captures.drain()
        for held in sorted(opened.archive.ledger.list_runs(), key=lambda held: held.from_offset):
            run = opened.archive.read_run(held)
            assert run.source.generation == 0
            rows = found.setdefault(run.source.session, [])
            rows += [line.raw for line, _ in split_source_lines(run, opened.archive.read(held))]
    return found


def words_of(lines: list[bytes]) -> dict[str, str]:
    """Message -> its words, as the last line of it has them."""
    offset, placed = 0, []
    for raw in lines:
        placed.append(Line(offset, raw))
        offset += len(raw) + 1
    return {str(turn.native_id): turn.text() for turn in formats.parse("opencode", placed).turns}


@pytest.fixture
def opencode(tmp_path: Path) -> OpenCode:
    return OpenCode(tmp_path / ".local" / "share" / "opencode" / "opencode.db")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with perdure.open(tmp_path / "home"):
        return tmp_path / "home"


def test_turn_is_captured_with_later_changes(home: Path, opencode: OpenCode) -> None:
    """The client changes a person's message behind the end of its turn; the next capture brings that and no more."""
    opencode.session("ses_1")
    opencode.session("ses_2")
    opencode.say("ses_1", "msg1", "on which quay?")
    opencode.say("ses_1", "msg2", "quay four")
    opencode.say("ses_2", "msg3", "another session")
    assert called(home, idle("ses_1")).returncode == 0
    assert set(kept(home)) == {"ses_1"}
    opencode.say("ses_1", "msg1", "on which quay, and when?")
    opencode.say("ses_1", "msg5", "thanks")
    assert called(home, idle("ses_1")).stdout == b""
    assert called(home, idle("ses_1")).stdout == b""
    (lines,) = kept(home).values()
    assert len(lines) == len(set(lines)) == 2 + 2 + 2  # header and title; two messages; a changed and a new one
    assert words_of(lines) == opencode.said["ses_1"]
    with perdure.open(home) as opened:
        opened.upkeep.catch_up()
        assert [hit.text for hit in opened.search("quay", mode="keyword").hits if hit.role == "user"] == [
            "on which quay, and when?"
        ]
    assert failures.read_failures(home) == []


def test_sub_agents_come_with_their_session_and_all_at_the_end(home: Path, opencode: OpenCode) -> None:
    opencode.session("ses_1")
    opencode.session("ses_1a", "ses_1")
    opencode.session("ses_2")
    for n, session in enumerate(("ses_1", "ses_1a", "ses_2"), start=1):
        opencode.say(session, f"msg{2 * n - 1}", f"words of {session}")
    called(home, {"hook_event_name": "dispose", "sessions": ["ses_1", "ses_2", "ses_gone"], "cwd": "/w"})
    assert set(kept(home)) == {"ses_1", "ses_1a", "ses_2"}
    with perdure.open(home) as opened:
        opened.upkeep.catch_up()
        top, below = opened.runs.conversation("ses_1")
        assert (below.session, below.parent_run_id) == ("ses_1a", top.run_id)


def test_forked_copy_is_found_once(home: Path, opencode: OpenCode) -> None:
    """Copies have new ids and the time of the first; of what was said at the same moment elsewhere nothing is lost."""
    opencode.session("ses_1")
    opencode.say("ses_1", "msg1", "on which quay does the ferry moor?")
    opencode.say("ses_1", "msg2", "at quay four")
    opencode.session("ses_0", at_ms=1_768_467_700_000)
    for message, first, words in (("msg11", 1, "on which quay does the ferry moor?"), ("msg12", 2, "at quay four")):
        opencode.say("ses_0", message, words, created_ms=1_768_467_600_000 + first * 1000)
    opencode.say("ses_0", "msg131", "and the ferry to Tallinn?")
    opencode.session("ses_2", at_ms=1_768_467_650_000)
    opencode.say("ses_2", "msg21", "another question on the ferry", created_ms=1_768_467_601_000)
    for session in ("ses_1", "ses_0", "ses_2", "ses_1"):
        called(home, idle(session))
    with perdure.open(home) as opened:
        opened.captures.drain()
        opened.upkeep.catch_up()
        hits = opened.search("ferry", mode="keyword").hits
        assert sorted(hit.text for hit in hits) == [
            "and the ferry to Tallinn?", "another question on the ferry", "on which quay does the ferry moor?",
        ]  # fmt: skip
        assert len(opened.search("quay four", mode="keyword").hits) == 2  # the question and the answer, each once


def test_forked_copy_stays_a_copy_when_its_source_is_deleted(home: Path, opencode: OpenCode) -> None:
    opencode.session("ses_1")
    opencode.say("ses_1", "msg1", "on which quay does the ferry moor?")
    opencode.session("ses_0", at_ms=1_768_467_700_000)
    opencode.say("ses_0", "msg11", "on which quay does the ferry moor?", created_ms=1_768_467_601_000)
    for session in ("ses_1", "ses_0"):
        called(home, idle(session))
    opencode.undo("ses_1", "msg1")
    opencode.db.execute("DELETE FROM session WHERE id = 'ses_1'")
    called(home, idle("ses_0"))
    with perdure.open(home) as opened:
        opened.import_files([opencode.path])
        assert len(opened.search("ferry", mode="keyword").hits) == 1
    assert len(kept(home)["ses_0"]) == 3
    opencode.say("ses_0", "msg11", "where does the ferry moor?", created_ms=1_768_467_601_000)
    called(home, idle("ses_0"))
    assert words_of(kept(home)["ses_0"]) == {"msg1": "where does the ferry moor?"}


def test_an_import_and_live_captures_agree(home: Path, opencode: OpenCode) -> None:
    """Whoever comes first: what the other has seen is not kept twice, also when all that was posted is not known."""
    opencode.session("ses_1")
    opencode.say("ses_1", "msg1", "one")
    with perdure.open(home) as opened:
        opened.import_files([opencode.path])
    called(home, idle("ses_1"))
    opencode.say("ses_1", "msg1", "one, changed")
    called(home, idle("ses_1"))
    opencode.say("ses_1", "msg3", "three")
    with perdure.open(home) as opened:
        opened.import_files([opencode.path])
    for path in (home / "outbox" / "cursors").glob("*.lines"):
        path.unlink()
    called(home, idle("ses_1"))
    (lines,) = kept(home).values()
    assert len(lines) == len(set(lines)) == 5 and words_of(lines) == opencode.said["ses_1"]


def test_forgotten_words_do_not_return_with_the_next_turn(home: Path, opencode: OpenCode, grep) -> None:
    opencode.session("ses_1")
    opencode.say("ses_1", "msg1", "the xylophone is in the cellar")
    called(home, idle("ses_1"))
    with perdure.open(home) as opened:
        opened.captures.drain()
        opened.upkeep.catch_up()
        (hit,) = opened.search("xylophone", mode="keyword").hits
        opened.forgetting.apply(opened.forgetting.plan([hit.turn_id]))
    for path in (home / "outbox" / "cursors").glob("*.lines"):
        path.unlink()
    opencode.say("ses_1", "msg3", "and the piano?")
    called(home, idle("ses_1"))
    (lines,) = kept(home).values()
    assert words_of(lines) == {"msg3": "and the piano?"} and grep(home, b"xylophone") == []


@pytest.mark.parametrize("switch", ["pause", "exclude", "incognito"])
def test_excluded_session_is_not_copied(switch: str, home: Path, opencode: OpenCode, grep) -> None:
    opencode.session("ses_1")
    opencode.say("ses_1", "msg1", "xylophone")
    with perdure.open(home) as opened:
        if switch == "pause":
            opened.captures.pause()
        elif switch == "exclude":
            (home / "config.toml").write_text('[capture]\nexclude = ["/w"]\n')
        else:
            opened.captures.mark_incognito("opencode", "ses_1")
    done = called(home, idle("ses_1"))
    assert (done.returncode, done.stdout) == (0, b"")
    assert grep(home, b"xylophone") == [] and failures.read_failures(home) == []


@pytest.mark.parametrize("harm", ["none", "no database", "locked", "another schema"])
def test_client_continues_with_any_broken_database(harm: str, home: Path, opencode: OpenCode) -> None:
    opencode.session("ses_1")
    if harm == "none":
        opencode.path.unlink()
    elif harm == "no database":
        opencode.path.write_bytes(b"{")
    elif harm == "locked":
        opencode.db.execute("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE")
    else:
        opencode.db.execute("DROP TABLE part")
    began_s = time.monotonic()
    assert called(home, idle("ses_1")).returncode == 0
    assert time.monotonic() - began_s < 12
    assert [item["stage"] for item in failures.read_failures(home)] in ([], ["capture"])


def test_recall_does_not_wait_for_a_locked_database(home: Path, opencode: OpenCode) -> None:
    opencode.session("ses_1")
    opencode.db.execute("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE")
    said = {"session_id": "ses_1", "cwd": "/w", "prompt": "where?"}
    with ScriptedResident(home, "MARK-{kind}", notice="look") as resident:
        first = called(home, {**said, "hook_event_name": "chat.message"})
        spawned = called(home, {**said, "hook_event_name": "chat.message", "agent_id": "ses_1"})
        start = called(home, {**said, "hook_event_name": "session.created", "source": "resume"})
        emptied = called(home, {**said, "hook_event_name": "session.compacted"})
    assert json.loads(first.stdout) == {"text": "MARK-prompt", "notice": "look"} and spawned.stdout == b""
    assert (
        json.loads(start.stdout)["text"] == "MARK-start" and json.loads(emptied.stdout)["text"] == "MARK-after-compact"
    )
    assert [asked["event"]["kind"] for asked in resident.asked] == ["prompt", "start", "after-compact"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "say", "say", "undo", "rename", "post", "drain", "import", "lose"]),
              st.sampled_from(["ses_1", "ses_1a", "ses_2"]), st.integers(1, 6)),
    min_size=4, max_size=25,
)  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_every_captured_state_is_kept_in_any_order(tmp_path_factory, steps: list[tuple[str, str, int]]) -> None:
    """Each state that a capture saw is kept, once; and the last of a message is the one that stands.

    Words never return to what they were: a state that is kept already is not kept again.
    """
    place = tmp_path_factory.mktemp("o")
    opencode = OpenCode(place / "opencode.db" / "opencode.db")
    for name, parent in (("ses_1", None), ("ses_1a", "ses_1"), ("ses_2", None)):
        opencode.session(name, parent)
    seen: dict[str, set[bytes]] = {name: set() for name in opencode.said}
    with perdure.open(place / "home") as home:
        for n, (what, session, number) in enumerate([*steps, ("post", "ses_1", 0), ("post", "ses_2", 0)]):
            if what == "say":
                opencode.say(session, f"msg{number}{list(opencode.said).index(session)}", f"words of step {n}")
            elif what == "undo":
                opencode.undo(session, f"msg{number}{list(opencode.said).index(session)}")
            elif what == "rename":
                opencode.rename(session, f"title of step {n}")
            elif what == "post":
                for whose, lines in formats.emit_session("opencode", opencode.path, session):
                    home.captures.enqueue_lines(whose, lines, path=str(opencode.path))
                    seen[whose.session] |= set(lines)
            elif what == "drain":
                home.captures.drain()
            elif what == "import":
                home.import_files([opencode.path], index=False)
                for whose, lines in formats.emit("opencode", opencode.path):
                    seen[whose.session] |= set(lines)
            else:
                for path in (home.path / "outbox" / "cursors").glob("*.lines"):
                    path.unlink()
    found = kept(place / "home")
    for session, said in opencode.said.items():
        lines = found.get(session, [])
        assert len(lines) == len(set(lines)) and set(lines) == seen[session]
        assert {name: words for name, words in words_of(lines).items() if name in said} == said


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("AB"), st.sampled_from(["", "drain", "lose"])),
                min_size=2, max_size=8))  # fmt: skip
def test_last_captured_state_is_the_current_one(tmp_path_factory, states: list[tuple[str, str, str]]) -> None:
    """Whatever states a message and a title go through: the last that was captured is the last in the database."""
    place = tmp_path_factory.mktemp("o")
    opencode = OpenCode(place / "opencode.db" / "opencode.db")
    opencode.session("ses_1")
    with perdure.open(place / "home") as home:
        for words, title, then in states:
            opencode.say("ses_1", "msg1", words)
            opencode.rename("ses_1", title)
            for whose, lines in formats.emit_session("opencode", opencode.path, "ses_1"):
                home.captures.enqueue_lines(whose, lines, path=str(opencode.path))
            if then:
                home.captures.drain()
            for path in (home.path / "outbox" / "cursors").glob("*.lines") if then == "lose" else ():
                path.unlink()
        home.import_files([opencode.path], index=False)
    lines = kept(place / "home")["ses_1"]
    parsed = formats.parse("opencode", [Line(n, raw) for n, raw in enumerate(lines)])
    assert (
        len(lines)
        == len(set(lines))
        == 1
        + sum(1 + sum(before != now for before, now in pairwise(one)) for one in list(zip(*states, strict=True))[:2])
    )
    assert (words_of(lines), parsed.title) == ({"msg1": states[-1][0]}, states[-1][1])
