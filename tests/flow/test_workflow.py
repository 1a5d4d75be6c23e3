"""The tiers of a workflow on real servers: rows W01 to W12, W18 to W22, W30 to W33, W36, W37 and W39."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Busy, ModelUnreachable
from perdure.home import Home
from perdure.session.catalog import list_sessions
from perdure.workflow import UnifiedMemory
from perdure.workflow.memory import WorkflowMemory
from perdure.workflow.redis_store import TTL_S
from perdure.workflow.tier_queue import PAUSE_S
from rig.tier_servers import ObjectServer, RedisServer

FACTS = [
    "The billing service must never exceed 120 requests per minute.",
    "We decided to store invoices in PostgreSQL 17.",
    "The export has to finish before 2026-12-31.",
]


class Athena:
    """A semantic tier in memory."""

    def __init__(self) -> None:
        self.turns: dict[str, dict[str, Any]] = {}

    def store_turn(self, agent_id: str, turn: dict[str, Any]) -> None:
        self.turns[turn["key"]] = {"agent": agent_id, **turn}

    def get_memory_context(self, agent_id: str, *, limit: int) -> dict[str, Any] | None:
        own = [turn for turn in self.turns.values() if turn["agent"] == agent_id]
        return {"stm_events": own[-limit:]} if own else None


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()
    server.client.close()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    redis_server.client.flushall()
    return redis_server.url


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with perdure.open(tmp_path / "home") as opened:
        yield opened


def log(memory: WorkflowMemory, n: int, *, first: int = 0, result: str = "200 OK") -> None:
    for number in range(first, first + n):
        memory.log_turn(f"t{number}", f"Thought {number}.", "http_get", f"{result} {number}", 10 + number)


# the tiers and the bundle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("redis", "blob", "athena"), list(product([False, True], repeat=3)))
def test_every_subset_of_back_ends_degrades_by_the_table(redis, blob, athena, tmp_path, request):
    """W02, W19, W21, W22: what is off is written to without effect, and read as its empty default."""
    url = request.getfixturevalue("redis_url") if redis else None
    place = tmp_path / "blobs" if blob else None

    async def work() -> Any:
        client = Athena() if athena else None
        async with UnifiedMemory(
            "wf-1", "step-1", "researcher", redis_store=url, blob_storage=place, athena_client=client
        ) as memory:
            empty = await memory.rehydrate_bundle()
            assert await memory.load_checkpoint() is None
            for number in range(60):
                await memory.log_turn(f"t{number}", FACTS[number % 3] * 12, "note", f"done {number}", tokens=5)
            await memory.save_checkpoint({"step": 3})
            await memory.compress()
            return empty, await memory.rehydrate_bundle(), await memory.load_checkpoint()

    empty, bundle, checkpoint = asyncio.run(work())
    nothing = {"ltm_summary": None, "recent_turns": [], "checkpoint": None, "scratchpad": "", "athena_context": None}
    assert empty == nothing
    assert list(bundle) == list(nothing)
    assert [turn["turn_id"] for turn in bundle["recent_turns"]] == ([f"t{n}" for n in range(50, 60)] if redis else [])
    assert bundle["checkpoint"] == checkpoint == ('{"step": 3}' if redis else None)
    assert ("### t59 " in bundle["scratchpad"]) == blob and (bundle["scratchpad"] == "") != blob
    assert isinstance(bundle["ltm_summary"], str) == (redis and blob)
    assert isinstance(bundle["athena_context"], dict) == athena
    if not (redis or blob or athena):
        assert bundle == nothing and list(tmp_path.iterdir()) == []


def test_one_call_reaches_every_tier_and_the_archive(redis_url, redis_server, tmp_path, home):
    """W01, W03, W04, W07, W08."""
    athena = Athena()
    memory = WorkflowMemory(
        "wf-1", "step-1", "ada", redis_store=redis_url, blob_storage=tmp_path / "blobs", athena_client=athena, home=home
    )
    memory.log_turn("t1", "Identify sources.", "http_get", "200 OK, 42 records", 1240)
    memory.log_turn("t1", "Identify sources.", "http_get", "200 OK, 42 records", 1240)  # told again: nothing

    ((_, fields),) = redis_server.client.xrange("ledgers:wf-1")
    timestamp = fields.pop(b"timestamp").decode()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", timestamp)
    assert fields == {
        b"turn_id": b"t1", b"thought": b"Identify sources.", b"action": b"http_get",
        b"result": b"200 OK, 42 records", b"tokens": b"1240",
    }  # fmt: skip
    assert TTL_S - 60 < redis_server.client.ttl("ledgers:wf-1") <= TTL_S == 604_800
    path = tmp_path / "blobs" / "workflows" / "wf-1" / "scratchpads" / "step-1" / "ada.jsonl"
    assert {json.loads(line)["result"] for line in path.read_text().splitlines()} == {"200 OK, 42 records"}
    assert memory.read_scratchpad().count("### t1 ") == 1
    assert len(athena.turns) == 1
    (turn,) = memory.export()
    assert (turn.turn_id, turn.tokens, turn.timestamp, turn.agent) == ("t1", 1240, timestamp, "ada")
    assert list_sessions(home) == [], "a workflow is no session of ours"
    memory.close()
    home.upkeep.catch_up()
    (hit,) = [hit for hit in home.search("Identify sources").hits if hit.role == "assistant"]
    assert hit.runtime == "workflow"


def test_a_step_begins_with_an_empty_scratchpad(tmp_path):
    """W05, W06."""
    first = WorkflowMemory("wf", "s1", "ada", blob_storage=tmp_path)
    log(first, 2)
    assert "**Thought:** Thought 1." in first.rehydrate_bundle()["scratchpad"]
    assert WorkflowMemory("wf", "s2", "ada", blob_storage=tmp_path).rehydrate_bundle()["scratchpad"] == ""
    assert WorkflowMemory("wf", "s1", "bob", blob_storage=tmp_path).rehydrate_bundle()["scratchpad"] == ""


def test_users_do_not_meet(redis_url, tmp_path, home):
    shared: dict[str, Any] = {"redis_store": redis_url, "blob_storage": tmp_path / "blobs", "home": home}
    ada, bob = (WorkflowMemory("wf", "s1", "agent", user=user, **shared) for user in ("ada", "bob"))
    plain = WorkflowMemory("ada:wf", "s1", "agent", **shared)
    log(ada, 1)
    ada.save_checkpoint("{}")
    for other in (bob, plain):
        bundle = other.rehydrate_bundle()
        assert not any(bundle.values()) and other.export() == []
    assert len(ada.export()) == 1
    ada.close()


def test_order_is_kept_under_concurrent_writers(redis_url):
    """W07, W20."""

    def write(agent: str) -> None:
        log(WorkflowMemory("wf", "s1", agent, redis_store=redis_url), 50)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, "abcdefgh"))
    memory = WorkflowMemory("wf", "s1", "a", redis_store=redis_url)
    numbers = [int(turn.turn_id[1:]) for turn in memory.read_tail(1_000)]
    assert len(numbers) == 400
    n_seen = [0] * 51
    for number in numbers:
        n_seen[number] += 1
        assert n_seen[number] <= (n_seen[number - 1] if number else 8), "a writer's turn stands behind its earlier ones"
    assert n_seen == [8] * 50 + [0], "every writer's turn is there, once"
    for k in (0, 3, 50):
        assert len(memory.rehydrate_bundle(k)["recent_turns"]) == k


def test_the_tail_of_ten_thousand_is_read_alone(redis_url, redis_server):
    """W09: the server itself says how long it took; a read of everything takes it milliseconds."""
    pipeline = redis_server.client.pipeline()
    for number in range(10_000):
        fields = {
            "turn_id": f"t{number}",
            "timestamp": "",
            "thought": "x" * 100,
            "action": "a",
            "result": "r",
            "tokens": 1,
        }
        pipeline.xadd("ledgers:wf", fields)
    pipeline.execute()
    memory = WorkflowMemory("wf", "s1", "a", redis_store=redis_url)
    redis_server.client.config_resetstat()
    for _ in range(20):
        assert [turn.turn_id for turn in memory.read_tail(10)] == [f"t{n}" for n in range(9_990, 10_000)]
    assert redis_server.client.info("commandstats")["cmdstat_xrevrange"]["usec_per_call"] < 2_000


def test_whole_texts_are_stored_and_abridged_when_read(redis_url, tmp_path, home):
    """W32, W30: the bundle of a workflow of long turns stays small."""
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=tmp_path / "blobs", home=home)
    texts = [f"{number}-" + "x" * 200_000 for number in range(30)]
    for number, text in enumerate(texts):
        memory.log_turn(f"t{number}", text, "read", text)
    assert [turn.result for turn in memory.read_tail(100)] == texts
    assert [turn.result for turn in memory.export()] == texts
    path = tmp_path / "blobs" / "workflows" / "wf" / "scratchpads" / "s1" / "ada.jsonl"
    assert [json.loads(line)["result"] for line in path.read_text().splitlines()] == texts
    bundle = memory.rehydrate_bundle()
    assert "(showing 800 of 200,003 characters)" in bundle["recent_turns"][0]["result"]
    assert "of 200,003 characters)" in bundle["scratchpad"]
    assert len(json.dumps(bundle)) < 50_000
    memory.close()


# tiers that are down --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fifty_turns_while_the_server_is_down_arrive_once(tmp_path, home):
    """W33 on a Redis-compatible server that is killed under load and started again; W39 for the others."""
    server = RedisServer(tmp_path)
    server.start()
    clock = Clock()
    memory = WorkflowMemory(
        "wf", "s1", "ada", redis_store=server.url, blob_storage=tmp_path / "blobs", home=home, clock=clock
    )
    try:
        log(memory, 20)
        server.kill()
        log(memory, 50, first=20)
        status = memory.status()
        assert (status["ledger"].delivered, status["ledger"].failed, status["ledger"].waiting) == (20, 3, 50)
        assert status["scratchpad"].delivered == status["archive"].delivered == 70, "one tier stops no other"
        assert memory.rehydrate_bundle()["recent_turns"] == []
        assert "### t69 " in memory.rehydrate_bundle()["scratchpad"]
        server.start()
        clock.now_s += PAUSE_S
        log(memory, 1, first=70)
        assert [turn.turn_id for turn in memory.read_tail(1_000)] == [f"t{n}" for n in range(71)]
        status = memory.status()["ledger"]
        assert (status.delivered, status.failed, status.dropped, status.waiting) == (71, 3, 0, 0)
        assert len(memory.export()) == 71
    finally:
        memory.close()
        server.kill()
        server.client.close()


@pytest.mark.slow
def test_fifty_turns_while_the_object_store_is_down_arrive_once(tmp_path, redis_url):
    server = ObjectServer(tmp_path)
    server.start()
    clock = Clock()
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=server.store, clock=clock)
    try:
        log(memory, 5)
        server.kill()
        log(memory, 50, first=5)
        status = memory.status()
        assert (status["scratchpad"].delivered, status["scratchpad"].waiting) == (5, 50)
        assert status["ledger"].delivered == 55
        server.start()
        clock.now_s += PAUSE_S
        assert memory.flush()
        names = open_names(server)
        assert len(names) == len(set(names)) == 55
        assert "### t54 " in memory.read_scratchpad()
    finally:
        server.kill()


def open_names(server: ObjectServer) -> list[str]:
    import obstore

    return [meta["path"] for page in obstore.list(server.store, "workflows/wf/scratchpads/s1/ada/") for meta in page]


def test_an_answer_that_was_lost_does_not_double_a_turn(redis_url, redis_server):
    """The server took the turn, and the client never heard of it: tried again, it is there once."""

    class DeafClient:
        n_calls = 0

        def eval(self, *arguments: Any) -> Any:
            answer = redis_server.client.eval(*arguments)
            self.n_calls += 1
            if self.n_calls == 1:
                raise TimeoutError("no answer")
            return answer

        def xrevrange(self, *arguments: Any, **options: Any) -> Any:
            return redis_server.client.xrevrange(*arguments, **options)

    memory = WorkflowMemory("wf", "s1", "ada", redis_store=DeafClient())
    log(memory, 3)
    assert [turn.turn_id for turn in memory.read_tail(10)] == ["t0", "t1", "t2"]
    assert (memory.status()["ledger"].failed, memory.status()["ledger"].delivered) == (1, 3)


def test_a_place_that_cannot_be_written_stops_no_other_tier(redis_url, tmp_path):
    """W39."""
    (tmp_path / "blobs").write_text("a file where a folder should be")
    athena = Athena()
    memory = WorkflowMemory(
        "wf", "s1", "ada", redis_store=redis_url, blob_storage=tmp_path / "blobs", athena_client=athena
    )
    log(memory, 1)
    status = memory.status()
    assert (status["scratchpad"].failed, status["scratchpad"].waiting) == (1, 1) and status["scratchpad"].last_error
    assert status["ledger"].delivered == status["semantic"].delivered == len(athena.turns) == 1


def test_an_error_never_overwrites_a_success(redis_url, tmp_path, home):
    """W36: the same turn told with another result is another entry; the first one stays everywhere."""
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=tmp_path / "blobs", home=home)
    memory.log_turn("t1", "Send.", "http_post", "201 Created", 1)
    memory.log_turn("t1", "Send.", "http_post", "error: timed out", 1)
    results = ["201 Created", "error: timed out"]
    assert [turn.result for turn in memory.read_tail(9)] == [turn.result for turn in memory.export()] == results
    assert all(result in memory.read_scratchpad() for result in results)
    memory.close()


def test_a_pause_of_the_capture_holds_for_the_archive_alone(tmp_path, home):
    memory = WorkflowMemory("wf", "s1", "ada", blob_storage=tmp_path / "blobs", home=home)
    home.captures.pause()
    log(memory, 1)
    home.captures.resume()
    log(memory, 1, first=1)
    assert [turn.turn_id for turn in memory.export()] == ["t1"], "what was said during the pause is not kept later"
    assert (memory.status()["archive"].dropped, memory.status()["scratchpad"].delivered) == (1, 2)
    memory.close()


def test_an_archive_that_is_busy_takes_turns_once(tmp_path, home, monkeypatch):
    """The fiftieth turn archives the others; where that fails the turn itself is written down all the same."""
    memory = WorkflowMemory("wf", "s1", "ada", home=home)
    with monkeypatch.context() as patch:
        patch.setattr(home.captures, "archive_session", lambda _: (_ for _ in ()).throw(Busy("archive")))
        log(memory, 55)
    assert memory.status()["archive"].delivered == 55
    memory.close()
    assert len(memory.export()) == 55
    data = b"".join(home.archive.read(run) for run in home.archive.ledger.list_runs(home.user))
    assert data.count(b'"assistant"') == 55


# crashes --------------------------------------------------------------------------------------------------------

AGENT = """
import os, sys, perdure
from perdure.workflow.memory import WorkflowMemory
home = perdure.open(sys.argv[1])
memory = WorkflowMemory("wf", "s1", sys.argv[4], redis_store=sys.argv[2] or None, blob_storage=sys.argv[3], home=home)
for number in range(10_000):
    memory.log_turn(f"t{number}", f"Thought {number}.", "act", "done", 1)
    memory.save_checkpoint({"next": number + 1})
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_killed_agent_goes_on_from_its_checkpoint(redis_url, tmp_path, home):
    """W18, W31: kill -9 loses no acknowledged turn, and the next process has checkpoint, notes and turns."""
    command = [sys.executable, "-c", AGENT, str(home.path), redis_url, str(tmp_path / "blobs")]
    agents = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in ("ada", "bob")]
    acknowledged = {}
    for name, agent in zip(("ada", "bob"), agents, strict=True):
        assert agent.stdout is not None
        lines = [agent.stdout.readline() for _ in range(70)]
        os.kill(agent.pid, signal.SIGKILL)
        lines += agent.stdout.readlines()
        agent.stdout.close()
        agent.wait()
        acknowledged[name] = int([line for line in lines if line.endswith(b"\n")][-1])
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=tmp_path / "blobs", home=home)
    bundle = memory.rehydrate_bundle()
    checkpoint = bundle["checkpoint"]
    assert checkpoint is not None and json.loads(checkpoint)["next"] > 60
    assert bundle["recent_turns"] and bundle["scratchpad"]
    home.captures.drain()
    for name, last in acknowledged.items():
        numbers = [int(turn.turn_id[1:]) for turn in memory.export() if turn.agent == name]
        assert numbers == list(range(len(numbers))) and len(numbers) > last


# the summary ----------------------------------------------------------------------------------------------------


def log_rows(memory: WorkflowMemory, *, first: int = 0) -> None:
    """80 turns of about 120 tokens, the facts among the first ones of the workflow."""
    for number in range(first, first + 80):
        words = " ".join(f"row{number}-{k}" for k in range(40))
        thought = FACTS[number // 5] if number in (0, 5, 10) else "Go on."
        memory.log_turn(f"t{number}", thought, "read", words, 1)


def open_long_workflow(redis_url: str, tmp_path: Path, home: Home | None = None) -> WorkflowMemory:
    """A workflow that is due for a summary."""
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=tmp_path / "blobs", home=home)
    log_rows(memory)
    return memory


def test_a_summary_is_made_once_and_keeps_planted_facts(redis_url, redis_server, tmp_path, home):
    """W10, W11, W12, W31, W37."""
    memory = open_long_workflow(redis_url, tmp_path, home)
    summary = memory.compress()
    assert summary is not None and memory.compress() is None
    assert memory._summaries is not None
    originals = memory._summaries.list_originals()[1]
    assert 40 < len(originals) < 70 and [turn.turn_id for turn in originals] == [f"t{n}" for n in range(len(originals))]
    assert summary.startswith(f"[lossy summary of {len(originals)} turns; ")
    assert all(fact in summary for fact in FACTS)
    folder = tmp_path / "blobs" / "workflows" / "wf" / "ltm"
    assert redis_server.client.get("ltm:wf").decode() == (folder / "summary.txt").read_text() == summary
    assert TTL_S - 60 < redis_server.client.ttl("ltm:wf") <= TTL_S

    redis_server.client.delete("ltm:wf")
    assert memory.rehydrate_bundle()["ltm_summary"] == summary
    assert TTL_S - 60 < redis_server.client.ttl("ltm:wf") <= TTL_S, "the cache is filled again"

    redis_server.client.delete("ledgers:wf")  # seven days later
    assert [turn.turn_id for turn in memory.export()] == [f"t{n}" for n in range(80)]
    memory.close()


def test_a_second_generation_keeps_facts_of_the_first(redis_url, tmp_path):
    memory = open_long_workflow(redis_url, tmp_path)
    memory.compress()
    log_rows(memory, first=80)
    summary = memory.compress()
    assert summary is not None and all(fact in summary for fact in FACTS)
    assert memory._summaries is not None
    originals = memory._summaries.list_originals()
    numbers = [int(turn.turn_id[1:]) for turns in originals.values() for turn in turns]
    assert sorted(originals) == [1, 2] and numbers == list(range(len(numbers))), "each turn is in one generation"
    assert summary.startswith(f"[lossy summary of {len(numbers)} turns; ")


def test_a_crash_between_the_writes_heals(redis_url, redis_server, tmp_path):
    """W11: killed after the second generation was written, before its copies."""
    memory = open_long_workflow(redis_url, tmp_path)
    first = memory.compress()
    log_rows(memory, first=80)
    assert memory._summaries is not None
    memory._summaries._write_copies = lambda _: (_ for _ in ()).throw(OSError("killed"))  # type: ignore[method-assign, assignment]
    assert memory.compress() is None and redis_server.client.get("ltm:wf") is None
    other = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=tmp_path / "blobs")
    summary = other.load_summary()
    assert summary is not None and summary != first and FACTS[0] in summary
    assert redis_server.client.get("ltm:wf").decode() == summary
    assert (tmp_path / "blobs" / "workflows" / "wf" / "ltm" / "summary.txt").read_text() == summary
    assert other.compress() is None, "it is not made again"


def test_two_agents_make_one_summary(redis_url, tmp_path):
    memories = [open_long_workflow(redis_url, tmp_path) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        summaries = list(pool.map(lambda memory: memory.compress(), memories))
    assert [summary is None for summary in summaries].count(False) == 1
    assert memories[0]._summaries is not None
    assert list(memories[0]._summaries.list_originals()) == [1]


def test_a_summariser_that_fails_changes_nothing(redis_url, tmp_path, home, monkeypatch):
    """W10, W36: the turns stay, the old summary stays, and the failure is counted."""
    memory = open_long_workflow(redis_url, tmp_path, home)
    first = memory.compress()
    log_rows(memory, first=80)

    def fail() -> Any:
        raise ModelUnreachable("no model")

    assert memory._summaries is not None
    memory._summaries._get_chat = fail
    for _ in range(5):
        assert memory.compress() is None
    assert memory.status()["summariser"].failed == 3
    assert memory.load_summary() == first and list(memory._summaries.list_originals()) == [1]
    memory.close()


def test_the_summariser_of_the_home_writes_the_narrative(redis_url, tmp_path):
    from perdure.testing import ScriptedChat

    chat = ScriptedChat(["- Decision: invoices go to PostgreSQL 17"])
    with perdure.open(tmp_path / "home", chats={"summariser": chat}) as home:
        memory = open_long_workflow(redis_url, tmp_path, home)
        summary = memory.compress()
        assert summary is not None and "## Narrative\n- Decision: invoices go to PostgreSQL 17" in summary
        assert FACTS[0] in summary, "what the narrative lost stands behind it"
        memory.close()
