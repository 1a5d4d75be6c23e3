"""Tiers of a workflow that are down, killed, expired or shared: rows W18, W29, W31, W33, W36, W38, W39 and D08."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Busy, UsageError
from perdure.home import Home
from perdure.workflow.memory import WorkflowMemory
from perdure.workflow.redis_store import TTL_S
from perdure.workflow.tier_queue import PAUSE_S
from perdure.workflow.unified_memory import UnifiedMemory
from rig.tier_kills import Killing
from rig.tier_servers import ObjectServer, RedisServer
from rig.workflow import Athena, Clock, log


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with perdure.open(tmp_path / "home") as opened:
        yield opened


# tiers that are shared, and that expire ----------------------------------------------------------------------------


@pytest.fixture(params=["folder", "objects"])
def place(request, tmp_path):
    """Where blobs are kept."""
    if request.param == "folder":
        yield tmp_path / "blobs"
        return
    (tmp_path / "objects").mkdir()
    server = ObjectServer(tmp_path / "objects")
    server.start()
    yield server.store
    server.kill()


@pytest.mark.slow
def test_two_tenants_with_the_same_names_never_meet(redis_url, redis_server, place, tmp_path):
    """W38: two users of one home, on the same servers, in a workflow, step and agent of the same names."""
    athena = Athena()
    shared: dict[str, Any] = {"redis_store": redis_url, "blob_storage": place, "athena_client": athena}
    with (
        perdure.open(tmp_path / "home", user="ada") as her_home,
        perdure.open(tmp_path / "home", user="bob") as his_home,
    ):
        ada = WorkflowMemory("wf", "s1", "agent", user="ada", home=her_home, **shared)
        bob = WorkflowMemory("wf", "s1", "agent", user="bob", home=his_home, **shared)
        others = [bob, WorkflowMemory("wf", "s1", "agent", **shared), WorkflowMemory("ada:wf", "s1", "agent", **shared)]
        for number in range(80):
            ada.log_turn(f"t{number}", f"The gate of Quokka opens with code {number}. " * 12, "note", "done")
        ada.save_checkpoint("{}")
        assert ada.compress() and all(ada.rehydrate_bundle().values())
        for other in others:
            assert not any(other.rehydrate_bundle().values()) and other.export() == [] and other.compress() is None
        log(bob, 1)
        assert [turn.turn_id for turn in bob.export()] == ["t0"] and len(ada.export()) == 80
        assert bob.rehydrate_bundle()["recent_turns"][0]["result"] == "200 OK 0"
        assert b"Quokka" not in b"".join(redis_server.client.scan_iter("*:bob:*"))
        for memory, home, n_hits in ((ada, her_home, 1), (bob, his_home, 0)):
            memory.close()
            home.upkeep.catch_up()
            assert min(1, len(home.search("gate of Quokka").hits)) == n_hits


@pytest.mark.slow
def test_what_expires_was_kept(redis_url, redis_server, place, home):
    """D08, W12, W31: all keys of the server expire; the summary loads from the blobs, and the export is complete."""
    moments = [datetime.now(UTC)]
    back_ends: dict[str, Any] = {"redis_store": redis_url, "blob_storage": place, "home": home}

    def read_clock() -> datetime:
        moments.append(moments[-1] + timedelta(milliseconds=1))
        return moments[-1]

    back_ends["now"] = read_clock
    memory = WorkflowMemory("wf", "s1", "ada", **back_ends)
    for number in range(120):
        memory.log_turn(f"t{number}", f"Row {number}: " + "word " * 80, "read", "done")
    summary = memory.compress()
    assert summary is not None and memory.flush()
    memory.close()
    keys = set(redis_server.client.keys())
    assert keys == {b"ledgers:wf", b"ledgers:wf:keys", b"ltm:wf"}
    assert all(TTL_S - 60 < redis_server.client.ttl(key) <= TTL_S for key in keys)
    for key in keys:
        redis_server.client.pexpire(key, 1)
    while redis_server.client.keys():
        pass
    moments.append(moments[-1] + timedelta(days=8))
    later = WorkflowMemory("wf", "s1", "ada", **back_ends)
    bundle = later.rehydrate_bundle()
    assert (bundle["ltm_summary"], bundle["recent_turns"]) == (summary, []) and "### t119 " in bundle["scratchpad"]
    assert redis_server.client.get("ltm:wf").decode() == summary
    assert [turn.turn_id for turn in later.export()] == [f"t{number}" for number in range(120)]
    assert later._summaries is not None
    originals = later._summaries.list_originals()[1]
    assert [turn.turn_id for turn in originals] == [f"t{number}" for number in range(len(originals))]


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
        assert memory.flush()
        server.kill()
        log(memory, 50, first=20)
        assert [memory.flush() for _ in range(3)] == [False] * 3
        status = memory.status()
        assert (status["ledger"].delivered, status["ledger"].failed, status["ledger"].waiting) == (20, 3, 50)
        assert status["scratchpad"].delivered == status["archive"].delivered == 70, "one tier stops no other"
        assert memory.rehydrate_bundle()["recent_turns"] == []
        assert "### t69 " in memory.rehydrate_bundle()["scratchpad"]
        server.start()
        clock.now_s += PAUSE_S
        log(memory, 1, first=70)
        assert memory.flush()
        assert [turn.turn_id for turn in memory.read_tail(1_000)] == [f"t{n}" for n in range(71)]
        status = memory.status()["ledger"]
        assert (status.delivered, status.failed, status.dropped, status.waiting) == (71, 3, 0, 0)
        assert len(memory.export()) == 71
    finally:
        memory.close()
        server.kill()
        server.client.close()


LONELY_AGENT = """
import sys, perdure
from perdure.workflow.memory import WorkflowMemory
home = perdure.open(sys.argv[1])
memory = WorkflowMemory("wf", "s1", "ada", redis_store=sys.argv[2], blob_storage=sys.argv[3], home=home)
for number in range(160):
    memory.log_turn(f"t{number}", f"Thought {number}.", "act", "done", 1)
print("acknowledged", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_archived", [False, True])
def test_the_next_process_gives_the_tiers_what_a_killed_one_did_not(is_archived, tmp_path, redis_url, home):
    """W29, W31: the server was down and the agent was killed; its turns were acknowledged by the archive alone.

    is_archived: another process has moved them into the archive meanwhile.
    """
    place = tmp_path / "blobs"
    arguments = [sys.executable, "-c", LONELY_AGENT, str(home.path), "redis://127.0.0.1:9", str(place)]
    agent = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with agent:
        assert agent.stdout is not None and agent.stdout.readline() == b"acknowledged\n"
        agent.kill()
    if is_archived:
        home.captures.drain()
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=place, home=home)
    bundle = memory.rehydrate_bundle()
    assert [turn["turn_id"] for turn in bundle["recent_turns"]] == [f"t{n}" for n in range(150, 160)]
    assert "### t159 " in bundle["scratchpad"]
    memory.log_turn("t159", "Thought 159.", "act", "done", 1)  # told again, because its program did not know
    assert [int(turn.turn_id[1:]) for turn in memory.read_tail(1_000)] == list(range(160))
    (path,) = place.rglob("*.jsonl")
    lines = path.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 160, "the scratchpad had them, and has them once"
    other = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url, blob_storage=place, home=home)
    assert other.rehydrate_bundle() == bundle and path.read_text().splitlines() == lines
    other_agent = WorkflowMemory("wf", "s1", "bob", redis_store=redis_url, blob_storage=place, home=home)
    assert other_agent.rehydrate_bundle()["scratchpad"] == ""


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


def test_a_checkpoint_that_is_no_text_holds_up_no_later_one(redis_url):
    """Half a pair of surrogates, as a program finds it in a file name, cannot be sent as it is."""
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url)
    memory.save_checkpoint({"name": "\ud800.txt"})
    assert memory.load_checkpoint() == '{"name": "?.txt"}'
    memory.save_checkpoint("2")
    assert memory.load_checkpoint() == "2" and memory.flush()
    memory.close()


def test_a_memory_is_closed_once_and_says_so(tmp_path, home):
    async def run() -> None:
        async with UnifiedMemory("wf", "s1", "ada", blob_storage=tmp_path / "blobs", home=home) as memory:
            await memory.log_turn("t1", "Look.", "http_get", "200 OK", 1)
            await memory.close()
            await memory.close()
            with pytest.raises(UsageError, match="closed"):
                await memory.log_turn("t2", "Look.", "http_get", "200 OK", 1)

    asyncio.run(run())


def test_a_pause_of_the_capture_holds_for_the_archive_alone(tmp_path, home):
    memory = WorkflowMemory("wf", "s1", "ada", blob_storage=tmp_path / "blobs", home=home)
    home.captures.pause()
    log(memory, 1)
    home.captures.resume()
    log(memory, 1, first=1)
    assert memory.flush() and [turn.turn_id for turn in memory.export()] == ["t1"], (
        "what was said during the pause is not kept later"
    )
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_of_agents_and_servers_lose_and_double_nothing(tmp_path):
    """W31, W33: the same with 8 agents of 1,000 turns is `python -m benchmarks.tiers --kills`."""
    killing = Killing(3, 60, turn_s=0.1, agent_kill_s=3.0, server_kill_s=6.0, down_s=0.5, pause_s=1.0)
    counts = killing.run(tmp_path)
    assert min(killing.n_killed[name] for name in ("agent", "valkey")) >= 1
    assert counts["acknowledged"] == counts["export"] == counts["ledger"] == counts["scratchpad"] == 180
    assert [name for name, n in counts.items() if name.endswith((" lost", " twice")) and n] == []
    assert counts["checkpoints at the end"] == 3
