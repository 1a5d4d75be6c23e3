"""The example of an agent in phases: killed in its third turn, it goes on and does nothing twice (J37)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure.workflow.memory import WorkflowMemory
from rig.model_server import Answer, ModelServer
from rig.tier_servers import RedisServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "ooda.py"
N_TICKETS = 4

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()
    server.client.close()


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    folder = tmp_path / "tickets"
    folder.mkdir()
    for number in range(1, N_TICKETS + 1):
        (folder / f"{number}.txt").write_text(f"Question {number}?")
    return folder


def make_answers(first: int) -> list[Answer]:
    """What the model says from one turn on: an assessment and a decision each."""
    return [
        answer
        for number in range(first, N_TICKETS + 1)
        for answer in (
            Answer(f"Assessment {number}: ticket {number} is urgent."),
            Answer(calls=[("reply", {"ticket": str(number), "text": f"Reply {number}."})]),
        )
    ]


def start(tickets: Path, server: RedisServer, model: ModelServer) -> subprocess.Popen[str]:
    env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    env |= {
        "PERDURE_HOME": str(tickets.parent / "home"), "REDIS_URL": server.url, "OPENAI_BASE_URL": f"{model.url}/v1",
        "OPENAI_API_KEY": "none",
    }  # fmt: skip
    command = [sys.executable, str(EXAMPLE), str(tickets)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def list_prompts(model: ModelServer) -> list[str]:
    return [json.dumps(request.body["messages"]) for request in model.requests]


def list_replies(tickets: Path) -> dict[str, tuple[str, int]]:
    return {path.stem: (path.read_text(), path.stat().st_mtime_ns) for path in tickets.glob("*.reply")}


@pytest.mark.parametrize("phase", ["orient", "decide", "act"])
def test_an_agent_killed_in_its_third_turn_goes_on(phase: str, tickets: Path, server: RedisServer):
    n_asked = 4 + ["orient", "decide", "act"].index(phase)  # answers that it got: two a turn
    slow = Answer("too late", delay_s=600)
    with ModelServer(answers=[*make_answers(1)[:n_asked], slow]) as model:
        agent = start(tickets, server, model)
        wait_for(lambda: (tickets / "3.reply").exists() if phase == "act" else len(model.requests) == n_asked + 1)
        agent.kill()
        agent.communicate()
        prompts = list_prompts(model)
    assert "Assessment 1" not in prompts[0] and "### t1 " in prompts[2] and "Assessment 1: ticket 1" in prompts[2]
    replies = list_replies(tickets)
    assert len(replies) == (3 if phase == "act" else 2)

    checkpoint = json.loads(server.client.get("checkpoint:tickets:answer") or b"{}")
    if phase != "act":
        assert checkpoint["turn"] == 3 and ("assessment" in checkpoint) == (phase == "decide")
    with ModelServer(answers=make_answers(3)[n_asked - 4 :]) as model:
        output, errors = start(tickets, server, model).communicate(timeout=120)
        assert output == "4 turns; nothing is open.\n", errors
        prompts = list_prompts(model)
    assert len(prompts) == 2 * N_TICKETS - n_asked, "the model is asked for nothing that it has answered"
    own = "Assessment 3" if phase == "decide" else "Assessment 2: ticket 2"
    assert own in prompts[0], "the first prompt has the checkpoint's understanding, or the notes of earlier turns"
    assert all(f"### t{number} " in prompts[-2] for number in (1, 2, 3)), "and the last turn those of all before"

    assert {name: text for name, (text, _) in list_replies(tickets).items()} == {
        str(number): f"Reply {number}." for number in range(1, N_TICKETS + 1)
    }
    assert replies.items() <= list_replies(tickets).items(), "what was done was not done again"
    with perdure.open(tickets.parent / "home") as home:
        memory = WorkflowMemory("tickets", "answer", "clerk", redis_store=server.url, home=home)
        turn_ids = [turn.turn_id for turn in memory.export()]
        assert turn_ids == [turn.turn_id for turn in memory.read_tail(99)] == ["t1", "t2", "t3", "t4"]
