"""OpenCode, driven for real: few runs, as each takes long, that look at many things."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import apsw

import perdure
from perdure import formats
from perdure.archive.run_files import split_source_lines
from rig.clients import blocks, kept_prefix, main_requests
from rig.resident import ScriptedResident

BLOCK = "[perdure-recall 0000000000000000 begins]\nMARK-{n}-{kind} <x>\n[perdure-recall 0000000000000000 ends]"
TOOL = '@call bash {"command": "echo from-a-tool", "description": "d"}'


def database(client) -> Path:
    (found,) = client.transcripts()
    return found


def sessions(client) -> dict[str, str | None]:
    """Session -> the one that spawned it."""
    db = apsw.Connection(str(database(client)), flags=apsw.SQLITE_OPEN_READONLY)
    return dict(db.execute("SELECT id, parent_id FROM session ORDER BY time_created"))


def assert_all_captured(client, home: Path) -> None:
    """What the database says of each session is in the archive, each line once.

    But for the changed files that OpenCode adds to a message when a turn is over, and perhaps we, too: the next capture
    brings them.
    """
    kept: dict[str, list[bytes]] = {}
    with perdure.open(home, user="tester") as opened:
        opened.captures.drain()
        for held in sorted(opened.archive.ledger.list_runs(), key=lambda held: held.from_offset):
            run = opened.archive.read_run(held)
            lines = split_source_lines(run, opened.archive.read(held))
            kept.setdefault(run.source.session, []).extend(line.raw for line, _ in lines)
    for origin, lines in formats.emit("opencode", database(client)):
        found = kept.pop(origin.session, [])
        assert set(map(bare, lines)) <= set(map(bare, found)) and len(found) == len(set(found))
    assert kept == {}


def bare(line: bytes) -> str:
    row = json.loads(line)
    row.get("info", {}).pop("summary", None)
    return json.dumps(row)


def test_opencode_recalls_stays_stable_and_captures_everything(client, home: Path, model) -> None:
    """A turn with a tool; then, resumed, one with a sub-agent, for which nothing is recalled."""
    tested = client("opencode")
    task = json.dumps({"description": "d", "subagent_type": "general", "prompt": f"Go.\n{TOOL}\n@say SUB-DONE"})
    with ScriptedResident(home, BLOCK) as resident:
        first = tested.say(f"What was the port?\n{TOOL}\n@say It was 8642.")
        assert first.status == 0 and "It was 8642." in first.out, first
        (session,) = sessions(tested)
        second = tested.say(f"Two.\n@call task {task}\n@say Second.", "-s", session)
        assert second.status == 0 and "Second." in second.out, second
    events = [asked["event"] for asked in resident.asked]
    assert {event["session"] for event in events} == {session} and {event["cwd"] for event in events} == {
        str(tested.project)
    }
    assert sorted((e["kind"], e["cause"], e["prompt"][:4], e["is_human"]) for e in events) == [
        ("prompt", "", "Two.", True), ("prompt", "", "What", True), ("start", "resume", "", False),
        ("start", "startup", "", False),
    ]  # fmt: skip
    mine = [body for body in main_requests(model.requests) if "What was the port?" in json.dumps(body)]
    pieces = list(blocks(mine[0]))
    (at,) = [i for i, (_, content) in enumerate(pieces) if "-prompt" in content and "MARK-" in content]
    (prompt,) = [i for i, (_, content) in enumerate(pieces) if "What was the port?" in content]
    assert (at, pieces[at][0]) == (prompt + 1, "user")
    assert re.findall(r"MARK-\d-(\w+)", pieces[at][1]) == ["start", "prompt"]
    for before, after in itertools.pairwise(mine):
        n_kept, n_pieces = kept_prefix(before, after)
        assert n_kept == n_pieces, list(blocks(before))[n_kept]
    assert_all_captured(tested, home)
    (below,) = [name for name, parent in sessions(tested).items() if parent]
    with perdure.open(home, user="tester") as opened:
        opened.upkeep.catch_up()
        views = opened.runs.conversation(session)
        assert {view.session for view in views} == {session, below}
        assert all(view.parent_run_id for view in views if view.session == below)
        hits = opened.search("SUB-DONE", mode="keyword").hits
        assert {hit.role for hit in hits} >= {"assistant"}
    doctor = tested.perdure("doctor", "--json", home=home)
    assert '"opencode hooks"' in doctor.out and "captured a turn and recalled it" in doctor.out, doctor


def test_opencode_is_not_harmed(client, home: Path, model) -> None:
    """By a resident home that does not answer; then by an interpreter that is not where it was."""
    tested = client("opencode")
    with ScriptedResident(home, BLOCK, delay_s=60):
        done = tested.say(f"Hello.\n{TOOL}\n@say Unharmed.")
    assert done.status == 0 and "Unharmed." in done.out, done
    assert len(main_requests(model.requests)) == 2
    assert_all_captured(tested, home)
    path = tested.user_home / ".config" / "opencode" / "plugin" / "perdure.js"
    path.write_text(re.sub(r"/[^ \"']*/bin/python[\d.]*", "/nowhere/bin/python", path.read_text()))
    assert "/nowhere/" in path.read_text()
    (session,) = sessions(tested)
    done = tested.say("Again.\n@say Still unharmed.", "-s", session)
    assert done.status == 0 and "Still unharmed." in done.out, done
