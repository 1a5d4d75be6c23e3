"""The log of a session: what was acknowledged is there after any end of its process, once; and what may not be kept
is nowhere.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

import perdure
from perdure.capture import session_file
from perdure.errors import NewerFormat, SessionHeld, SessionMissing, UsageError
from perdure.forgetting import delete_user_files
from perdure.formats.perdure import INTERRUPTED, Boundary, CallEntry, Message
from perdure.session.log import create_log, list_session_ids, open_log, read_path, read_tree
from perdure.session.session import open_session
from perdure.surfaces.cli import cli
from perdure.testing import ScriptedChat
from perdure.types import ForgetRequest, Source

CALLS = (CallEntry(id="c1", name="read", input={"path": "a"}), CallEntry(id="c2", name="read", input={"path": "b"}))
STAMP = "2026-01-15T09:00:00Z"
SETTINGS = "[memories]\nstated = false\n"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text(SETTINGS)
    return tmp_path / "home"


def write_turn(log, n=0):
    """Append a turn with two calls; return its ids."""
    entries = [
        {"role": "user", "text": f"What do the files say? {n}"},
        {"role": "assistant", "text": "I look.", "calls": CALLS},
        {"role": "tool", "text": "alpha", "call_id": "c1", "tool": "read"},
        {"role": "tool", "text": "beta", "call_id": "c2", "tool": "read"},
        {"role": "assistant", "text": f"They say alpha and beta. {n}"},
    ]
    ids = []
    for fields in entries:
        message = Message(**fields, **log.make_fields())
        log.append(message)
        ids.append(message.id)
    return ids


def list_ids(home, session):
    return [entry.id for entry in read_tree(home, session)]


def read_stored_ids(home, session):
    """The ids of all entries in the archive, as often as they are there."""
    source = Source("ada", "perdure", session, 0)
    lines = [line for run in home.archive.ledger.list_source_runs(source) for line in home.archive.read_lines(run)]
    return Counter(json.loads(line.raw)["id"] for line in lines)


def abandon(log):
    """End as a killed process does: the lock goes, the file stays."""
    log._file.close()


# every cut ------------------------------------------------------------------------------------------------------


def test_every_cut_of_a_turn_resumes_with_what_was_acknowledged(place):
    """At each byte a reader sees the whole lines. At each line, and in the middle of each, a resume holds them once,
    and each call without a result is closed once.
    """
    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd="/w")
        first_ids = [log.tree.leaf, *write_turn(log)]
        log.archive()
        second_ids = write_turn(log, 1)
        abandon(log)
        session = log.session
        path = session_file.to_path(place, session)
        data = path.read_bytes()
        ends = [n + 1 for n, byte in enumerate(data) if byte == 10]
        for n_bytes in range(len(data) + 1):
            path.write_bytes(data[:n_bytes])
            n_complete = sum(end <= n_bytes for end in ends[1:])
            assert list_ids(home, session) == [*first_ids, *second_ids[:n_complete]]
    cuts = sorted({0, *ends, *(end - 5 for end in ends)})
    for n_bytes in cuts:
        copy = place.with_name(f"cut-{n_bytes}")
        shutil.copytree(place, copy)
        session_file.to_path(copy, session).write_bytes(data[:n_bytes])
        acknowledged_ids = [*first_ids, *second_ids[: sum(end <= n_bytes for end in ends[1:])]]
        check_resume(copy, session, acknowledged_ids)


def check_resume(place, session, acknowledged_ids):
    for _ in range(2):  # a second resume finds nothing to close
        with perdure.open(place, user="ada") as home, open_session(home, session, chat=ScriptedChat()) as held:
            path = held.log.find_path()
            assert [entry.id for entry in path][: len(acknowledged_ids)] == acknowledged_ids
            closings = [entry for entry in path[len(acknowledged_ids) :] if entry.text == INTERRUPTED]
            answered = {entry.call_id for entry in path if isinstance(entry, Message) and entry.call_id}
            assert len(path) == len(acknowledged_ids) + len(closings)

            assert all(call.id in answered for entry in path if isinstance(entry, Message) for call in entry.calls)
    with perdure.open(place, user="ada") as home:
        assert set(read_stored_ids(home, session).values()) == {1}
        assert home.upkeep.verify().ok


def test_a_call_without_a_result_is_closed_once(place):
    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd=None)
        for fields in ({"role": "user", "text": "go"}, {"role": "assistant", "calls": CALLS}):
            log.append(Message(**fields, **log.make_fields()))
        log.append(Message(role="tool", text="alpha", call_id="c1", tool="read", **log.make_fields()))
        abandon(log)
    for _ in range(2):
        with perdure.open(place, user="ada") as home, open_session(home, log.session, chat=ScriptedChat()) as session:
            outputs = [(e.call_id, e.text, e.is_error) for e in session.log.find_path() if getattr(e, "call_id", "")]
            assert outputs == [("c1", "alpha", False), ("c2", INTERRUPTED, True)]


_CHILD = """
import json, os, signal, sys
from pathlib import Path
from click.testing import CliRunner

import perdure
from perdure.capture.session_file import SessionFile
from perdure.captures import Captures
from perdure.formats.perdure import CallEntry, Message
from perdure.session.log import create_log

place, step, n_left = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def strike(name):
    global n_left
    if name == step:
        n_left -= 1
        if n_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner, name):
    real = getattr(owner, name)
    def call(*args, **named):
        strike("before " + name)
        result = real(*args, **named)
        strike("after " + name)
        return result
    setattr(owner, name, call)


wrap(SessionFile, "append")
wrap(SessionFile, "begin")
wrap(Captures, "archive_session")
acknowledged = os.open(place.parent / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with perdure.open(place, user="ada") as home:
    log = create_log(home, cwd=None)
    os.write(acknowledged, (log.session + "\\n" + log.tree.leaf + "\\n").encode())
    for n in range(3):
        for role in ("user", "assistant"):
            message = Message(role=role, text=f"{role} {n}", **log.make_fields())
            log.append(message)
            os.write(acknowledged, (message.id + "\\n").encode())
        log.archive()
    log.close()
"""
_STRIKES = [
    ("before append", 4),
    ("after append", 4),
    ("after append", 7),
    ("before archive_session", 2),
    ("after archive_session", 1),
    ("after archive_session", 3),
    ("before begin", 3),
    ("after begin", 3),
]


@pytest.mark.parametrize(("step", "n"), _STRIKES)
def test_a_killed_process_loses_nothing_and_repeats_nothing(place, step, n):
    done = subprocess.run([sys.executable, "-c", _CHILD, place, step, str(n)], check=False)
    assert done.returncode == -9
    session, *ids = (place.parent / "acknowledged").read_text().split()
    with perdure.open(place, user="ada") as home:
        log = open_log(home, session)
        present_ids = [entry.id for entry in log.find_path()]
        assert present_ids[: len(ids)] == ids
        assert len(present_ids) <= len(ids) + 1  # one may have been on disk, and its process never heard of it
        write_turn(log)
        log.close()
        assert set(read_stored_ids(home, session).values()) == {1}
        assert home.search("user 0").hits
        assert session_file.measure_open(place) == (0, 0, 0, None, [])


def test_the_next_process_archives_what_a_killed_one_left(place):
    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd=None)
        ids = [log.tree.leaf, *write_turn(log)]
        abandon(log)
        assert session_file.measure_open(place).n_left == 1
        assert list_session_ids(home) == [log.session]
        home.captures.drain()
        assert session_file.measure_open(place).n_left == 0
        assert list_ids(home, log.session) == ids
        assert home.search("alpha and beta").hits


def test_a_damaged_file_holds_up_no_other(place):
    with perdure.open(place, user="ada") as home:
        first, second = create_log(home, cwd=None), create_log(home, cwd=None)
        for log in (first, second):
            write_turn(log)
            abandon(log)
        path = session_file.to_path(place, min(first.session, second.session))
        header = json.loads(path.read_bytes().split(b"\n")[0])
        path.write_bytes(json.dumps({**header, "origin": {"runtime": 5}}).encode() + b"\n{}\n")
        home.captures.drain()
        assert len(list_session_ids(home)) == 1
        assert len(session_file.measure_open(place).aside_paths) == 1


# one holder -----------------------------------------------------------------------------------------------------


def test_a_second_process_is_told_and_may_fork(place):
    with perdure.open(place, user="ada") as home, open_session(home, chat=ScriptedChat(["One."])) as session:
        session.say("The attic light is broken.")
        with perdure.open(place, user="ada") as other:
            with pytest.raises(SessionHeld, match="--fork"):
                open_session(other, session.session, chat=ScriptedChat())
            with open_session(other, session.session, fork=True, chat=ScriptedChat(["Two."])) as fork:
                fork.say("And the door squeaks.")
                texts = [entry.text for entry in fork.log.find_path() if isinstance(entry, Message)]
        assert texts == ["The attic light is broken.", "One.", "And the door squeaks.", "Two."]
        assert len(session.log.find_path()) == 3
        home.captures.drain()  # the session goes on being held
        session.say("Still here?")


# what may not be kept -------------------------------------------------------------------------------------------


def test_nothing_of_a_paused_session_is_on_disk(place, grep):
    with perdure.open(place, user="ada") as home:
        home.captures.pause()
        with open_session(home, chat=ScriptedChat(["The answer is marmalade."] * 2)) as session:
            session.say("Where is the marmalade?")
            assert session.say("Again?").text == "The answer is marmalade."
            assert len(session.log.find_path()) == 5
        assert list_session_ids(home) == []
    assert grep(place, b"marmalade") == []


def test_nothing_of_a_turn_during_a_pause_is_on_disk(place, grep):
    with perdure.open(place, user="ada") as home:
        with open_session(home, chat=ScriptedChat(["One.", "The marmalade.", "Three."])) as session:
            session.say("Hello.")
            home.captures.pause()
            session.say("Where is the marmalade?")
            home.captures.resume()
            session.say("And now?")
            assert len(session.log.find_path()) == 7
        assert grep(place, b"marmalade") == []
        texts = [entry.text for entry in read_path(home, session.session) if isinstance(entry, Message)]
        assert texts == ["Hello.", "One.", "And now?", "Three."]
        home.captures.pause()
        with open_session(home, session.session, chat=ScriptedChat(["The marmalade."])) as session:
            session.say("And the marmalade?")
        assert grep(place, b"marmalade") == []


def test_nothing_of_an_excluded_folder_or_incognito_is_on_disk(place, grep, tmp_path):
    (place / "config.toml").write_text(f'{SETTINGS}[capture]\nexclude = ["{tmp_path}/private"]\n')
    (tmp_path / "private").mkdir()
    with perdure.open(place, user="ada") as home:
        for cwd in (str(tmp_path / "private"), str(tmp_path)):
            with open_session(home, cwd=cwd, chat=ScriptedChat(["The marmalade."])) as session:
                if cwd == str(tmp_path):
                    home.captures.mark_incognito("perdure", session.session)
                session.say("Where is the marmalade?")
    assert grep(place, b"marmalade") == []


def test_a_home_that_is_only_read_answers_and_keeps_nothing(place, grep):
    with perdure.open(place, user="ada") as home, open_session(home, chat=ScriptedChat(["One."])) as session:
        session.say("Hello.")
    chat = ScriptedChat(["The marmalade."])
    with (
        perdure.open(place, user="ada", read_only=True) as home,
        open_session(home, session.session, chat=chat) as session,
    ):
        assert session.say("Where is the marmalade?").text == "The marmalade."
        assert len(session.log.find_path()) == 5
    assert grep(place, b"marmalade") == []


# what others do to a log ----------------------------------------------------------------------------------------


def test_a_log_of_a_newer_format_is_refused(place):
    with perdure.open(place, user="ada") as home:
        start = {"type": "session", "id": "e1", "timestamp": STAMP, "format": 2, "session": "s0123456789", "agent": "x"}
        home.capture(json.dumps(start).encode() + b"\n", runtime="perdure", session="s0123456789")
        with pytest.raises(NewerFormat, match="s0123456789"):
            open_session(home, "s0123456789", chat=ScriptedChat())


def test_hostile_lines_hide_no_others(place):
    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd=None)
        ids = [log.tree.leaf, *write_turn(log)]
        log.close()
        end = home.archive.ledger.get_end(Source("ada", "perdure", log.session, 0))
        lines = [
            b"[" * 5000,
            b'{"type":"message"}',
            b"\xff\x00",
            b'{"type":"branch","id":"ex","parent":"ex","timestamp":"2026-01-15T09:00:00"}',
        ]
        home.capture(b"".join(line + b"\n" for line in lines), runtime="perdure", session=log.session, from_offset=end)
        tree = read_tree(home, log.session)
        assert [entry.id for entry in tree.find_path()] == [*ids, "ex"]
        assert tree.n_unreadable == 3
        with open_session(home, log.session, chat=ScriptedChat(["Yes."])) as session:
            assert session.say("Still there?").text == "Yes."


def test_an_imported_log_can_be_read_and_forked_only(place, tmp_path):
    start = {
        "type": "session",
        "id": "e1",
        "timestamp": "2026-01-15T09:00:00Z",
        "format": 1,
        "session": "../../x",
        "agent": "x",
    }
    message = {
        "type": "message",
        "id": "e2",
        "parent": "e1",
        "timestamp": "2026-01-15T09:00:00Z",
        "role": "user",
        "text": "hi",
    }
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (start, message)))
    (place / "x.jsonl").write_text('["e2", "smuggled"]\n')
    with perdure.open(place, user="ada") as home:
        assert home.import_files([tmp_path / "log.jsonl"]).by_runtime == {"perdure": 1}
        (session,) = list_session_ids(home)
        with pytest.raises(UsageError, match="--fork"):
            open_session(home, session, chat=ScriptedChat())
        chat = ScriptedChat(["Yes."])
        with open_session(home, session, fork=True, chat=chat) as fork:
            fork.say("Go on.")
            assert [e.text for e in fork.log.find_path() if isinstance(e, Message)] == ["hi", "Go on.", "Yes."]
        assert "smuggled" not in str(chat.asked[0].messages)
    assert list(tmp_path.glob("**/x.jsonl")) == [place / "x.jsonl"]


def test_a_forgotten_turn_is_gone_and_its_children_stay(place, grep):
    with perdure.open(place, user="ada") as home:
        with open_session(
            home, chat=ScriptedChat(["The marmalade is upstairs.", "In the attic, yes.", "Up."])
        ) as session:
            session.say("Where do we keep it?")
            session.say("In the attic?")
            name, path = session.session, session.log.find_path()
            forgotten = next(entry for entry in path if getattr(entry, "text", "").startswith("The marmalade"))
            session.log.move_leaf(forgotten.id)
            session.say("Up or down?")
        (hit,) = list(home.search("marmalade").hits)
        request = ForgetRequest(ids=(hit.turn_id,))
        home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
        assert grep(place, b"marmalade") == []
        tree = read_tree(home, name)
        assert [e.text for e in tree.find_path() if isinstance(e, Message)] == [
            "Where do we keep it?",
            "Up or down?",
            "Up.",
        ]
        old_leaf = path[-1].id
        texts = [e.text for e in tree.find_path(old_leaf) if isinstance(e, Message)]
        assert texts == ["Where do we keep it?", "In the attic?", "In the attic, yes."]
        chat = ScriptedChat(["Yes."])
        with open_session(home, name, chat=chat) as session:
            session.say("Still?")
        assert "marmalade" not in str(chat.asked[0].messages)
        with open_session(home, old_leaf, fork=True, chat=ScriptedChat(["Yes."])) as fork:
            fork.say("Here too?")
            assert len([e for e in fork.log.find_path() if isinstance(e, Message)]) == 5


def test_a_session_that_goes_on_meanwhile_drops_what_is_forgotten(place, grep):
    chat = ScriptedChat(["The marmalade.", "Yes.", "Still."])
    with perdure.open(place, user="ada") as home, open_session(home, chat=chat) as session:
        session.say("Where is it?")
        session.say("Sure?")
        with perdure.open(place, user="ada") as other:
            (hit,) = other.search("marmalade").hits
            request = ForgetRequest(ids=(hit.turn_id,))
            other.forgetting.delete(request, digest=other.forgetting.preview(request).digest)
        session.say("And now?")
        assert "marmalade" not in str(chat.asked[-1].messages)
        texts = [entry.text for entry in session.log.find_path() if isinstance(entry, Message)]
        assert texts == ["Where is it?", "Sure?", "Yes.", "And now?", "Still."]
    assert grep(place, b"marmalade") == []
    with perdure.open(place, user="ada") as home:
        assert [e.text for e in read_path(home, session.session) if isinstance(e, Message)] == texts


def test_a_forgotten_turn_takes_the_summaries_of_it_along(place, grep):
    """Of its session and of a fork; the summary of another session, and one written before it, stay."""

    def compact(name, summary):
        log = open_log(home, name)
        log.append(Boundary(first_kept=log.tree.leaf, summary=summary, **log.make_fields()))
        log.close()

    with perdure.open(place, user="ada") as home:
        with open_session(home, chat=ScriptedChat(["One.", "The marmalade."])) as session:
            session.say("Hello.")
            session.log.archive()
            session.log.append(Boundary(first_kept="x", summary="They greeted.", **session.log.make_fields()))
            session.say("Where is it?")
        compact(session.session, "It is the marmalade.")
        with open_session(home, session.session, fork=True, chat=ScriptedChat(["Yes."])) as fork:
            fork.say("Sure?")
        compact(fork.session, "They asked about marmalade.")
        with open_session(home, chat=ScriptedChat(["Yes."])) as other:
            other.say("Another thing.")
        compact(other.session, "They like jam.")
        home.captures.drain()
        (turn_id,) = (hit.turn_id for hit in home.search("marmalade").hits if not hit.is_summary)
        request = ForgetRequest(ids=(turn_id,))
        report = home.forgetting.preview(request)
        assert len(report.items) == 3
        home.forgetting.delete(request, digest=report.digest)
        assert grep(place, b"marmalade") == []
        assert grep(place, b"They greeted.") and grep(place, b"They like jam.")
        texts = [entry.text for entry in read_path(home, fork.session) if isinstance(entry, Message)]
        assert texts == ["Hello.", "One.", "Where is it?", "Sure?", "Yes."]


def test_a_session_goes_on_after_its_first_run_was_forgotten(place, grep):
    with perdure.open(place, user="ada") as home:
        with open_session(home, cwd="/w", chat=ScriptedChat(["The marmalade.", "Two."])) as session:
            session.say("One?")
            session.say("Two?")
        run = home.runs.resolve(home.search("marmalade").hits[0].run_id)[1]
        request = ForgetRequest(ids=(run,), cascade=False)
        home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
        assert grep(place, b"marmalade") == []
        with open_session(home, session.session, chat=ScriptedChat(["Three."])) as session:
            session.say("Three?")
            assert session.log.cwd == "/w"
            texts = [entry.text for entry in session.log.find_path() if isinstance(entry, Message)]
    assert texts == ["Two?", "Two.", "Three?", "Three."]


def test_two_homes_that_went_on_with_one_session_merge_into_a_tree(place, tmp_path):
    """Both ways are branches; the one that was said last goes on; and both homes agree."""
    with perdure.open(place, user="ada") as home, open_session(home, chat=ScriptedChat(["One."])) as session:
        session.say("Hello.")
    name, other_place = session.session, tmp_path / "other"
    shutil.copytree(place, other_place)
    for path, word in ((place, "Left"), (other_place, "Right")):
        with (
            perdure.open(path, user="ada") as home,
            open_session(home, name, chat=ScriptedChat([f"{word}!"])) as session,
        ):
            session.say(f"{word}?")
    trees = []
    for path, source in ((place, other_place), (other_place, place)):
        with perdure.open(path, user="ada") as home:
            home.upkeep.merge(source)
            assert list_session_ids(home) == [name]
            trees.append(read_tree(home, name))
    for tree in trees:
        assert [e.text for e in tree.find_path() if isinstance(e, Message)] == ["Hello.", "One.", "Right?", "Right!"]
        assert {e.text for e in tree if isinstance(e, Message)} == {
            "Hello.",
            "One.",
            "Right?",
            "Right!",
            "Left?",
            "Left!",
        }
    assert {e.id for e in trees[0]} == {e.id for e in trees[1]}
    with perdure.open(place, user="ada") as home, open_session(home, name, chat=ScriptedChat(["Yes."])) as session:
        session.say("Still right?")
        texts = [entry.text for entry in read_path(home, name) if isinstance(entry, Message)]
        assert texts[-4:] == ["Right?", "Right!", "Still right?", "Yes."]


def test_a_merge_under_a_held_session_loses_nothing(place, tmp_path):
    with (
        perdure.open(place, user="ada") as home,
        open_session(home, chat=ScriptedChat(["One.", "Two.", "Three."])) as session,
    ):
        session.say("Hello.")
        other_place = tmp_path / "other"
        with perdure.open(other_place, user="ada") as other:
            other.upkeep.merge(place)
            with open_session(other, session.session, chat=ScriptedChat(["Right!"])) as there:
                there.say("Right?")
        message = Message(role="user", text="While it merges.", **session.log.make_fields())
        session.log.append(message)
        home.upkeep.merge(other_place)
        session.log.archive()
        session.say("Go on.")
        tree = read_tree(home, session.session)
        assert [e.text for e in tree.find_path() if isinstance(e, Message)] == [
            "Hello.",
            "One.",
            "While it merges.",
            "Go on.",
            "Two.",
        ]
        assert "Right!" in {e.text for e in tree if isinstance(e, Message)}


def test_an_idle_session_is_packed_and_goes_on(place):
    with perdure.open(place, user="ada") as home:
        with open_session(home, chat=ScriptedChat(["One.", "Two."])) as session:
            session.say("Hello.")
            session.say("Again.")
        ids = list_ids(home, session.session)
        assert home.upkeep.pack(idle_days=0)
        with open_session(home, session.session, chat=ScriptedChat(["Three."])) as session:
            assert [entry.id for entry in session.log.find_path()] == ids
            session.say("And again.")
        assert len(list_ids(home, session.session)) == len(ids) + 2
        assert home.upkeep.verify().ok


def test_a_backup_holds_sessions_with_what_a_killed_process_left(place, tmp_path):
    from perdure.upkeep import restore

    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd=None)
        ids = [log.tree.leaf, *write_turn(log)]
        abandon(log)
        home.upkeep.backup(tmp_path / "backup", prove=False)
    restore(tmp_path / "backup", tmp_path / "restored")
    with perdure.open(tmp_path / "restored", user="ada") as home:
        assert list_ids(home, log.session) == ids


def test_an_older_backup_under_a_left_file_loses_none_of_it(place):
    """The archive lacks what the file continues: its entries are added after what is there."""
    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd=None)
        first_ids = [log.tree.leaf, *write_turn(log)]
        log.archive()
        older = place.with_name("older")
        shutil.copytree(place / "archive", older)
        middle_ids = write_turn(log, 1)
        log.archive()
        last_ids = write_turn(log, 2)
        abandon(log)
    shutil.rmtree(place / "archive")
    shutil.copytree(older, place / "archive")
    for name in ("cache", "index.db", "index.db-wal", "index.db-shm"):
        shutil.rmtree(place / name) if (place / name).is_dir() else (place / name).unlink(missing_ok=True)
    with perdure.open(place, user="ada") as home, open_session(home, log.session, chat=ScriptedChat()) as session:
        assert [entry.id for entry in session.log.find_path()] == [*first_ids, *last_ids]
        assert not set(middle_ids) & set(list_ids(home, log.session))


def test_a_clock_that_jumps_changes_no_order(place):
    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd=None)
        ids = [log.tree.leaf]
        for n, year in enumerate((2026, 1999, 2077, 2026)):
            message = Message(role="user", text=f"{n}", **log.make_fields(datetime(year, 1, 1, tzinfo=UTC)))
            log.append(message)
            log.archive()
            ids.append(message.id)
        log.close()
        assert [entry.id for entry in read_path(home, log.session)] == ids
        assert home.upkeep.verify().ok


def test_a_user_sees_and_erases_their_own_open_sessions_only(place, grep):
    with perdure.open(place, user="ada") as home:
        log = create_log(home, cwd=None)
        write_turn(log)
        abandon(log)
    with perdure.open(place, user="bob") as home:
        assert list_session_ids(home) == []
        with pytest.raises(SessionMissing):
            open_log(home, log.session)
        other = create_log(home, cwd=None)
        write_turn(other)
        abandon(other)
        delete_user_files(place, "ada")
        assert session_file.list_sessions(place) == [other.session]


def test_status_and_doctor_report_what_a_killed_process_left(place):
    def run(*words):
        result = CliRunner().invoke(cli, [*words, "--json", "--home", str(place)])
        return json.loads(result.output)["result"]

    def check():
        return [(c["grade"], c["found"]) for c in run("doctor")["checks"] if c["name"] == "sessions"]

    (place / "config.toml").write_text(f'user = "ada"\n{SETTINGS}')
    with perdure.open(place) as home:
        assert check() == [("ok", "none is open")]
        log = create_log(home, cwd=None)
        write_turn(log)
        assert run("status")["sessions"]["held"] == 1
        assert check() == [("ok", "1 session held by a process")]
        abandon(log)
        assert run("status")["sessions"] | {"since_at": None, "left_bytes": 0} == {
            "held": 0,
            "left": 1,
            "left_bytes": 0,
            "since_at": None,
            "set_aside": [],
        }
        log = create_log(home, cwd=None)  # status has archived the other
        write_turn(log)
        abandon(log)
        path = session_file.to_path(place, log.session)
        path.write_bytes(path.read_bytes()[:-5])
        home.captures.drain()
        assert check() == [("notice", "1 torn line set aside: no process had told anybody of it")]
        assert "1 torn line set aside" in CliRunner().invoke(cli, ["status", "--home", str(place)]).output
