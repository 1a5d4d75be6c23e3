"""Capture: what a delta is answered, where its bytes lie, and what is derived of them."""

import hashlib
import json
import stat
import time

import pytest

from perdure.archive import archive
from perdure.errors import NotFound, UsageError
from perdure.types import Filters, Origin


def stored(home, run_id):
    return home.archive.read(home.archive.get_entry(run_id))


def all_bytes(home, session, generation=0, runtime="messages"):
    """Every stored run of a source, joined."""
    from perdure.types import Source

    helds = home.archive.ledger.list_source_runs(Source(home.user, runtime, session, generation))
    return b"".join(home.archive.read(held) for held in helds)


def test_a_run_field_by_field(home, message):
    """A01, counted by hand. Seven lines: 2 user, 2 assistant with one call each, 2 tool, 1 system = 7 turns.
    Tokens 100 + 20 = 120. First stamp 09:00, last 09:12 = 720,000 ms. The intent is the first user message.
    """
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"cmd": "ls"}'}}
    data = b"".join(
        [
            message("system", "You help.", 0),
            message("user", "List the files of the harbour project", 1),
            message("assistant", "Listing.", 2, tool_calls=[call], usage={"total_tokens": 100}),
            message("tool", "a.txt", 3, tool_call_id="c1"),
            message("user", "And now count them", 4),
            message("assistant", None, 5, tool_calls=[{**call, "id": "c2"}], usage={"total_tokens": 20}),
            message("tool", "1", 12, tool_call_id="c2"),
        ]
    )
    answer = home.capture(data, runtime="messages", session="s1", cwd="/work/harbour", tags=["b", "a", "b"],
                          path="/logs/s1.jsonl", conversation="talk")  # fmt: skip
    assert (answer.outcome, answer.to_offset, answer.generation, answer.n_bytes) == ("stored", len(data), 0, len(data))
    run = home.runs.get(answer.run_id)
    assert (run.user, run.machine, run.runtime, run.agent) == ("ada", home.config.machine, "messages", "default")
    assert (run.session, run.conversation, run.project, run.cwd) == ("s1", "talk", "/work/harbour", "/work/harbour")
    assert (run.parent_run_id, run.root_run_id) == (None, run.run_id)
    assert run.tags == ("a", "b") and run.readable_by == ("ada",)
    assert run.intent == "List the files of the harbour project"
    assert run.started_at.isoformat() == "2026-01-15T09:00:00+00:00"
    assert run.ended_at.isoformat() == "2026-01-15T09:12:00+00:00"
    assert run.duration_ms == 720_000
    assert (run.n_turns, run.n_user, run.n_assistant, run.n_tool, run.n_calls) == (7, 2, 2, 2, 2)
    assert run.n_tokens == 120
    assert (run.path, run.jsonl_bytes) == ("/logs/s1.jsonl", len(data))
    assert run.jsonl_sha256 == hashlib.sha256(data).hexdigest()
    assert (run.from_offset, run.to_offset) == (0, len(data))
    assert stored(home, run.run_id) == data
    columns = home.runs.columns(run.run_id)
    assert columns.user_messages == ("List the files of the harbour project", "And now count them")
    assert columns.agent_messages == ("Listing.",)
    assert len(columns.tool_calls) == 2


def test_the_intent_is_at_most_500_characters(home, message):
    answer = home.capture(message("user", "word " * 300), runtime="messages", session="s")
    assert len(home.runs.get(answer.run_id).intent) <= 500


def test_replayed_bytes_are_known_and_altered_ones_refused(home, message):
    """A09: the same body again is already there; an altered one is refused and can go beside it."""
    data = message("user", "We moor at the northern quay", 0) + message("assistant", "Noted.", 1)
    first = home.capture(data, runtime="messages", session="s")
    again = home.capture(data, runtime="messages", session="s")
    assert (again.outcome, again.to_offset, again.n_bytes, again.run_id) == ("already", len(data), 0, first.run_id)
    assert home.archive.ledger.count_all() == (1, 1, len(data))
    altered = data.replace(b"northern", b"southern")
    refused = home.capture(altered, runtime="messages", session="s")
    assert (refused.outcome, refused.generation) == ("diverged", 0)
    beside = home.capture(altered, runtime="messages", session="s", generation=refused.generation + 1)
    assert (beside.outcome, beside.generation) == ("stored", 1)
    assert stored(home, first.run_id) == data and stored(home, beside.run_id) == altered
    assert {hit.run_id for hit in home.search("northern").hits} == {first.run_id}
    assert {hit.run_id for hit in home.search("southern").hits} == {beside.run_id}
    with pytest.raises(UsageError, match="the next generation is 2"):
        home.capture(altered, runtime="messages", session="s", generation=3)


def test_client_resends_after_a_lost_acknowledgement(home, message):
    """A23: [X,Y) is committed and the answer lost; the client sends [X,Z), is told Y, and sends [Y,Z)."""
    one, two, three = (message("user", f"part {n}", n) for n in range(3))
    home.capture(one, runtime="messages", session="s")
    x, y = len(one), len(one) + len(two)
    assert home.capture(two, runtime="messages", session="s", from_offset=x).outcome == "stored"
    answer = home.capture(two + three, runtime="messages", session="s", from_offset=x)
    assert (answer.outcome, answer.to_offset) == ("accepted", y)
    rest = (two + three)[answer.to_offset - x :]
    assert home.capture(rest, runtime="messages", session="s", from_offset=answer.to_offset).outcome == "stored"
    assert all_bytes(home, "s") == one + two + three
    assert home.archive.ledger.count_all() == (3, 1, len(one + two + three))


def test_a_lost_acknowledgement_of_altered_bytes(home, message):
    one, two = message("user", "part 1", 1), message("user", "part 2", 2)
    home.capture(one + two, runtime="messages", session="s")
    sent = two.replace(b"part 2", b"part X") + one
    assert home.capture(sent, runtime="messages", session="s", from_offset=len(one)).outcome == "diverged"
    assert home.capture(two[:20], runtime="messages", session="s", from_offset=len(one)).outcome == "already"


def test_gap_is_refused_with_the_known_end(home, message):
    one, two = message("user", "part 1", 1), message("user", "part 2", 2)
    answer = home.capture(two, runtime="messages", session="s", from_offset=len(one))
    assert (answer.outcome, answer.to_offset) == ("gap", 0)
    home.capture(one, runtime="messages", session="s")
    answer = home.capture(two, runtime="messages", session="s", from_offset=len(one) + 1)
    assert (answer.outcome, answer.to_offset) == ("gap", len(one))
    assert all_bytes(home, "s") == one


def test_a_line_cut_inside_a_character(home):
    """A24: the first delta ends inside of `é`; it is completed by the next, and no U+FFFD appears."""
    whole = '{"role":"user","content":"one"}\n{"role":"user","content":"café au lait"}\n'.encode()
    cut = whole.index("é".encode()) + 1
    first = home.capture(whole[:cut], runtime="messages", session="s")
    assert first.to_offset == whole.index(b"\n") + 1
    assert home.capture(whole[first.to_offset : cut], runtime="messages", session="s",
                        from_offset=first.to_offset).outcome == "already"  # fmt: skip
    home.capture(whole[first.to_offset :], runtime="messages", session="s", from_offset=first.to_offset)
    assert all_bytes(home, "s") == whole
    assert "\ufffd".encode() not in all_bytes(home, "s")
    assert len(home.search("café").hits) == 1


def test_every_cut_of_a_transcript_ends_the_same(opened, message):
    """Sent in two pieces cut anywhere, retried from what was acknowledged: always the same bytes, once."""
    whole = message("user", "größer", 0) + message("assistant", "ja", 1)
    home = opened()
    for cut in range(0, len(whole), 7):
        first = home.capture(whole[:cut], runtime="messages", session=f"s{cut}")
        home.capture(whole[first.to_offset :], runtime="messages", session=f"s{cut}", from_offset=first.to_offset)
        assert all_bytes(home, f"s{cut}") == whole


def test_bytes_that_are_not_utf8_are_stored_unchanged(home, grep):
    data = b'{"role":"user","content":"broken \xff\xfe\x80 lighthouse"}\r\n\r\nnot json\n\0\n'
    answer = home.capture(data, runtime="messages", session="s")
    assert stored(home, answer.run_id) == data
    assert grep(home.path / "archive", "\ufffd".encode()) == []
    assert len(home.search("lighthouse").hits) == 1
    assert home.upkeep.verify().ok


def test_a_chain_by_session_and_by_name(home, message):
    """A02, A10: the second delta hangs under the first; a 4-deep chain has 3 descendants and one root."""
    one, two = message("user", "part 1", 1), message("user", "part 2", 2)
    first = home.capture(one, runtime="messages", session="s").run_id
    second = home.capture(two, runtime="messages", session="s", from_offset=len(one)).run_id
    assert home.runs.get(second).parent_run_id == first
    chain = [first]
    for n in range(3):
        answer = home.capture(message("user", f"child {n}", 10 + n), runtime="messages", session=f"child{n}",
                              parent_run_id=chain[-1])  # fmt: skip
        chain.append(answer.run_id)
    below = home.runs.descendants(chain[0])
    assert {run.run_id for run in below} == {second, *chain[1:]}
    assert [run.run_id for run in home.runs.descendants(chain[1])] == chain[2:]
    assert home.runs.get(chain[3]).root_run_id == first == home.runs.get(second).root_run_id
    (tree,) = home.runs.forest()
    assert tree.run.run_id == first and len(tree.children) == 2


def test_chain_of_four_levels_has_one_root(home, message):
    chain = [None]
    for n in range(4):
        answer = home.capture(message("user", f"level {n}", n), runtime="pi-like", session=f"s{n}",
                              parent_run_id=chain[-1])  # fmt: skip
        chain.append(answer.run_id)
    assert len(home.runs.descendants(chain[1])) == 3
    assert home.runs.get(chain[4]).root_run_id == chain[1]


def test_a_conversation_groups_its_deltas(home, message):
    """A03: all deltas of one session come back, and no others."""
    at = 0
    for n in range(3):
        line = message("user", f"anchor number {n}", n)
        home.capture(line, runtime="messages", session="s", from_offset=at)
        at += len(line)
    home.capture(message("user", "anchor of another", 9), runtime="messages", session="t")
    found = home.search("anchor", filters=Filters(conversations=("s",)))
    assert len(found.hits) == 3 and {hit.conversation for hit in found.hits} == {"s"}
    assert [run.from_offset for run in home.runs.conversation("s")] == sorted(
        r.from_offset for r in home.runs.conversation("s")
    )


def test_files_on_disk_are_private_and_safely_named(opened, message, start):
    """A06: two users, two months; files 0600, folders 0700, and the name of a file is its run's id."""
    ids = {}
    for user in ("ada", "bob"):
        home = opened(user=user)
        for month in (0, 31 * 24 * 60):
            line = message("user", f"hello from {user}", month)
            ids[user, month] = home.capture(line, runtime="messages", session=f"s{month}").run_id
    root = opened().path / "archive"
    found = sorted(str(p.relative_to(root)) for p in (root / "runs").rglob("*") if p.is_file())
    expected = [
        f"runs/{user}/{'2026-01' if month == 0 else '2026-02'}/{run_id}.{ending}"
        for (user, month), run_id in ids.items()
        for ending in ("jsonl", "metadata.json")
    ]
    assert found == sorted(expected)
    for path in (root.parent, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_user_cannot_see_data_of_another(opened, message):
    """P01: Bob's search finds nothing of Ada's, and her ids are unknown to him, by every door."""
    ada, bob = opened(user="ada"), opened(user="bob")
    run_id = ada.capture(
        message("user", "the password of the vault is swordfish"), runtime="messages", session="s"
    ).run_id
    (hit,) = ada.search("swordfish").hits
    bob.capture(message("user", "hello"), runtime="messages", session="s")
    assert bob.search("swordfish").hits == () and bob.search("swordfish", scan=True).hits == ()
    for ask in (
        bob.runs.get,
        bob.runs.columns,
        bob.runs.descendants,
        bob.runs.transcript,
        bob.resolve,
        lambda i: bob.forgetting.plan([i]),
        lambda i: bob.runs.forest(root=i),
    ):
        with pytest.raises(NotFound):
            ask(run_id)
    for ask in (bob.runs.locate_turn, bob.resolve, lambda i: bob.forgetting.plan([i])):
        with pytest.raises(NotFound):
            ask(hit.turn_id)
    assert bob.forgetting.plan_by_query("swordfish") == []
    assert [run.user for run in bob.runs.conversation("s")] == ["bob"]


@pytest.mark.parametrize("odd", ["../../etc/passwd", "a/b", "a\0b", "x" * 5000, "nul", ".", "é" * 300, "\ud800", "a\nb",
                                 "🙂\u202e", " ", "~/x", "$(reboot)", "a:b"])  # fmt: skip
def test_odd_sessions_stay_inside_the_home(opened, message, odd, tmp_path):
    """Names out of transcripts are text: nothing appears outside of the home, and all of it is found and packed."""
    home = opened("inner/home")
    answer = home.capture(message("user", "marker of an odd one"), runtime="messages", session=odd, conversation=odd,
                          cwd=f"/w/{odd}", path=f"/{odd}")  # fmt: skip
    assert answer.outcome == "stored"
    assert len(home.search("marker").hits) == 1
    assert home.upkeep.pack(idle_days=0) in ((0, 0), (1, 1))
    assert len(home.search("marker").hits) == 1
    assert home.upkeep.verify().ok
    assert [p.name for p in tmp_path.iterdir()] == ["inner"] and [p.name for p in (tmp_path / "inner").iterdir()] == [
        "home"
    ]


@pytest.mark.parametrize("runtime", ["../x", "a\0b", "", "é", "x" * 3000, "\ud800"])
def test_odd_runtimes_stay_inside_the_home(opened, message, runtime, tmp_path):
    home = opened("inner/home")
    try:
        home.capture(message("user", "marker"), runtime=runtime, session="s", tags=["t\0", "\ud800"])
    except UsageError:
        pass
    else:
        assert len(home.search("marker").hits) == 1
        home.upkeep.pack(idle_days=0)
        assert home.upkeep.verify().ok
    assert [p.name for p in (tmp_path / "inner").iterdir()] == ["home"]


@pytest.mark.index_file("it damages the file")
def test_capture_needs_no_index(home, message):
    """A25, A27: without an index capture works and search answers from the archive, saying so; later it catches up."""
    home.capture(message("user", "the first anchor"), runtime="messages", session="s")
    home.close()
    for path in home.path.glob("index*"):
        path.unlink()
    (home.path / "index-1.db").write_bytes(b"this is no database" * 500)
    (home.path / "index.db").symlink_to("index-1.db")
    with type(home)(home.path, home.config, home.principal, writable=True) as again:
        answer = again.capture(message("user", "the second anchor"), runtime="messages", session="t")
        assert answer.outcome == "stored"
        found = again.search("anchor")
        assert len(found.hits) == 2 and found.degraded == ("index",)
        again.upkeep.rebuild()
        found = again.search("anchor")
        assert len(found.hits) == 2 and found.degraded == ()


@pytest.mark.slow
def test_a_line_of_100_MB(opened, tmp_path):
    """It survives byte for byte, with invalid UTF-8 in it, from the file to the archive and back."""
    transcript = tmp_path / "big.jsonl"
    small = b'{"role":"user","content":"before the flood","timestamp":"2026-01-01T00:00:00Z"}\n'
    after = b'{"role":"user","content":"after the flood","timestamp":"2026-01-01T00:01:00Z"}\n'
    with transcript.open("wb") as file:
        file.write(small + b'{"role":"tool","content":"')
        block = b"0123456789abcdef" * 65535 + b"\xff\xc3(\x80 is no text\\n"
        for _ in range(96):
            file.write(block)
        file.write(b'"}\n' + after)
    size = transcript.stat().st_size
    assert size > 100_000_000
    home = opened()
    started = time.monotonic()
    done = home.import_files([transcript])
    assert done.n_bytes == size and done.refused == []
    runs = list(home.archive.ledger.list_runs())
    digest = hashlib.sha256()
    for held in sorted(runs, key=lambda h: h.from_offset):
        digest.update(home.archive.read(held))
    with transcript.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest.hexdigest()
    with transcript.open("ab") as file:
        file.write(after.replace(b"after", b"long after"))
    done = home.import_files([transcript])
    assert (done.n_runs, done.n_rewritten) == (1, 0)
    print("took", time.monotonic() - started)


def test_200_KB_of_output_are_kept_whole(home, message):
    """A20: no truncation in the archive, and its last word is searchable."""
    output = "line of output\n" * 13_000 + "the quixotic end"
    answer = home.capture(message("tool", output, tool_call_id="c"), runtime="messages", session="s")
    assert json.loads(stored(home, answer.run_id))["content"] == output
    assert len(home.search("quixotic").hits) == 1


def test_capture_is_never_of_another_machine_or_user(home, message):
    """P14: what the bytes claim about machine and user is text."""
    data = message("user", "hi", user="bob", machine="evil", user_id="bob", machine_id="evil", readable_by=["bob"])
    run = home.runs.get(home.capture(data, runtime="messages", session="s").run_id)
    assert (run.user, run.machine, run.readable_by) == ("ada", home.config.machine, ("ada",))


def test_origins_of_posted_captures_are_cleaned(home, message):
    home.captures.enqueue(
        Origin("messages", "a\0b\ud800", "c\0"), message("user", "through the box"), from_offset=0, path=None
    )
    assert home.captures.drain() == 1
    assert len(home.search("box").hits) == 1


def test_new_messages_of_a_session_are_appended(opened):
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    first = opened().capture_messages(said, session="s")
    second = opened().capture_messages([{"role": "user", "content": "three"}], session="s")
    assert (first.outcome, second.outcome) == ("stored", "stored") and second.to_offset > first.to_offset
    home = opened()
    home.upkeep.catch_up()
    turns = [turn for view in home.runs.conversation("s") for turn in home.runs.transcript(view.run_id).parsed.turns]
    assert [(turn.role, turn.text()) for turn in turns] == [("user", "one"), ("assistant", "two"), ("user", "three")]
    assert all(turn.stated_at is not None for turn in turns)


def test_two_writers_of_one_session_lose_nothing(opened):
    homes = [opened(), opened()]
    for n in range(10):
        homes[n % 2].capture_messages([{"role": "user", "content": f"message {n}"}], session="s")
    homes[0].upkeep.catch_up()
    runs = homes[0].runs.conversation("s")
    said = [turn.text() for view in runs for turn in homes[0].runs.transcript(view.run_id).parsed.turns]
    assert said == [f"message {n}" for n in range(10)]


def test_turns_of_many_small_runs_do_not_pile_up_in_memory(home, message, monkeypatch):
    """What stays is bounded by number as by size: the objects of a small run are larger than its bytes."""
    monkeypatch.setattr(archive, "_CACHED_TURN_BYTES", 10_000)
    for n in range(12):
        home.capture(message("user", f"small {n}", n), runtime="messages", session=f"s{n}")
    home.upkeep.catch_up()
    entries = home.archive.ledger.list_changes(0)
    assert [len(home.archive.read_turns(entry)[1].turns) for entry in entries] == [1] * 12
    assert 1 < len(home.archive._turns) <= 5
    assert home.archive._n_cached_bytes == sum(max(run.n_bytes, 2_000) for run, _ in home.archive._turns.values())
