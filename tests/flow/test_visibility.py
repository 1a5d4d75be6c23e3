"""What a grant lets another read, case by case; tests/flow/test_worlds.py holds it against an oracle."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import perdure
from perdure.archive.archive import Delta
from perdure.errors import MemoryMissing, NotFound
from perdure.index import keyword, store
from perdure.index.visibility import MemoryLineage, find_readable_memories
from perdure.types import Filters, Grant, Origin, Principal, Span
from rig.worlds import Reader

START = datetime(2026, 1, 15, 9, tzinfo=UTC)
KEY = "sk-ant-" + "api03-Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk"


def line(role, content, minute=0, **more):
    at = (START + timedelta(minutes=minute)).isoformat()
    return json.dumps({"role": role, "content": content, "timestamp": at, **more}).encode() + b"\n"


def grant(scope, value, *, owner="ada", grantee="bob", until_at=None):
    return Grant("g1", owner, grantee, scope, value, until_at)


class Shore:
    """A home of ada's that bob reads."""

    def __init__(self, place):
        place.mkdir(mode=0o700)
        (place / "config.toml").write_text("[memories]\nstated = false\n")
        self.ada = perdure.open(place, user="ada")
        self.home = Reader(place, self.ada.config, Principal("bob"), writable=False)
        self.n = 0

    def say(self, *words, session="s", user="ada", minute=0, role="user", offset=0, **how):
        """The run that says this."""
        data = b"".join(line(role, said, minute + i) for i, said in enumerate(words))
        origin = Origin("messages", session, how.pop("conversation", session), how.pop("parent_session", None),
                        how.pop("cwd", None))  # fmt: skip
        delta = Delta(origin, user, "box", data, offset, **how)
        (answer,) = self.ada.archive.store([delta], now=START, tombstones={})
        assert answer.outcome == "stored"
        self.ada.upkeep.catch_up()
        return answer.run_id, answer.to_offset

    def bob(self, *grants):
        """The home as bob sees it under these grants."""
        self.home.given = Principal("bob", grants)
        return self.home

    def found(self, query, *grants, **how):
        return {hit.text for hit in self.bob(*grants).search(query, **how).hits}


@pytest.fixture
def shore(tmp_path):
    made = Shore(tmp_path / "home")
    yield made
    made.home.close()
    made.ada.close()


# scopes ---------------------------------------------------------------------------------------------------------


def test_only_a_valid_grant_of_the_owner_shares_a_run(shore):
    run, _ = shore.say("the buoy is red", tags=("sea",))
    own = [grant("run", run, grantee="eve"), grant("run", run, owner="eve"), grant("tag", ""),
           grant("tag", "' OR 1=1 --"), grant("run", run, until_at=START)]  # fmt: skip
    for given in ([], *([one] for one in own), own):
        assert shore.found("buoy", *given) == set()
        with pytest.raises(NotFound):
            shore.home.runs.get(run)
        with pytest.raises(NotFound):
            shore.home.runs.raw(run)


def test_tag_project_and_agent_grants_cover_later_runs(shore):
    shore.say("buoy one", session="a", tags=("sea", "x"), project="/w/dock", agent="scout")
    shore.say("buoy two", session="b", project="/w/dockyard")
    given = {"tag": "sea", "project": "/w/dock", "agent": "scout"}
    for scope, value in given.items():
        assert shore.found("buoy", grant(scope, value)) == {"buoy one"}
    shore.say("buoy three", session="c", tags=("sea",), project="/w/dock", agent="scout")
    for scope, value in given.items():
        assert shore.found("buoy", grant(scope, value)) == {"buoy one", "buoy three"}
        assert shore.found("buoy") == set()


def test_run_grant_covers_later_runs_below_it_and_none_above(shore):
    _, end = shore.say("buoy zero", session="top")
    one, end = shore.say("buoy one", session="top", offset=end, minute=10)
    shore.say("buoy spawned early", session="early", parent_session="top", minute=5)
    _, end = shore.say("buoy two", session="top", offset=end, minute=20)
    shore.say("buoy spawned", session="below", parent_session="top", minute=25)
    named, _ = shore.say("buoy named", session="elsewhere", parent_run_id=one)
    shore.say("buoy of the named", session="deep", parent_run_id=named)
    assert shore.found("buoy", grant("run", one)) == {
        "buoy one", "buoy two", "buoy spawned", "buoy named", "buoy of the named"
    }  # fmt: skip
    shore.say("buoy later", session="latest", parent_session="below", minute=40)
    assert "buoy later" in shore.found("buoy", grant("run", one))
    view = shore.home.runs.get(one)
    assert view.parent_run_id is None and view.root_run_id == one
    (node,) = shore.home.runs.forest()
    assert node.run.run_id == one and len(shore.home.runs.descendants(one)) == 5


def test_sidechain_grant_shares_no_surrounding_bytes_or_ids(shore):
    def entry(role, said, uuid, side, minute):
        at = (START + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z")
        head = {"type": role, "uuid": uuid, "sessionId": "c", "timestamp": at, "cwd": "/w", "isSidechain": side}
        return json.dumps({**head, "message": {"role": role, "content": said}}).encode() + b"\n"

    data = entry("user", "the open sea", "u1", False, 0) + entry("user", "the deep sea", "u2", True, 1)
    (answer,) = shore.ada.archive.store(
        [Delta(Origin("claude-code", "c", "c"), "ada", "box", data)], now=START, tombstones={}
    )
    shore.ada.upkeep.catch_up()
    (side,) = shore.ada.runs.descendants(answer.run_id)
    assert shore.found("sea", grant("run", side.run_id)) == {"the deep sea"}
    assert shore.home.runs.get(side.run_id).parent_run_id is None
    for refused in (shore.home.runs.transcript, shore.home.runs.raw, shore.home.runs.get):
        with pytest.raises(NotFound):
            refused(answer.run_id)
    assert shore.found("sea", grant("run", answer.run_id)) == {"the open sea", "the deep sea"}


def test_copy_is_hidden_when_its_original_may_not_be_read(shore):
    def entry(said, uuid, session, minute):
        at = (START + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z")
        head = {"type": "user", "uuid": uuid, "sessionId": session, "timestamp": at, "cwd": "/w", "isSidechain": False}
        return json.dumps({**head, "message": {"role": "user", "content": said}}).encode() + b"\n"

    first = entry("the first tide", "u1", "a", 0)
    copy = entry("the first tide", "u1", "b", 0) + entry("the second tide", "u2", "b", 1)
    deltas = [Delta(Origin("claude-code", name, name), "ada", "box", raw) for name, raw in (("a", first), ("b", copy))]
    _, fork = shore.ada.archive.store(deltas, now=START, tombstones={})
    shore.ada.upkeep.catch_up()
    assert shore.found("tide", grant("run", fork.run_id)) == {"the second tide"}
    assert b"first tide" in shore.home.runs.raw(fork.run_id)  # it is of the bytes that were shared


# what is told of it ---------------------------------------------------------------------------------------------


def test_shared_hits_name_their_owner_and_show_only_a_rank(shore):
    shore.say("the buoy of ada", tags=("sea",))
    shore.say("my own buoy", session="mine", user="bob")
    found = shore.bob(grant("tag", "sea")).search("buoy", mode="keyword")
    assert {(hit.user, hit.score) for hit in found.hits} <= {("ada", 1.0), ("ada", 0.5), ("bob", 1.0), ("bob", 0.5)}
    assert {hit.user for hit in found.hits} == {"ada", "bob"} and found.terms == ("buoy",)
    recalled = shore.home.recall("what of the buoy of ada?", explain=True)
    (cue,) = [cue for cue in recalled.cues if cue.user == "ada"]
    assert cue.is_shared and not cue.legs and not any(char.isdigit() for reason in cue.why for char in reason)
    assert not any("0." in reason for reason in recalled.passed_over.values())
    from perdure.recall.pack import render_cue

    assert "shared by ada (user)" in render_cue(cue)
    assert not any(cue.is_shared for cue in shore.bob().recall("what of the buoy?").cues)


def test_reader_without_runs_finds_and_recalls_shared_ones(shore):
    shore.say("Yesterday Alice Munro moored the ferry at the northern jetty", tags=("sea",))
    recalled = shore.bob(grant("tag", "sea")).recall("where did Alice Munro moor the ferry?")
    assert [cue.user for cue in recalled.cues] == ["ada"] and recalled.cues[0].is_shared
    assert not shore.bob().recall("where did Alice Munro moor the ferry?").cues


def test_secrets_are_masked_for_a_grantee_but_not_for_the_owner(shore):
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "sh", "arguments": json.dumps({"password": "hunter2hunter2"})},
    }
    raw = line("user", f"use {KEY}") + line("assistant", "done", 1, tool_calls=[call], api_key="tr0ub4dor-tr0ub4dor")
    delta = Delta(Origin("messages", "s", "s", None, f"/w/{KEY}"), "ada", "box", raw, path=f"/x/{KEY}.jsonl")
    (answer,) = shore.ada.archive.store([delta], now=START, tombstones={})
    shore.ada.upkeep.catch_up()
    assert shore.ada.runs.raw(answer.run_id) == raw
    given = shore.bob(grant("run", answer.run_id))
    for told in (
        given.runs.raw(answer.run_id).decode(),
        repr(given.runs.transcript(answer.run_id)),
        repr(given.runs.get(answer.run_id)),
    ):
        assert not any(secret in told for secret in (KEY, "hunter2hunter2", "tr0ub4dor-tr0ub4dor"))
    assert all(json.loads(one) for one in given.runs.raw(answer.run_id).splitlines())
    assert given.runs.get(answer.run_id).jsonl_sha256 == "" and given.runs.get(answer.run_id).readable_by == ()


def test_turns_of_another_user_cannot_be_forgotten(shore):
    run, _ = shore.say("the buoy is red", conversation="talk")
    given = shore.bob(grant("run", run))
    (turn,) = [hit.turn_id for hit in given.search("buoy").hits]
    for name in (run, turn, "talk"):
        with pytest.raises(NotFound):
            given.forgetting.plan([name])
    assert given.forgetting.plan_by_query("buoy") == []


@pytest.mark.parametrize("scan", [False, True])
def test_the_scan_without_an_index_honours_grants(shore, scan):
    shore.say("buoy one", session="a", tags=("sea",), project="/w/dock", agent="scout")
    top, end = shore.say("buoy two", session="b")
    shore.say("buoy three", session="b", offset=end, minute=9)
    shore.say("buoy four", session="c", parent_run_id=top)
    shore.say("buoy five", session="d", parent_session="b", minute=20)
    for one in (grant("tag", "sea"), grant("project", "/w/dock"), grant("agent", "scout")):
        assert shore.found("buoy", one, scan=scan) == {"buoy one"}
    below = {"buoy two", "buoy three", "buoy four", "buoy five"}
    assert shore.found("buoy", grant("run", top), scan=scan) == below
    assert shore.found("buoy", grant("run", top, until_at=START), scan=scan) == set()


def test_only_own_waiting_deltas_are_counted(shore):
    for n, user in enumerate(("ada", "ada", "bob")):
        delta = Delta(Origin("messages", f"w{n}", "w"), user, "box", line("user", "waiting"))
        shore.ada.archive.store([delta], now=START, tombstones={})
    shore.say("the buoy is red", session="z")  # so that there is an index, which then goes back
    shore.ada.index().set_meta(change="0")
    assert shore.bob().search("buoy").n_behind == 1


# narrowing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_by_word_and_by_column_the_same_is_found(shore, share, monkeypatch):
    from perdure.index import visibility

    monkeypatch.setattr(visibility, "SELECTIVE_SHARE", share)
    for n in range(6):
        shore.say(f"buoy {n}", session=f"s{n}", tags=("sea",) if n % 2 else (), project=f"/w/p{n % 3}")
    assert shore.found("buoy", grant("tag", "sea")) == {"buoy 1", "buoy 3", "buoy 5"}
    both = Filters(projects=("/w/p1",))
    assert shore.found("buoy", grant("tag", "sea"), filters=both) == {"buoy 1"}
    assert shore.found("", grant("tag", "sea")) == {"buoy 1", "buoy 3", "buoy 5"}
    facets = shore.home.runs.facets("buoy")
    assert facets.counts["tag"] == {"sea": 3} and facets.counts["project"] == {"/w/p0": 1, "/w/p1": 1, "/w/p2": 1}


def test_counts_of_words_and_names_reveal_nothing_private(shore):
    shore.say("Harbour Master Alice Munro", session="a")
    shore.say("Alice Munro again", session="b", tags=("sea",))
    home = shore.bob(grant("tag", "sea"))
    counts, total = keyword.count_term_frequencies(home.index(), home.given, ["Alice Munro", "master"])
    assert counts == {"Alice Munro": 1, "master": 0} and total == 1


def test_projects_are_listed_only_with_something_readable(shore):
    shore.say("buoy one", session="a", project="/w/secret")
    shore.say("buoy two", session="b", project="/w/dock", tags=("sea",))
    shore.say("buoy three", session="c", user="bob")
    assert shore.bob().runs.projects() == [""] and shore.bob(grant("tag", "sea")).runs.projects() == ["", "/w/dock"]
    assert shore.ada.runs.projects() == ["/w/dock", "/w/secret"]


def test_without_a_grant_no_temporary_table_is_made(shore):
    shore.say("my own buoy", user="bob")
    assert shore.found("buoy") == {"my own buoy"}
    assert shore.home.index().temp_cache is None


def test_snapshot_is_made_again_after_a_failure(shore):
    run, _ = shore.say("the buoy is red")
    given, index = shore.bob(grant("run", run)), shore.home.index()
    with pytest.raises(ZeroDivisionError), index.begin_read():
        keyword.find_candidates(index, given.principal, "buoy", filters=Filters(), limit=3)
        _ = 1 / 0
    assert index.temp_cache is None and shore.found("buoy", grant("run", run)) == {"the buoy is red"}
    assert isinstance(index, store.IndexConnection)


# memories -------------------------------------------------------------------------------------------------------


def made(name, *, how="stated", sources=(), made_from=(), agent="default", project=None, retired=False):
    return MemoryLineage(name, agent, how, project, tuple((run, 0, 9) for run in sources), tuple(made_from), retired)


AGENT, PROJECT = grant("agent", "default"), grant("project", "/w/dock")
LINEAGES = [
    ([made("m", sources=("r1",))], (), {"m"}),
    ([made("m", sources=("r1", "private"))], (AGENT,), set()),
    ([made("m", how="edited", sources=("r1",))], (), set()),
    ([made("m", how="edited", sources=("r1",))], (AGENT,), {"m"}),
    ([made("m", how="remembered")], (), set()),
    ([made("m", how="remembered")], (PROJECT,), set()),
    ([made("m", how="remembered", project="/w/dock")], (PROJECT,), {"m"}),
    ([made("a", sources=("r1",)), made("m", how="consolidated", made_from=("a",))], (), {"a", "m"}),
    ([made("a", how="remembered"), made("m", how="consolidated", sources=("r1",), made_from=("a",))], (), set()),
    ([made("a", sources=("private",)), made("m", how="consolidated", made_from=("a",))], (AGENT,), set()),
    ([made("m", how="consolidated", made_from=("gone",))], (AGENT,), set()),
    ([made("a", made_from=("m",)), made("m", made_from=("a",))], (AGENT,), set()),
    ([made("a", sources=("r1",), retired=True), made("m", made_from=("a",))], (), {"m"}),
    ([made("c", sources=("r1",)), made("b", made_from=("c",)), made("m", made_from=("c", "b"))], (), {"b", "c", "m"}),
]


@pytest.mark.parametrize(("every", "grants", "expected"), LINEAGES)
def test_memory_is_readable_when_all_its_sources_are(every, grants, expected):
    assert find_readable_memories({one.memory_id: one for one in every}, {"r1"}, grants) == expected


def test_shared_chain_is_settled_over_readable_memories(shore):
    """The port was 1, then 2, then 3; the run that says 2 is private: to bob 3 follows 1, and nothing else is named."""
    said = [("the port is 4001", "a", ("sea",)), ("the port is 4002", "b", ()), ("the port is 4003", "c", ("sea",))]
    from perdure.memories.store import MemoryDraft

    for n, (words, session, tags) in enumerate(said):
        run, end = shore.say(words, session=session, tags=tags, minute=n)
        shore.ada.memories.keep(
            MemoryDraft(
                words, path="port", how="stated", sources=(Span(run, 0, end),), stated_at=START + timedelta(minutes=n)
            )
        )
    one, two, three = sorted(shore.ada.memories.list_memories(every=True), key=lambda memory: memory.stated_at)
    assert one.superseded_by == two.memory_id
    given = shore.bob(grant("tag", "sea"))
    old, new = given.memories.shared.history(three.memory_id)
    assert (old.memory_id, old.superseded_by, new.is_current) == (one.memory_id, three.memory_id, True)
    assert old.ended_at == new.stated_at and {old.shared_by, new.shared_by} == {"ada"}
    assert (new.trust, new.n_used, new.order, new.pinned) == ("agent", 0, "", False)
    assert {hit.memory.text for hit in given.memories.search("port", every=True)} == {
        "the port is 4001",
        "the port is 4003",
    }
    told = repr(given.recall("which port is it, what was the port before?", explain=True))
    assert "4003" in told and "4002" not in told and two.memory_id not in told
    with pytest.raises(MemoryMissing):
        given.memories.holder_of(two.memory_id)
    with pytest.raises(MemoryMissing):
        given.memories.change([one.memory_id], pinned=True)


def test_owners_use_of_a_shared_memory_is_not_visible(shore):
    run, end = shore.say("the anchor is of iron", tags=("sea",))
    from perdure.memories.store import MemoryDraft

    kept = shore.ada.memories.keep(
        MemoryDraft("The anchor is of iron.", how="stated", sources=(Span(run, 0, end),))
    ).memory
    before = shore.bob(grant("tag", "sea")).memories.shared.get(kept.memory_id)
    shore.ada.memories.search("anchor", touch=True)
    shore.ada.memories.change([kept.memory_id], pinned=True)
    assert replace(shore.bob(grant("tag", "sea")).memories.shared.get(kept.memory_id)) == before
