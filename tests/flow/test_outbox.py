"""From the outbox into the archive: acknowledged is kept, once; privacy switches come before the first byte."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

import perdure
from perdure import log
from perdure.errors import Busy, DiskFull, FormatFault, ReadOnlyHome, UsageError
from perdure.surfaces.cli import cli
from perdure.types import Origin, Source

ORIGIN = Origin("messages", "s", "s")


def body(home, session="s", generation=0):
    helds = home.archive.ledger.list_source_runs(Source(home.user, "messages", session, generation))
    return b"".join(home.archive.read(held) for held in helds)


def box(home):
    return sorted((home.path / "outbox").glob("*.delta"))


def test_posted_delta_is_drained_and_found(home, message):
    one, two = message("user", "the anchor one", 1), message("user", "the anchor two", 2)
    home.captures.enqueue(ORIGIN, one, from_offset=0, path=None, tags=["x"])
    home.captures.enqueue(ORIGIN, two, from_offset=len(one), path=None)
    assert len(box(home)) == 2 and home.archive.ledger.count_all() == (0, 0, 0)
    assert home.captures.drain() == 2
    assert box(home) == [] and body(home) == one + two
    assert len(home.search("anchor").hits) == 2
    assert home.captures.drain() == 0


def test_search_drains_by_itself(home, message):
    home.capture(message("user", "first"), runtime="messages", session="first")
    home.captures.enqueue(ORIGIN, message("user", "the anchor"), from_offset=0, path=None)
    assert len(home.search("anchor").hits) == 1 and box(home) == []


def test_first_search_indexes_the_waiting_delta(home, message):
    home.captures.enqueue(ORIGIN, message("user", "the anchor"), from_offset=0, path=None)
    found = home.search("anchor")
    assert len(found.hits) == 1 and "index" not in found.degraded and box(home) == []


def test_search_without_an_index_scans_waiting_deltas(home, message):
    home.captures.enqueue(
        Origin("messages", "t", "t"), message("user", "an anchor of before"), from_offset=0, path=None
    )
    home.captures.drain()
    home.captures.enqueue(ORIGIN, message("user", "the anchor"), from_offset=0, path=None)
    found = home.search("anchor")
    assert len(found.hits) == 2 and "index" in found.degraded and box(home) == []


@pytest.mark.parametrize("words", [["tree", "--json"], ["show", "session", "--json"]])
def test_first_call_sees_waiting_deltas(tmp_path, message, words):
    with perdure.open(tmp_path / "home") as home:
        home.captures.enqueue(
            Origin("messages", "session", "session"), message("user", "the anchor"), from_offset=0, path=None
        )
    done = CliRunner().invoke(cli, [*words, "--home", str(home.path)])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)["result"]
    assert len(result["runs" if words[0] == "tree" else "turns"]) == 1


def test_killed_between_archive_and_unlink(home, message):
    """The same file lies in the outbox again: nothing is stored twice, and it goes."""
    home.captures.enqueue(ORIGIN, message("user", "the anchor"), from_offset=0, path=None)
    (path,) = box(home)
    raw = path.read_bytes()
    home.captures.drain()
    path.write_bytes(raw)
    assert home.captures.drain() == 1 and box(home) == []
    assert home.archive.ledger.count_all()[0] == 1
    assert len(home.search("anchor").hits) == 1


def test_overlapping_posts_of_two_hooks(home, message):
    """Two hooks read the same file at once: [0,Y) and [0,Z) are both posted; each byte is stored once."""
    one, two = message("user", "part one", 1), message("user", "part two", 2)
    home.captures.enqueue(ORIGIN, one, from_offset=0, path=None)
    home.captures.enqueue(ORIGIN, one + two, from_offset=0, path=None)
    home.captures.drain()
    assert body(home) == one + two and home.archive.ledger.count_all()[2] == len(one + two)


def test_deltas_out_of_order_are_all_kept(home, message, tmp_path):
    """The later part comes first, and its transcript still exists: it is read whole, and nothing is there twice."""
    one, two = message("user", "anchor one", 1), message("user", "anchor two", 2)
    transcript = tmp_path / "t.jsonl"
    transcript.write_bytes(one + two)
    home.import_files([transcript])
    session = home.archive.read_run(next(home.archive.ledger.list_runs())).source.session
    three = message("user", "anchor three", 3)
    transcript.write_bytes(one + two + three)
    home.captures.enqueue(Origin("messages", session, session), b"", from_offset=0, path=str(transcript))
    home.captures.enqueue(Origin("messages", session, session), three, from_offset=len(one + two), path=str(transcript))
    home.captures.drain()
    assert body(home, session) == one + two + three and len(home.search("anchor").hits) == 3


def test_only_whole_lines_are_acknowledged(home, message):
    """The second line is cut 10 bytes before its end: the first is taken, and the client sends on from behind it."""
    one, two = message("user", "anchor one", 1), message("user", "anchor two", 2)
    sent = (one + two)[:-10]
    assert home.captures.enqueue(ORIGIN, sent, from_offset=0, path=None) == len(one)
    assert home.captures.enqueue(ORIGIN, two[:-10], from_offset=len(one), path=None) == 0
    assert home.captures.enqueue(ORIGIN, two, from_offset=len(one), path=None) == len(two)
    assert home.captures.drain() == 2 and body(home) == one + two


def test_gap_without_a_transcript_is_kept(home, message):
    home.captures.enqueue(ORIGIN, message("user", "the late anchor"), from_offset=4000, path="/gone")
    home.captures.drain()
    assert box(home) == [] and len(home.search("anchor").hits) == 1
    assert home.upkeep.verify().ok


def test_rewritten_source_is_kept_beside_the_old_one(home, message):
    home.captures.enqueue(ORIGIN, message("user", "the first anchor"), from_offset=0, path=None)
    home.captures.enqueue(ORIGIN, message("user", "the other anchor"), from_offset=0, path=None)
    home.captures.drain()
    assert len(home.search("anchor").hits) == 2
    assert body(home, generation=1) == message("user", "the other anchor")


@pytest.mark.parametrize(
    "head",
    [b"{}", b"[]", b"null", b'{"origin": 5, "from_offset": 0, "path": null, "tags": [], "user": "a", "machine": "m"}',
     b'{"origin": {"runtime": "r", "session": "s", "conversation": "s"}, "from_offset": 0, "path": null, "tags": [],'
     b' "user": "../a", "machine": "m"}',
     b'{"origin": {"runtime": "r", "session": "s", "conversation": "s"}, "from_offset": "x", "path": null, "tags": [],'
     b' "user": "a", "machine": "m"}',
     b"\xff"],
)  # fmt: skip
def test_broken_delta_does_not_block_others(home, message, head):
    home.capture(message("user", "first"), runtime="messages", session="first")
    bad = home.path / "outbox" / "00000000000000000001-00000000.delta"
    home.captures.enqueue(ORIGIN, message("user", "the anchor"), from_offset=0, path=None)
    bad.write_bytes(head + b"\n" + message("user", "poison"))
    assert home.captures.drain() == 1
    assert len(home.search("anchor").hits) == 1
    assert bad.with_suffix(".unreadable").exists() and not bad.exists()


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-14:00"])
def test_impossible_timestamp_does_not_block_others(home, message, stamp):
    odd = json.dumps({"role": "user", "content": "the odd anchor", "timestamp": stamp}).encode() + b"\n"
    home.captures.enqueue(Origin("messages", "odd", "odd"), odd, from_offset=0, path=None)
    home.captures.enqueue(ORIGIN, message("user", "the anchor"), from_offset=0, path=None)
    assert home.captures.drain() == 2 and len(home.search("anchor").hits) == 2


@pytest.mark.parametrize(
    ("error", "is_set_aside"),
    [(RuntimeError("no word of it"), True), (RecursionError(), True), (FormatFault("x"), True), (DiskFull("x"), False),
     (Busy("x"), False), (ReadOnlyHome("x"), False), (OSError(28, "full"), False)],
)  # fmt: skip
def test_delta_is_set_aside_only_for_its_own_error(home, message, monkeypatch, error, is_set_aside):
    """Two wait and the first fails: either it is laid aside and the second is archived, or both wait."""
    home.captures.enqueue(Origin("messages", "bad", "bad"), message("user", "bad"), from_offset=0, path=None)
    home.captures.enqueue(ORIGIN, message("user", "the anchor"), from_offset=0, path=None)
    settle = home.captures._settle

    def failing(item):
        if item.header["origin"]["session"] == "bad":
            raise error
        settle(item)

    monkeypatch.setattr(home.captures, "_settle", failing)
    if is_set_aside:
        assert home.captures.drain() == 1 and box(home) == [] and len(home.search("anchor").hits) == 1
        (noted,) = log.read_entries(home.path, entry_type="set-aside")
        assert "no word" not in json.dumps(noted)
    else:
        with pytest.raises(type(error)):
            home.captures.drain()
        assert len(box(home)) == 2


def test_the_alarm_of_a_home(opened, message):
    """A26: the limit is 1,000 bytes; one alarm, none the second time, and it ends when the outbox is drained."""
    home = opened()
    (home.path / "config.toml").write_text("[capture]\noutbox_alarm_bytes = 1000\n")
    home = opened()
    home.captures.enqueue(ORIGIN, message("user", "x" * 2000), from_offset=0, path=None)
    assert home.captures.outbox_warning() is not None and home.captures.outbox_warning() is None
    home.captures.drain()
    assert home.captures.outbox_warning() is None
    assert not (home.path / "outbox" / "alarm").exists()


# what is never captured -------------------------------------------------------------------------------------


def refused_everywhere(home, session, data, path):
    with pytest.raises(UsageError, match="nothing was copied"):
        home.capture(data, runtime="messages", session=session, cwd="/work/secret/x")
    with pytest.raises(UsageError, match="nothing was copied"):
        home.captures.enqueue(
            Origin("messages", session, session, None, "/work/secret/x"), data, from_offset=0, path=path
        )


def test_pause_captures_nothing(home, message, grep, tmp_path):
    data = message("user", "xylophone", session_id="s")
    (tmp_path / "t.jsonl").write_bytes(data)
    home.captures.pause(until_at=datetime.now(UTC) + timedelta(hours=1))
    refused_everywhere(home, "s", data, None)
    with pytest.raises(UsageError, match="nothing was copied"):
        home.import_files([tmp_path / "t.jsonl"])
    assert grep(home.path, b"xylophone") == []
    assert home.captures.resume() and not home.captures.resume()
    assert home.import_files([tmp_path / "t.jsonl"]).n_runs == 1
    home.captures.pause(until_at=datetime.now(UTC) - timedelta(seconds=1))
    assert home.captures.current_pause() is None


def test_pause_without_a_zone_captures_nothing(home, message, grep):
    home.captures.pause(until_at=datetime(2020, 1, 1))
    with pytest.raises(UsageError):
        home.capture(message("user", "xylophone"), runtime="messages", session="s")
    assert grep(home.path, b"xylophone") == []


def test_excluded_projects_are_not_captured(opened, message, claude, grep, tmp_path):
    """By every door, for a sub-agent as well; the same file in another project is taken."""
    home = opened()
    (home.path / "config.toml").write_text('[capture]\nexclude = ["/work/secret"]\n')
    home = opened()
    refused_everywhere(home, "s", message("user", "xylophone"), None)
    session = "11111111-2222-3333-4444-555555555555"
    folder = tmp_path / "projects" / "p"
    (folder / session / "subagents").mkdir(parents=True)
    (folder / f"{session}.jsonl").write_bytes(
        claude("user", "xylophone", "u1", cwd="/work/secret/deep", session=session)
    )
    sub = claude("user", "xylophone", "u2", cwd="/work/secret", agentId="a1", session=session)
    (folder / session / "subagents" / "agent-a1.jsonl").write_bytes(sub)
    done = home.import_files([folder])
    assert (done.n_runs, len(done.left_out)) == (0, 2)
    assert all("excluded project (/work/secret)" in why for _, why in done.left_out)
    assert grep(home.path, b"xylophone") == []
    (folder / f"{session}.jsonl").write_bytes(claude("user", "marimba", "u1", cwd="/work/open", session=session))
    assert home.import_files([folder]).n_runs == 1


def test_incognito_session_is_not_captured(home, message, claude, grep, tmp_path):
    """The session, its sub-agents and what was spawned by it: not now, and not by a later import."""
    session = "11111111-2222-3333-4444-555555555555"
    home.captures.mark_incognito("claude-code", session)
    folder = tmp_path / session / "subagents"
    folder.mkdir(parents=True)
    (tmp_path / f"{session}.jsonl").write_bytes(claude("user", "xylophone", "u1", session=session))
    (folder / "agent-a1.jsonl").write_bytes(claude("user", "xylophone", "u2", agentId="a1", session=session))
    done = home.import_files([tmp_path / f"{session}.jsonl", folder])
    assert (done.n_runs, [why for _, why in done.left_out]) == (0, ["incognito session"] * 2)
    home.captures.mark_incognito("messages", "s")
    refused_everywhere(home, "s", message("user", "xylophone"), None)
    with pytest.raises(UsageError, match="incognito"):
        home.capture(message("user", "xylophone"), runtime="messages", session="child", parent_session="s")
    assert grep(home.path, b"xylophone") == [] and grep(home.path, session.encode()) == []


def test_a_document_of_an_incognito_session(home, grep, tmp_path):
    home.captures.mark_incognito("messages", "c1")
    document = [{"id": c, "messages": [{"role": "user", "content": f"xylophone of {c}"}]} for c in ("c1", "c2")]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, document)))
    done = home.import_files([tmp_path / "d.jsonl"])
    assert done.n_runs == 1 and len(done.left_out) == 1
    assert grep(home.path, b"xylophone of c1") == []


def test_file_name_that_is_not_utf8_is_imported(home, message, tmp_path):
    """Bytes that are no UTF-8 in a file's name: imported all the same, and not again."""
    path = os.fsencode(tmp_path) + b"/caf\xe9 \xff\n.jsonl"
    with open(path, "wb") as file:
        file.write(message("user", "the anchor", session_id="s"))
    assert home.import_files([tmp_path]).n_runs == 1
    assert home.import_files([tmp_path]).n_unchanged == 1
    assert len(home.search("anchor").hits) == 1 and home.upkeep.verify().ok
