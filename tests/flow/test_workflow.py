"""The tiers of a workflow on real servers: rows W01 to W12, W19 to W22, W30, W32 and W37."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import ModelUnreachable
from perdure.home import Home
from perdure.session.catalog import list_sessions
from perdure.workflow import UnifiedMemory
from perdure.workflow.memory import MAX_BUNDLE_CHARS, WorkflowMemory
from perdure.workflow.redis_store import TTL_S
from rig.workflow import Athena, log

redis_errors: Any = pytest.importorskip("redis.exceptions")
FACTS = [
    "The billing service must never exceed 120 requests per minute.",
    "We decided to store invoices in PostgreSQL 17.",
    "The export has to finish before 2026-12-31.",
]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with perdure.open(tmp_path / "home") as opened:
        yield opened


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
    assert memory.flush()

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


def test_an_entry_of_the_ledger_is_never_changed(redis_url, redis_server):
    """W07, W36: the server refuses an entry of an earlier place; a turn told anew stands behind the first."""
    memory = WorkflowMemory("wf", "s1", "ada", redis_store=redis_url)
    log(memory, 3)
    before = redis_server.client.xrange("ledgers:wf")
    with pytest.raises(redis_errors.ResponseError):
        redis_server.client.xadd("ledgers:wf", {"turn_id": "t1"}, id=before[1][0])
    log(memory, 3, result="error")
    assert redis_server.client.xrange("ledgers:wf")[:3] == before and len(memory.read_tail(9)) == 6


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
    assert memory.flush()
    path = tmp_path / "blobs" / "workflows" / "wf" / "scratchpads" / "s1" / "ada.jsonl"
    assert [json.loads(line)["result"] for line in path.read_text().splitlines()] == texts
    bundle = memory.rehydrate_bundle()
    assert "(showing 800 of 200,003 characters)" in bundle["recent_turns"][0]["result"]
    assert "of 200,003 characters)" in bundle["scratchpad"]
    assert len(json.dumps(bundle)) < 50_000
    memory.close()


@pytest.mark.slow
def test_the_bundle_of_ten_thousand_turns_stays_below_its_cap(redis_url, tmp_path, home):
    """W30, W31: long texts, in one step of one workflow, with summaries."""
    athena = Athena()
    servers: Any = {"redis_store": redis_url, "blob_storage": tmp_path / "blobs", "athena_client": athena}
    memory = WorkflowMemory("wf", "s1", "ada", home=home, **servers)
    sizes = []
    for number in range(10_000):
        memory.log_turn(f"t{number}", f"{FACTS[number % 3]} {number}", "read", f"{number} " * 400, 10)
        if number % 500 == 499:
            memory.compress()
            bundle = memory.rehydrate_bundle()
            sizes.append(sum(len(json.dumps(bundle[key])) for key in ("ltm_summary", "recent_turns", "scratchpad")))
    assert len(sizes) == 20 and 20_000 < max(sizes) <= MAX_BUNDLE_CHARS
    assert memory.rehydrate_bundle()["recent_turns"][-1]["turn_id"] == "t9999"
    assert [turn.turn_id for turn in memory.export()] == [f"t{number}" for number in range(10_000)]
    status = memory.status()
    assert {status[name].delivered for name in ("archive", "ledger", "scratchpad", "semantic")} == {10_000}
    memory.close()


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
