"""The semantic tier, asked through a home, through Perdure's own server, and through one that answers like Athena."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import TierFault
from perdure.workflow import AthenaMemory, UnifiedMemory, get_athena_client
from perdure.workflow.athena import AthenaClient
from perdure.workflow.semantic_home import SemanticHome
from rig.athena_server import ANSWERS, AthenaServer


@pytest.fixture
def athena() -> Iterator[AthenaServer]:
    server = AthenaServer()
    yield server
    server.shutdown()
    server.server_close()


def turn(n: int, *, workflow: str = "wf-1") -> dict[str, Any]:
    return {
        "turn_id": f"t{n}", "timestamp": f"2026-11-20T09:{n:02d}:00.000000+00:00", "thought": f"Thought number {n}.",
        "action": "http_get", "result": f"42{n} records", "tokens": 5, "key": f"key-{workflow}-{n}",
        "workflow_id": workflow, "step_id": "s1",
    }  # fmt: skip


@pytest.fixture(params=["home", "served home"])
def store(request: Any, tmp_path: Path) -> Iterator[Any]:
    """What holds the semantic tier: this home, or the same behind its server."""
    if request.param == "home":
        with perdure.open(tmp_path / "home") as home:
            memory = SemanticHome(home)
            yield memory
            memory.close()
        return
    pytest.importorskip("uvicorn")
    from flow.conftest import Known  # its credentials are their own secrets
    from perdure.service.server import HomeServer, Intervals
    from perdure.surfaces.http.server import HttpServer

    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text('[server]\nhttp = "127.0.0.1:0"\n')
    home = perdure.open(place, user="ada")
    serving = HomeServer(home, intervals=Intervals(round_s=0.2, prove_s=0.5, tick_s=60))
    thread = threading.Thread(target=serving.run, daemon=True)
    server = HttpServer(serving, Known())
    serving.http_address = address = server.start()
    thread.start()
    yield AthenaClient(address, api_key="ada-laptop")
    server.stop()
    serving.stop_event.set()
    thread.join(timeout=10)
    home.close()


def test_what_is_stored_comes_back_in_order(store):
    assert store.get_memory_context("researcher", limit=15) is None
    for n in range(5):
        store.store_turn("researcher", turn(n))
    store.store_turn("researcher", turn(2))  # told again
    context = store.get_memory_context("researcher", limit=50)
    words = json.dumps(context["stm_events"])
    places = [words.index(f"Thought number {n}.") for n in range(5)]
    assert places == sorted(places)
    assert words.count("Thought number 2.") == 1
    assert "424 records" in words


def test_the_limit_holds(store):
    for n in range(6):
        store.store_turn("researcher", turn(n))
    assert len(store.get_memory_context("researcher", limit=3)["stm_events"]) == 3


def test_two_agents_do_not_share(store):
    store.store_turn("researcher", turn(1))
    assert store.get_memory_context("writer", limit=15) is None
    assert store.get_memory_context("researcher", limit=15)


# at a server that answers like Athena -----------------------------------------------------------------------------


def test_athena_gets_its_own_fields(athena):
    client = AthenaClient(athena.url, user="acme", api_key="secret-1")
    assert athena.asked == []
    client.store_turn("researcher", turn(1))
    client.store_turn("researcher", turn(1))  # nothing is sent twice
    (_, path, opened), *events = athena.asked
    assert path == "/api/v1/sessions"
    assert (opened["tenant_id"], opened["user_id"], opened["agent_id"]) == ("acme", "researcher", "researcher")
    session = json.loads((ANSWERS / "session.json").read_bytes())["sessionId"]
    assert {path for _, path, _ in events} == {f"/api/v1/sessions/{session}/events"}
    assert [(body["role"], body["type"], body["content"]) for _, _, body in events] == [
        ("agent", "thought", "Thought number 1."),
        ("agent", "observation", "http_get: 421 records"),
    ]
    assert events[0][2]["metadata"]["workflow_id"] == "wf-1"
    assert all(headers["X-API-Key"] == "secret-1" for headers in athena.headers_seen)


def test_answers_of_athena_are_read(athena):
    client = AthenaClient(athena.url)
    context = client.get_memory_context("researcher", limit=15)
    assert [event["content"] for event in context["stm_events"]] == [
        "Identify data sources.", "http_get: 200 OK, 42 records",
    ]  # fmt: skip
    (chain,) = context["mtm_chains"]
    assert (chain["topic"], chain["summary"]) == ("Market analysis", "Forty-two records were found.")
    assert client.get_memory_context("researcher", limit=1)["stm_events"] == context["stm_events"][-1:]
    (found,) = client.search("researcher", "how many records?")
    assert (found["content"], found["similarity_score"]) == ("Forty-two records were found.", 0.83)


def test_one_session_after_ten_awaits_and_none_before(athena, tmp_path):
    """W23."""

    async def work() -> None:
        client = AthenaClient(athena.url)
        async with UnifiedMemory("wf", "s", "researcher", athena_client=client) as memory:
            assert athena.asked == []
            for n in range(10):
                await memory.log_turn(f"t{n}", f"Thought {n}.", "note", "done")
            first = await memory._get_athena_memory()
            assert first is not None
            assert (await first.get_memory_context(limit=15))["mtm_chains"]
            await memory.rehydrate_bundle()

    asyncio.run(work())
    assert athena.count("/sessions") == 1


def test_a_session_that_failed_is_tried_again(athena):
    """W23: one failed start does not end the tier."""
    client = AthenaClient(athena.url)
    athena.fails = 1
    with pytest.raises(TierFault, match="503"):
        client.get_memory_context("researcher", limit=15)
    assert client.get_memory_context("researcher", limit=15)
    assert athena.count("/sessions") == 2


def test_a_thought_that_arrived_is_not_sent_with_its_outcome_again(athena):
    client = AthenaClient(athena.url)
    client.open_session("researcher")
    client.store_turn("researcher", {**turn(1), "thought": ""})
    athena.asked.clear()

    class Broken(AthenaClient):
        broken = True

        def store_event(self, agent_id: str, event_type: str, content: str, **more: Any) -> None:
            if event_type == "observation" and self.broken:
                raise TierFault("down")
            super().store_event(agent_id, event_type, content, **more)

    broken = Broken(athena.url)
    with pytest.raises(TierFault):
        broken.store_turn("researcher", turn(2))
    broken.broken = False
    broken.store_turn("researcher", turn(2))
    assert [body["type"] for _, path, body in athena.asked if path.endswith("/events")] == ["thought", "observation"]


def test_the_low_level_object_of_the_seed(athena):
    """W24: create, on_task_assigned, get_memory_context."""

    async def work() -> dict[str, Any] | None:
        memory = await AthenaMemory.create(agent_id="researcher", client=AthenaClient(athena.url))
        await memory.on_task_assigned("task-1", "Analyse Q1 revenue trends", "researcher")
        return await memory.get_memory_context(limit=15)

    context = asyncio.run(work())
    assert context and len(context["stm_events"]) == 2
    (assigned,) = [body for _, path, body in athena.asked if path.endswith("/events")]
    assert assigned["content"] == "Task assigned: Analyse Q1 revenue trends"
    assert (assigned["type"], assigned["metadata"]["task_id"]) == ("action", "task-1")


def test_the_client_comes_from_the_environment(monkeypatch):
    """W25: None when unset; with the tenant when set."""
    for name in ("ATHENA_URL", "ATHENA_TENANT_ID", "ATHENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert get_athena_client() is None
    monkeypatch.setenv("ATHENA_URL", "http://127.0.0.1:8080/")
    client = get_athena_client()
    assert client is not None and (client.url, client.tenant_id) == ("http://127.0.0.1:8080", "default")
    monkeypatch.setenv("ATHENA_TENANT_ID", "acme")
    client = get_athena_client()
    assert client is not None and client.tenant_id == "acme"
